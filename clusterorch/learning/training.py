"""Here lives a training run: what it is made of, how it goes on, and what it keeps."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from clusterorch.environment.making import episodes_of
from clusterorch.errors import InvalidAgent
from clusterorch.learning.agents import (
    CONFIG,
    VERSION,
    load_into,
    newest,
    read_config,
    read_tensors,
    replacing,
    save_agent,
)
from clusterorch.learning.freezing import arrays_of, put_back
from clusterorch.learning.network import Policy, shape_of
from clusterorch.learning.playing import Learned
from clusterorch.learning.ppo import Group, Losses, Schedule, Segment, new_group, play, update
from clusterorch.policies.running import run_policy

TRAINING, VALIDATION = "training", "validation"  # domains of the noise
_WEIGHTS, _REST = "model.safetensors", "rest.safetensors"


@dataclass(frozen=True)
class Run:
    """All that a run depends on."""

    observe: str = "belief"
    layouts: tuple[str, ...] = ("4x8",)
    profile: str | None = None
    steps: int = 1_000_000  # decisions
    seed: int = 0
    instances: int = 64  # on each layout
    hours: float = 4.0
    memory: str = "attention"
    width: int = 96
    evaluate_every: int = 40  # updates
    evaluated: int = 64  # episodes on each layout
    schedule: Schedule = field(default_factory=Schedule)

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Run:
        """A run from its configuration.

        Raises:
            InvalidAgent: a key that a run does not have.
        """
        told = dict(told)
        schedule = told.pop("schedule", {})
        for kind, given in ((cls, told), (Schedule, schedule)):
            if unknown := sorted(set(given) - {f.name for f in fields(kind)}):
                raise InvalidAgent(f"configuration of a run: unknown key {unknown[0]!r}")
        told["layouts"] = tuple(told.get("layouts", cls.layouts))
        return cls(**told, schedule=Schedule(**schedule))


@dataclass
class Told:
    """What an update has to tell."""

    update: int
    decisions: int
    per_second: float
    losses: Losses
    returns: float | None
    length: float | None
    shares: dict[str, float] | None = None  # recovered share, argmax and sampled


class Trainer:
    """A run that can be stopped after any update and goes on to the same weights.

    Args:
        run: what it depends on.
        folder: for checkpoints and the best agent.
    """

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder, self.update, self.decisions, self.best = run, folder, 0, 0, -np.inf
        torch.manual_seed(run.seed)
        self._draws = torch.Generator().manual_seed(run.seed + 1)
        self._order = torch.Generator().manual_seed(run.seed + 2)
        made = [
            episodes_of(
                run.instances, layout=layout, profile=run.profile, hours=run.hours, observe=run.observe, seed=run.seed,
                domain=f"{TRAINING} {layout}",
            )
            for layout in run.layouts
        ]  # fmt: skip
        truth = run.schedule.critic_sees_truth
        self.policy = Policy(shape_of(made[0], truth=truth, width=run.width, memory=run.memory))
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=run.schedule.rate, eps=1e-5)
        self.groups: list[Group] = [new_group(self.policy, episodes) for episodes in made]
        self._references: dict[str, tuple[float, float]] = {}
        self._stopped = False

    @property
    def updates(self) -> int:
        """How many updates the run has in all."""
        held = len(self.groups) * self.run.instances * self.run.schedule.length
        return max(1, -(-self.run.steps // held))

    def go(self, tell: Callable[[Told], None]) -> None:
        """Train to the end, or until a signal asks to stop; the last checkpoint then is of the last whole update."""
        before = signal.signal(signal.SIGTERM, self._stop)
        try:
            while self.update < self.updates and not self._stopped:
                tell(self.step())
                if self.update % self.run.evaluate_every == 0 or self.update == self.updates:
                    self.save()
            self.save()
        finally:
            signal.signal(signal.SIGTERM, before)

    def _stop(self, number: int, frame: object) -> None:
        self._stopped = True

    def step(self) -> Told:
        """One update: play a segment of every group, then improve."""
        begun, segments, held = time.perf_counter(), [], 0
        for group in self.groups:
            segment, count = play(self.policy, group, self.run.schedule, self._draws)
            segments.append(_finite(segment))
            held += count
        losses = update(
            self.policy, self.optimiser, segments, self.run.schedule, self.update / self.updates, self._order
        )
        self.update += 1
        self.decisions += held
        told = Told(self.update, self.decisions, held / (time.perf_counter() - begun), losses, *self._ended())
        if self.update % self.run.evaluate_every == 0 or self.update == self.updates:
            told.shares = self.shares()
            if told.shares["argmax"] > self.best:
                self.best = told.shares["argmax"]
                self.keep("best", told.shares)
        return told

    def _ended(self) -> tuple[float | None, float | None]:
        returns = [value for group in self.groups for value in group.returns]
        lengths = [length for group in self.groups for length in group.lengths]
        for group in self.groups:
            group.returns.clear()
            group.lengths.clear()
        return (float(np.mean(returns)), float(np.mean(lengths))) if returns else (None, None)

    def shares(self) -> dict[str, float]:
        """Recovered share over the layouts on episodes of the validation domain, argmax and sampled."""
        gained, room = {"argmax": 0.0, "sampled": 0.0}, 0.0
        for layout in self.run.layouts:
            wait, oracle = self._reference(layout)
            room += oracle - wait
            for how in gained:
                gained[how] += self._kept(layout, "learned", sampled=how == "sampled") - wait
        self.policy.train()
        return {how: value / room if room > 0.0 else 0.0 for how, value in gained.items()}

    def _reference(self, layout: str) -> tuple[float, float]:
        if layout not in self._references:
            self._references[layout] = self._kept(layout, "wait"), self._kept(layout, "oracle")
        return self._references[layout]

    def _kept(self, layout: str, name: str, *, sampled: bool = False) -> float:
        learned = name == "learned"
        found = run_policy(
            name, range(self.run.evaluated), layout=layout, profile=self.run.profile, hours=self.run.hours,
            domain=VALIDATION, seed=self.run.seed,
            make=(lambda episodes: Learned(self.policy, episodes, sampled=sampled)) if learned else None,
            **({"observe": self.run.observe} if learned else {}),
        )  # fmt: skip
        return float(np.mean([one["kept"] for one in found]))

    def keep(self, name: str, shares: dict[str, float] | None) -> Path:
        """Write the agent as it is now."""
        told = {"run": _plain(self.run), "update": self.update, "decisions": self.decisions, "shares": shares}
        words = ", ".join(f"{how} {share:.3f}" for how, share in (shares or {}).items())
        card = (
            f"# Agent after {self.decisions:,} decisions\n\nObserves {self.run.observe}, trained on "
            f"{', '.join(self.run.layouts)}, seed {self.run.seed}. Recovered share on {self.run.evaluated} validation "
            f"episodes a layout: {words or 'not measured'}.\n"
        )
        return save_agent(self.folder / name, self.policy, told, card, force=True)

    def save(self) -> Path:
        """Write all that it takes to go on."""
        tensors: dict[str, torch.Tensor] = {"draws": self._draws.get_state(), "order": self._order.get_state()}
        for name, kept in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{name}.{key}": value for key, value in kept.items()}
        incidents = []
        for g, group in enumerate(self.groups):
            arrays = arrays_of(group.episodes) | {"begun": group.begun}
            tensors |= {f"group.{g}.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
            tensors |= {f"group.{g}.memory.{i}": part.clone() for i, part in enumerate(group.state)}
            incidents.append([group.episodes.totals.incidents, group.returns, group.lengths])
        told = {
            "version": VERSION, "run": _plain(self.run), "update": self.update, "decisions": self.decisions,
            "best": None if self.best == -np.inf else self.best, "incidents": incidents,
        }  # fmt: skip
        with replacing(self.folder / "last") as fresh:
            save_file({n: v.contiguous() for n, v in self.policy.state_dict().items()}, fresh / _WEIGHTS)
            save_file({n: v.contiguous() for n, v in tensors.items()}, fresh / _REST)
            (fresh / CONFIG).write_text(json.dumps(told) + "\n", encoding="utf-8")
        return self.folder / "last"

    @classmethod
    def resume(cls, folder: Path) -> Trainer:
        """Go on where a run stopped.

        Raises:
            InvalidAgent: there is no checkpoint, or it is broken or of another version.
        """
        last = newest(folder / "last")
        told = read_config(last)
        trainer = cls(Run.parse(told["run"]), folder)
        load_into(trainer.policy, last / _WEIGHTS)
        rest = read_tensors(last / _REST)
        try:
            trainer._put_back(told, rest)
        except (KeyError, ValueError, RuntimeError) as error:
            raise InvalidAgent(f"{last / _REST}: {error}; it is of another model or version, begin anew") from None
        return trainer

    def _put_back(self, told: dict[str, Any], rest: dict[str, torch.Tensor]) -> None:
        self.update, self.decisions = told["update"], told["decisions"]
        self.best = -np.inf if told["best"] is None else told["best"]
        self._draws.set_state(rest["draws"])
        self._order.set_state(rest["order"])
        state = self.optimiser.state_dict()
        kept: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in rest.items():
            if name.startswith("optimiser."):
                _, number, key = name.split(".", 2)
                kept.setdefault(int(number), {})[key] = value
        self.optimiser.load_state_dict(state | {"state": kept})
        for g, (group, lists) in enumerate(zip(self.groups, told["incidents"], strict=True)):
            mine = {n.removeprefix(f"group.{g}."): v.numpy() for n, v in rest.items() if n.startswith(f"group.{g}.")}
            put_back(group.episodes, mine)
            group.begun[:] = mine["begun"]
            group.state = tuple(rest[f"group.{g}.memory.{i}"] for i in range(len(group.state)))
            group.episodes.totals.incidents[:], group.returns[:], group.lengths[:] = lists


def use_threads(count: int) -> None:
    """How many threads torch computes with; sums of another number round otherwise."""
    torch.set_num_threads(count)


def _plain(run: Run) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(run)))


def _finite(segment: Segment) -> Segment:
    """The same, if what it was worth is a number.

    Raises:
        InvalidAgent: a reward or a value is not.
    """
    if not torch.isfinite(segment.advantages).all():
        raise InvalidAgent("rewards or values hold what is no finite number; the last checkpoint is whole")
    return segment
