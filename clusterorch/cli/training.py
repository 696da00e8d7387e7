"""Here lives the command that trains an agent; torch is imported when it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clusterorch.errors import ClusterorchError, InvalidAgent, OutputExists

if TYPE_CHECKING:
    from clusterorch.learning.training import Run


@dataclass(kw_only=True)
class Train:
    """Train an agent in the environment; it goes on where it stopped with --resume.

    Processes that torchrun starts share the work: torchrun --standalone --nproc-per-node=2 -m clusterorch train ...
    """

    out: Path
    """Folder for checkpoints (`last`), agents (`best` in validation episodes, `final`) and TensorBoard's events."""
    config: Path | None = None
    """Take the run from this file, `config.json` of an agent or a run alone; options that are given count more."""
    observe: Literal["raw", "belief", "both", "truth"] | None = None
    """What the agent sees; belief if not given."""
    layout: tuple[str, ...] = ()
    """Clusters to train on, NODESxGPUS; 4x8 if not given."""
    profile: tuple[str, ...] = ()
    """Site profiles, each on every layout; own, the model's own mix of failures, if not given."""
    overlay: tuple[str, ...] = ()
    """Overlays of the model in training alone: drill makes failures frequent, and rare modes as frequent as others."""
    steps: int | None = None
    """Decisions in all; 1,000,000 if not given."""
    seed: int | None = None
    """Of weights, noise and draws; 0 if not given."""
    instances: int | None = None
    """Played at once, at each site; 64 if not given."""
    hours: float | None = None
    """Of an episode; 4 if not given."""
    memory: Literal["attention", "recurrent", "recent"] | None = None
    """How the agent remembers; attention if not given."""
    prior: float | None = None
    """Weight of the belief's own word on every move, an arm of its own; 0 if not given."""
    begin: str | None = None
    """Folder of an agent whose weights the run begins with; random ones if not given."""
    evaluate_every: int | None = None
    """Updates between two evaluations; 40 if not given."""
    evaluated: int | None = None
    """Validation episodes of an evaluation, at each site; 64 if not given."""
    resume: bool = False
    """Go on where the run in the folder stopped."""
    threads: int = 1
    """Of torch; the weights are the same to the bit for the same number."""

    def run(self) -> None:
        """Train, and print a line an update."""
        try:
            from clusterorch.learning.team import Team
            from clusterorch.learning.training import Trainer, use_threads
            from clusterorch.learning.watching import Watcher
        except ModuleNotFoundError as error:
            raise ClusterorchError(f"{error.name} is not installed: pip install 'clusterorch[train]'") from None
        from clusterorch.reports.wording import terminal

        use_threads(self.threads)
        given = self._given()
        if self.resume and (given or self.config):
            raise InvalidAgent("--resume goes on with the run as it was: give only --out and --threads with it")
        team = Team.gather()
        try:
            if self.resume:
                trainer = Trainer.resume(self.out, team)
            else:
                if (self.out / "last").exists():
                    raise OutputExists(f"{self.out} holds a run already: give another folder, or --resume")
                trainer = Trainer(self._run(given), self.out, team)
            console = terminal()
            if team.leads:
                with Watcher(trainer, console) as watcher:
                    trainer.go(watcher.tell)
                if trainer.stopped:
                    console.print(f"stopped after update {trainer.update} of {trainer.updates}; go on with --resume")
            else:
                trainer.go(lambda told: None)
        finally:
            team.leave()

    def _given(self) -> dict[str, Any]:
        """The options that say what the run is, those that were given."""
        names = (
            "observe",
            "steps",
            "seed",
            "instances",
            "hours",
            "memory",
            "prior",
            "begin",
            "evaluate_every",
            "evaluated",
        )
        told = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        many = {"layouts": self.layout, "profiles": self.profile, "overlays": self.overlay}
        return told | {name: list(values) for name, values in many.items() if values}

    def _run(self, given: dict[str, Any]) -> Run:
        """The run of the file and the options.

        Raises:
            InvalidAgent: the file cannot be read, or says what a run does not have.
        """
        from clusterorch.learning.training import Run

        told: Any = {}
        if self.config is not None:
            try:
                told = json.loads(self.config.read_text(encoding="utf-8"))
            except OSError as error:
                raise InvalidAgent(f"{self.config}: {error.strerror}; give a file") from None
            except ValueError:
                raise InvalidAgent(f"{self.config}: not JSON; give config.json of an agent, or a run") from None
            if not isinstance(told, dict):
                raise InvalidAgent(f"{self.config}: not an object; give config.json of an agent, or a run")
        return Run.parse(told.get("run", told) | given)
