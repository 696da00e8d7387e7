"""Here lives the comparison of policies over paired episodes: the same numbered worlds for all of them.

The recovered share of a policy is (policy - wait) / (oracle - wait), a ratio of sums of surviving good tokens; its
interval is a bootstrap over episodes, resampled in pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from clusterorch.errors import InvalidIntervention
from clusterorch.evaluation.journal import Record
from clusterorch.policies.running import run_policy

CHUNK, RESAMPLED = 64, 2000
_Z = 1.959964 + 0.841621  # two-sided 5 %, power 0.8
KEPT = (
    "kept",
    "rolled_back",
    "false_moves",
    "moves",
    "useful",
    "slow",
    "stalled",
    "down",
    "shrunk",
    "poisoned",
    "lost",
)
Agents = dict[str, tuple[Path, bool]]  # folder, and whether moves are drawn
AIMS = {"rules_at_most": 0.6, "most_likely_cause_at_most": 0.9}


def keys(layouts: Sequence[str], policies: Sequence[str], episodes: int) -> list[str]:
    """One for each policy and chunk of episodes, so that what is done so far is always paired.

    Raises:
        InvalidIntervention: fewer than two episodes: nothing could be said of them.
    """
    if episodes < 2:
        raise InvalidIntervention(f"episodes={episodes}: give 2 or more")
    chunks = [f"{first}-{min(first + CHUNK, episodes)}" for first in range(0, episodes, CHUNK)]
    return [f"{layout}/{chunk}/{policy}" for layout in layouts for chunk in chunks for policy in policies]


def agents_of(folders: Sequence[Path]) -> Agents:
    """Agents by a name that their weights are part of, each as it plays its likeliest moves and as it draws them.

    Raises:
        InvalidAgent: a folder holds none.
    """
    from clusterorch.learning.agents import WEIGHTS
    from clusterorch.learning.playing import agent_observes

    found: Agents = {}
    for folder in folders:
        agent_observes(folder)
        name = f"{folder.name}@{hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:8]}"
        found |= {name: (folder, False), f"{name}, sampled": (folder, True)}
    return found


def play(key: str, hours: float, profile: str | None, seed: int, agents: Agents | None = None) -> Record:
    """The episodes of one key."""
    layout, chunk, policy = key.split("/", 2)
    numbers, made = range(*map(int, chunk.split("-"))), {}
    if agents and policy in agents:
        from clusterorch.learning.playing import agent_observes, agent_policy

        folder, sampled = agents[policy]
        made = {
            "observe": agent_observes(folder),
            "make": lambda episodes: agent_policy(folder, episodes, sampled=sampled, seed=seed),
        }
    found = run_policy(
        policy, numbers, layout=layout, hours=hours, profile=profile, seed=seed, domain="policies", **made
    )
    return {"key": key, "episodes": [short(one) for one in found]}


def short(told: dict[str, Any]) -> Record:
    """What is kept of an episode that was played."""
    kept = {name: round(float(told[name]), 6) for name in KEPT}
    first = told["incidents"][0]["variant"] if told["incidents"] else None
    return kept | {
        "number": told["number"], "first": first, "incidents": len(told["incidents"]), "understood": told["understood"],
        **{name: told[name] for name in ("stated", "truth", "acted")},
        "began": told["incidents"][0]["slice"] if told["incidents"] else None,
        "latency": None if told["recovery_latency"] != told["recovery_latency"] else told["recovery_latency"],
    }  # fmt: skip


def summary(records: Sequence[Record], layouts: Sequence[str], policies: Sequence[str]) -> Record:
    """Scores by layout."""
    result: Record = {"layouts": {}, "aims": AIMS, "policies": list(policies)}
    for layout in layouts:
        runs: dict[str, list[Record]] = {policy: [] for policy in policies}
        for record in records:
            if record["key"].split("/")[0] == layout:
                runs[record["key"].split("/", 2)[2]] += record["episodes"]
        result["layouts"][layout] = scores({p: sorted(r, key=lambda one: one["number"]) for p, r in runs.items()})
    return result


def scores(runs: dict[str, list[Record]]) -> Record:
    """Scores of paired episodes by policy; `wait` and `oracle` are among them."""
    kept = {policy: np.array([one["kept"] for one in found]) for policy, found in runs.items()}
    wait, oracle = kept["wait"], kept["oracle"]
    rng = np.random.default_rng(0)
    picks = rng.integers(len(wait), size=(RESAMPLED, len(wait)))
    rows = {}
    for policy, found in runs.items():
        low, high = _interval(kept[policy], wait, oracle, picks)
        stated = [one["understood"] for one in found if one["understood"] is not None]
        latencies = [one["latency"] for one in found if one["latency"] is not None]
        rows[policy] = {
            "kept": float(kept[policy].mean()), "share": share_of(kept[policy], wait, oracle), "low": low, "high": high,
            **{name: float(np.mean([one[name] for one in found])) for name in KEPT if name != "kept"},
            "understood": float(np.mean(stated)) if stated else None,
            "latency": float(np.mean(latencies)) if latencies else None,
        }  # fmt: skip
    firsts = [one["first"] for one in runs["wait"]]
    order = sorted(runs, key=lambda policy: rows[policy]["kept"])
    return {
        "episodes": len(wait), "empty": sum(first is None for first in firsts), "rows": rows,
        "by_mode": _by(firsts, kept, lambda name: name.split(".")[0]),
        "by_variant": _by(firsts, kept, lambda name: name),
        "needed": {f"{a} < {b}": _needed(kept[b] - kept[a]) for a, b in pairwise(order)},
    }  # fmt: skip


def share_of(kept: np.ndarray, wait: np.ndarray, oracle: np.ndarray) -> float:
    """Recovered share of paired episodes."""
    head_room = float((oracle - wait).sum())
    return float((kept - wait).sum()) / head_room if head_room else 0.0


def _interval(kept: np.ndarray, wait: np.ndarray, oracle: np.ndarray, picks: np.ndarray) -> tuple[float, float]:
    """95 % percentile interval of the share."""
    gained, room = (kept - wait)[picks].sum(axis=1), (oracle - wait)[picks].sum(axis=1)
    shares = gained[room > 0] / room[room > 0]
    return (float(np.quantile(shares, 0.025)), float(np.quantile(shares, 0.975))) if len(shares) else (0.0, 0.0)


def _by(firsts: list[str | None], kept: dict[str, np.ndarray], group: Any) -> Record:
    """Of episodes by their first failure: how many, the head-room and each policy's share and gap to the oracle."""
    groups: dict[str, list[int]] = {}
    for i, first in enumerate(firsts):
        if first is not None:
            groups.setdefault(group(first), []).append(i)
    result = {}
    for name, rows in sorted(groups.items()):
        part = {policy: values[rows] for policy, values in kept.items()}
        result[name] = {
            "episodes": len(rows), "head_room": float((part["oracle"] - part["wait"]).mean()),
            "share": {policy: share_of(values, part["wait"], part["oracle"]) for policy, values in part.items()},
            "gap": {policy: float((part["oracle"] - values).mean()) for policy, values in part.items()},
        }  # fmt: skip
    return result


def _needed(difference: np.ndarray) -> int | None:
    """Paired episodes that tell two policies apart at 80 % power, two-sided 5 %; None if they are the same."""
    mean, sd = float(difference.mean()), float(difference.std(ddof=1)) if len(difference) > 1 else 0.0
    return int(np.ceil((_Z * sd / mean) ** 2)) if mean and sd else None
