"""Here lives a training run: what it is made of, how it goes on, and what it keeps."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clusterorch.environment.making import episodes_of
from clusterorch.errors import InvalidAgent
from clusterorch.learning.agents import (
    CONFIG,
    VERSION,
    WEIGHTS,
    load_into,
    newest,
    read_config,
    read_tensors,
    replacing,
    save_agent,
    write_tensors,
)
from clusterorch.learning.freezing import arrays_of, put_back
from clusterorch.learning.instances import Cluster
from clusterorch.learning.network import Policy
from clusterorch.learning.playing import Learned
from clusterorch.learning.ppo import Group, Losses, Schedule, Segment, new_group, play, update
from clusterorch.learning.seeing import shape_of
from clusterorch.learning.team import Team
from clusterorch.policies.running import run_policy

TRAINING, VALIDATION = "training", "validation"  # domains of the noise
CURVE, OWN = "curve.jsonl", "own"


@dataclass(frozen=True)
class Run:
    """All that a run depends on."""

    observe: str = "belief"
    layouts: tuple[str, ...] = ("4x8",)
    profiles: tuple[str, ...] = (OWN,)  # site profiles, each on every layout; OWN: the model's own mix of failures
    overlays: tuple[str, ...] = ()  # of the model in training alone, such as `drill`; validation is without them
    steps: int = 1_000_000  # decisions
    seed: int = 0
    instances: int = 64  # at each site
    hours: float = 4.0
    memory: str = "attention"
    width: int = 96
    prior: float = 0.0  # weight of the belief's own word on every move's logit: an arm of its own
    evaluate_every: int = 40  # updates
    save_every: int = 40  # updates
    evaluated: int = 64  # episodes of each site
    begin: str | None = None  # folder of an agent whose weights the run begins with
    schedule: Schedule = field(default_factory=Schedule)

    @property
    def sites(self) -> list[tuple[str, str | None]]:
        """Every layout with every profile."""
        return [(layout, None if name == OWN else name) for layout in self.layouts for name in self.profiles]

    @classmethod
    def parse(cls, told: dict[str, Any]) -> Run:
        """A run from its configuration.

        Raises:
            InvalidAgent: a key that a run does not have, or one name in place of a list.
        """
        told = dict(told)
        schedule = told.pop("schedule", {})
        for kind, given in ((cls, told), (Schedule, schedule)):
            if unknown := sorted(set(given) - {f.name for f in fields(kind)}):
                raise InvalidAgent(f"configuration of a run: unknown key {unknown[0]!r}")
        for name in ("layouts", "profiles", "overlays"):
            given = told.get(name, getattr(cls, name))
            if not isinstance(given, list | tuple):
                raise InvalidAgent(f"configuration of a run: {name} is {given!r}: give a list of names")
            told[name] = tuple(given)
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
        folder: for checkpoints, and the agents `best` (in validation episodes) and `final`.
        team: processes that learn together, each with its share of the instances.
        fresh: whether the run begins; else its weights are put in afterwards.

    Raises:
        InvalidAgent: instances cannot be shared evenly, or the agent to begin with is missing, broken or of another
            shape.
    """

    def __init__(self, run: Run, folder: Path, team: Team | None = None, *, fresh: bool = True) -> None:
        self.run, self.folder, self.update, self.decisions, self.best = run, folder, 0, 0, -np.inf
        self.team = team or Team()
        share = self.team.share(run.instances)
        torch.manual_seed(run.seed)
        self._draws = torch.Generator().manual_seed(run.seed + 1)
        self._order = torch.Generator().manual_seed(run.seed + 2)
        made = [
            episodes_of(
                share.stop - share.start, layout=layout, profile=profile, hours=run.hours, observe=run.observe,
                overlays=run.overlays, seed=run.seed, domain=f"{TRAINING} {layout} {profile or ''}".rstrip(),
                first_instance=share.start,
            )
            for layout, profile in run.sites
        ]  # fmt: skip
        critic = run.schedule.critic_sees_truth
        self.policy = Policy(shape_of(made[0], critic=critic, width=run.width, memory=run.memory, prior=run.prior))
        if fresh and run.begin is not None:
            load_into(self.policy, Path(run.begin) / WEIGHTS)
        self.optimiser = torch.optim.Adam(self.policy.parameters(), lr=run.schedule.rate, eps=1e-5)
        self.clusters = [Cluster(episodes) for episodes in made]
        self.groups: list[Group] = [new_group(self.policy, one, run.instances, share) for one in self.clusters]
        self._references: dict[tuple[str, str | None], tuple[float, float]] = {}
        self._stopped = False

    @property
    def updates(self) -> int:
        """How many updates the run has in all."""
        return max(1, -(-self.run.steps // self.held))

    @property
    def held(self) -> int:
        """Decisions of an update, of all processes together."""
        return len(self.groups) * self.run.instances * self.run.schedule.length

    def go(self, tell: Callable[[Told], None]) -> None:
        """Train to the end, or until a signal asks to stop; the last checkpoint then is of the last whole update.

        SIGTERM and the first Ctrl-C let the update come to its end; a second Ctrl-C does not.
        """
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            while self.update < self.updates and not self.team.any(flag=self._stopped):
                told = self.step()
                self._log(told)
                tell(told)
                if self.update % self.run.save_every == 0 and self.update < self.updates:
                    self.save()
            self.save()
            if self.update == self.updates:
                self.keep("final", None)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _log(self, told: Told) -> None:
        """Add a line to the curve; of updates that a stopped run lost, and plays again, the last line counts."""
        if self.team.leads:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / CURVE).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(asdict(told) | {"losses": told.losses._asdict()}) + "\n")

    def _stop(self, number: int, frame: object) -> None:
        if self._stopped and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._stopped = True

    @property
    def stopped(self) -> bool:
        """Whether a signal asked to stop."""
        return self._stopped

    def step(self) -> Told:
        """One update: play a segment of every group, then improve."""
        begun, schedule = time.perf_counter(), self.run.schedule
        losses = self.improve([_finite(play(self.policy, group, schedule, self._draws)) for group in self.groups])
        self.update += 1
        self.decisions += self.held
        told = Told(self.update, self.decisions, self.held / (time.perf_counter() - begun), losses, *self._ended())
        if self.update % self.run.evaluate_every == 0 or self.update == self.updates:
            told.shares = self.shares()
            if (reached := max(told.shares.values())) > self.best:
                self.best = reached
                self.keep("best", told.shares)
        return told

    def improve(self, segments: list[Segment]) -> Losses:
        """Learn from a segment of every group."""
        done = self.update / self.updates
        return update(
            self.policy, self.optimiser, segments, self.groups, self.run.schedule, done, self._order, self.team
        )

    def _ended(self) -> tuple[float | None, float | None]:
        """Mean return and length of the episodes that ended in the update, of all processes."""
        returns = [value for group in self.groups for value in group.returns]
        lengths = [length for group in self.groups for length in group.lengths]
        for group in self.groups:
            group.returns.clear()
            group.lengths.clear()
        sums = torch.tensor([float(len(returns)), sum(returns), float(sum(lengths))], dtype=torch.float64)
        count, total, slices = self.team.sum(sums).tolist()
        return (total / count, slices / count) if count else (None, None)

    def shares(self) -> dict[str, float]:
        """Recovered share over the sites on episodes of the validation domain, argmax and sampled."""
        gained, room = {"argmax": 0.0, "sampled": 0.0}, 0.0
        for site in self.run.sites:
            wait, oracle = self._reference(site)
            room += oracle - wait
            for how in gained:
                gained[how] += self._kept(site, "learned", sampled=how == "sampled") - wait
        self.policy.train()
        return {how: value / room if room > 0.0 else 0.0 for how, value in gained.items()}

    def _reference(self, site: tuple[str, str | None]) -> tuple[float, float]:
        if site not in self._references:
            self._references[site] = self._kept(site, "wait"), self._kept(site, "oracle")
        return self._references[site]

    def _kept(self, site: tuple[str, str | None], name: str, *, sampled: bool = False) -> float:
        """Mean work kept in the validation episodes of a site; every process plays its share of them."""
        learned, mine = name == "learned", self.team.share(self.run.evaluated)
        layout, profile = site
        found = run_policy(
            name, range(mine.start, mine.stop), layout=layout, profile=profile, hours=self.run.hours,
            domain=VALIDATION, seed=0,  # the same episodes for every seed, so that runs can be compared
            make=(lambda episodes: Learned(self.policy, episodes, sampled=sampled)) if learned else None,
            **({"observe": self.run.observe} if learned else {}),
        )  # fmt: skip
        kept = torch.tensor(sum(one["kept"] for one in found), dtype=torch.float64)
        return float(self.team.sum(kept)) / self.run.evaluated

    def keep(self, name: str, shares: dict[str, float] | None) -> Path:
        """Write the agent as it is now."""
        folder = self.folder / name
        if self.team.leads:
            told = {
                "run": _plain(self.run), "update": self.update, "decisions": self.decisions, "shares": shares,
                "processes": self.team.size,
            }  # fmt: skip
            save_agent(folder, self.policy, told, card_of(self.run, self.decisions, shares), force=True)
        self.team.wait()
        return folder

    def save(self) -> Path:
        """Write all that it takes to go on: the weights, and of every process what its instances are at."""
        with replacing(self.folder / "last", self.team) as fresh:
            write_tensors(self._rest(), fresh / _rest_of(self.team.rank))
            if self.team.leads:
                told = {
                    "version": VERSION, "run": _plain(self.run), "update": self.update, "decisions": self.decisions,
                    "best": None if self.best == -np.inf else self.best, "processes": self.team.size,
                }  # fmt: skip
                write_tensors(self.policy.state_dict(), fresh / WEIGHTS)
                (fresh / CONFIG).write_text(json.dumps(told) + "\n", encoding="utf-8")
        return self.folder / "last"

    def _rest(self) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {"draws": self._draws.get_state(), "order": self._order.get_state()}
        for name, kept in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{name}.{key}": value for key, value in kept.items()}
        for g, (group, cluster) in enumerate(zip(self.groups, self.clusters, strict=True)):
            arrays = arrays_of(cluster.episodes) | {"begun": group.begun}
            tensors |= {f"group.{g}.{name}": torch.from_numpy(array.copy()) for name, array in arrays.items()}
            tensors |= {f"group.{g}.memory.{i}": part.clone() for i, part in enumerate(group.state)}
            lists = [cluster.episodes.totals.incidents, group.returns, group.lengths]
            told = np.frombuffer(json.dumps(lists).encode(), dtype=np.uint8)
            tensors[f"group.{g}.lists"] = torch.from_numpy(told.copy())
        return tensors

    @classmethod
    def resume(cls, folder: Path, team: Team | None = None) -> Trainer:
        """Go on where a run stopped.

        Raises:
            InvalidAgent: there is no checkpoint, it is broken or of another version, or of another number of
                processes.
        """
        team = team or Team()
        last = newest(folder / "last")
        told = read_config(last)
        if told["processes"] != team.size:
            raise InvalidAgent(
                f"{last}: written by {told['processes']} processes, and these are {team.size}; go on with as many"
            )
        trainer = cls(Run.parse(told["run"]), folder, team, fresh=False)
        load_into(trainer.policy, last / WEIGHTS)
        file = last / _rest_of(team.rank)
        rest = read_tensors(file)
        try:
            trainer._put_back(told, rest)
        except (KeyError, ValueError, RuntimeError) as error:
            raise InvalidAgent(f"{file}: {error}; it is of another model or version, begin anew") from None
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
        for g, (group, cluster) in enumerate(zip(self.groups, self.clusters, strict=True)):
            mine = {n.removeprefix(f"group.{g}."): v.numpy() for n, v in rest.items() if n.startswith(f"group.{g}.")}
            put_back(cluster.episodes, mine)
            group.begun[:] = mine["begun"]
            group.state = tuple(rest[f"group.{g}.memory.{i}"] for i in range(len(group.state)))
            lists = json.loads(mine["lists"].tobytes().decode())
            cluster.episodes.totals.incidents[:], group.returns[:], group.lengths[:] = lists
            group.lesson = cluster.lesson()


def _rest_of(rank: int) -> str:
    """The file of what a process needs to go on."""
    return f"rest-{rank}.safetensors"


def card_of(run: Run, decisions: int, shares: dict[str, float] | None) -> str:
    """What the README of an agent says of how it was trained."""
    words = ", ".join(f"{how} {share:.3f}" for how, share in (shares or {}).items())
    sites = ", ".join(f"{layout}{f' ({profile})' if profile else ''}" for layout, profile in run.sites)
    return (
        f"# Agent after {decisions:,} decisions\n\nObserves {run.observe}, trained on {sites}"
        f"{''.join(f', overlay {name}' for name in run.overlays)}, seed {run.seed}. "
        f"Recovered share on {run.evaluated} validation episodes a site: {words or 'not measured'}.\n"
    )


def read_curve(folder: Path) -> list[dict[str, Any]]:
    """What the updates of a run had to tell, in order; none if it has not begun."""
    file, found = folder / CURVE, {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        with contextlib.suppress(ValueError):  # a line that was cut off
            told = json.loads(line)
            found[told["update"]] = told
    return [found[number] for number in sorted(found)]


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
