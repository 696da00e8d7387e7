"""Here lives the study of learning: every kind of observation, some seeds, paired episodes at the end.

An arm and a seed are one run of `clusterorch.learning.training`, which goes on where it stopped; its curve and the
episodes that its agent plays at the end, whatever it had been before, are what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from clusterorch.environment.episodes import OBSERVE
from clusterorch.environment.making import model_of
from clusterorch.evaluation.journal import Record
from clusterorch.evaluation.policy_scores import KEPT, RESAMPLED, scores, share_of, short
from clusterorch.learning.playing import agent_policy
from clusterorch.learning.training import Run, Trainer, read_curve, use_threads
from clusterorch.policies.prospects import prospects_of
from clusterorch.policies.running import observes, run_policy

DOMAIN = "learning"  # of the noise of the episodes at the end
HOW = ("argmax", "sampled")
ARMS: dict[str, dict[str, Any]] = {
    **{observe: {"observe": observe} for observe in OBSERVE},
    "prior": {"observe": "belief", "prior": 1.0},  # the belief's own word on every move, beside its place in the input
}


def keys(arms: Sequence[str], seeds: Sequence[int], baselines: Sequence[str], layouts: Sequence[str]) -> list[str]:
    """The baselines' keys first, then one for each arm and seed."""
    return [
        *(f"baseline/{layout}/{name}" for layout in layouts for name in baselines),
        *(f"run/{arm}/{seed}" for seed in seeds for arm in arms),
    ]


class Study:
    """What is trained, and what it is tried on.

    Args:
        run: of every arm and seed, but for these two.
        episodes: at the end, on each layout.
        work: folder for the runs.
    """

    def __init__(self, run: Run, episodes: int, work: Path) -> None:
        self.base, self.episodes, self.work, self._stopped = run, episodes, work, False

    def prepare(self) -> None:
        """Work out once what every run needs, so that the processes of the study inherit it."""
        for layout, profile in self.base.sites:
            for overlays in {(), self.base.overlays}:
                prospects_of(model_of(layout, 1, 0, profile, "reference", overlays))  # as `episodes_of` asks for it

    def do(self, key: str) -> Record:
        """Play a baseline, or train a run to its end and play its agent.

        Raises:
            KeyboardInterrupt: a signal asked to stop, now or before.
        """
        if self._stopped:
            raise KeyboardInterrupt
        kind, first, second = key.split("/")
        if kind == "baseline":
            return {"key": key, "episodes": self._played(first, second)}
        return {"key": key, **self._trained(first, int(second))}

    def _trained(self, arm: str, seed: int) -> Record:
        use_threads(1)
        run, folder = replace(self.base, seed=seed, **ARMS[arm]), self.work / f"{arm}-{seed}"
        trainer = Trainer.resume(folder) if (folder / "last").exists() else Trainer(run, folder)
        trainer.go(lambda told: None)
        if trainer.stopped:
            self._stopped = True
            raise KeyboardInterrupt
        curve = read_curve(folder)
        seconds = sum(trainer.held / one["per_second"] for one in curve)
        return {
            "seconds": seconds, "decisions": trainer.decisions, "curve": _shortened(curve),
            "episodes": {
                layout: {how: self._played(layout, arm, folder / "final", sampled=how == "sampled") for how in HOW}
                for layout in run.layouts
            },
        }  # fmt: skip

    def _played(self, layout: str, name: str, agent: Path | None = None, *, sampled: bool = False) -> list[Record]:
        """Paired episodes of a policy, or of an agent of the arm `name`."""
        made: dict[str, Any] = {"observe": observes(name)}
        if agent is not None:
            made = {
                "observe": ARMS[name]["observe"],
                "make": lambda episodes: agent_policy(agent, episodes, sampled=sampled),
            }
        found = run_policy(
            name, range(self.episodes), layout=layout, hours=self.base.hours, domain=DOMAIN, seed=0, **made
        )  # fmt: skip
        return [short(one) for one in found]


def _shortened(curve: Sequence[Record], points: int = 80) -> list[Record]:
    """Means of the returns over stretches of equal length, and every evaluation."""
    stretch = max(1, -(-len(curve) // points))
    found = []
    for first in range(0, len(curve), stretch):
        part = curve[first : first + stretch]
        returns = [one["returns"] for one in part if one["returns"] is not None]
        found.append(
            {
                "decisions": part[-1]["decisions"], "returns": float(np.mean(returns)) if returns else None,
                "kl": float(np.mean([one["losses"]["approx_kl"] for one in part])),
                "entropy": float(np.mean([one["losses"]["entropy"] for one in part])),
            }
        )  # fmt: skip
    evaluated = [{"decisions": one["decisions"], **one["shares"]} for one in curve if one["shares"]]
    return [*found, *evaluated]


def summary(
    records: dict[str, Record], run: Run, arms: Sequence[str], seeds: Sequence[int], baselines: Sequence[str]
) -> Record:  # fmt: skip
    """Curves by arm and seed, and scores by layout: of arms the means over seeds, episode by episode."""
    runs = {arm: {str(seed): records[f"run/{arm}/{seed}"] for seed in seeds} for arm in arms}
    result: Record = {"arms": {}, "layouts": {}}
    for arm, by_seed in runs.items():
        result["arms"][arm] = {
            seed: {name: one[name] for name in ("seconds", "decisions", "curve")} for seed, one in by_seed.items()
        }
    for layout in run.layouts:
        played = {name: records[f"baseline/{layout}/{name}"]["episodes"] for name in baselines}
        single: dict[str, list[list[Record]]] = {}
        for arm, by_seed in runs.items():
            for how in HOW:
                single[f"{arm}, {how}"] = [one["episodes"][layout][how] for one in by_seed.values()]
        found = scores(played | {name: _mean_of(several) for name, several in single.items()})
        wait, oracle = (kept_of(played[name]) for name in ("wait", "oracle"))
        found["by_seed"] = {
            name: [share_of(kept_of(one), wait, oracle) for one in several] for name, several in single.items()
        }
        found["against"] = {
            name: {other: _difference(_mean_of(several), played[other]) for other in baselines}
            for name, several in single.items()
        }
        found["first_moves"] = {name: _first_moves(several) for name, several in single.items()}
        result["layouts"][layout] = found
    # What the curves are held against: the same policies over all layouts.
    totals = {name: sum(found["rows"][name]["kept"] for found in result["layouts"].values()) for name in baselines}
    room = totals["oracle"] - totals["wait"]
    result["references"] = {name: (kept - totals["wait"]) / room if room else 0.0 for name, kept in totals.items()}
    return result


def kept_of(episodes: Sequence[Record]) -> np.ndarray:
    """[episodes] work kept."""
    return np.array([one["kept"] for one in episodes])


def _mean_of(several: Sequence[Sequence[Record]]) -> list[Record]:
    """The same episodes under several agents, as one of mean numbers."""
    found = []
    for ones in zip(*several, strict=True):
        mean = {name: float(np.mean([one[name] for one in ones])) for name in KEPT}
        for name in ("understood", "latency"):
            known = [float(one[name]) for one in ones if one[name] is not None]
            mean[name] = float(np.mean(known)) if known else None
        found.append(ones[0] | mean)
    return found


def _difference(mine: Sequence[Record], others: Sequence[Record]) -> Record:
    """Mean difference of what is kept, slices an episode, and its 95 % bootstrap interval over pairs."""
    apart = kept_of(mine) - kept_of(others)
    rng = np.random.default_rng(0)
    means = apart[rng.integers(len(apart), size=(RESAMPLED, len(apart)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"mean": float(apart.mean()), "low": float(low), "high": float(high)}


def _first_moves(several: Sequence[Sequence[Record]]) -> Record:
    """By mode of the first failure: how often and how late a move follows, and what it is taken for."""
    found: dict[str, dict[str, Any]] = {}
    for one in (episode for agent in several for episode in agent):
        if one["first"] is None:
            continue
        row = found.setdefault(
            one["first"].split(".")[0], {"episodes": 0, "before": 0, "acted": 0, "delays": [], "taken_for": {}}
        )
        row["episodes"] += 1
        if one["acted"] is not None and one["acted"] < one["began"]:
            row["before"] += 1  # nothing was wrong yet
        elif one["acted"] is not None:
            row["acted"] += 1
            row["delays"].append(one["acted"] - one["began"])
            row["taken_for"][one["stated"]] = row["taken_for"].get(one["stated"], 0) + 1
    for row in found.values():
        delays = row.pop("delays")
        row["median_delay"] = float(np.median(delays)) if delays else None
        row["taken_for"] = dict(sorted(row["taken_for"].items(), key=lambda item: -item[1]))
    return dict(sorted(found.items()))
