"""Here lives the command that trains an agent; torch is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusterorch.errors import ClusterorchError, OutputExists


@dataclass(kw_only=True)
class Train:
    """Train an agent in the environment; it goes on where it stopped with --resume."""

    out: Path
    """Folder for checkpoints (`last`), the best agent (`best`) and TensorBoard's events."""
    observe: Literal["raw", "belief", "both"] = "belief"
    """What the agent sees."""
    layout: tuple[str, ...] = ("4x8",)
    """Clusters to train on, NODESxGPUS."""
    profile: str | None = None
    """Site profile."""
    steps: int = 1_000_000
    """Decisions in all."""
    seed: int = 0
    """Of weights, noise and draws."""
    instances: int = 64
    """Played at once, on each layout."""
    hours: float = 4.0
    """Of an episode."""
    memory: Literal["attention", "recurrent", "recent"] = "attention"
    """How the agent remembers."""
    imitation: float = 1.0
    """Weight of the oracle's moves at first; 0 for none."""
    evaluate_every: int = 40
    """Updates between two evaluations and checkpoints."""
    evaluated: int = 64
    """Validation episodes of an evaluation, on each layout."""
    resume: bool = False
    """Go on where the run in the folder stopped."""
    threads: int = 1
    """Of torch; the weights are the same to the bit for the same number."""

    def run(self) -> None:
        """Train, and print a line an update."""
        try:
            from clusterorch.learning.ppo import Schedule
            from clusterorch.learning.training import Run, Trainer, use_threads
            from clusterorch.learning.watching import Watcher
        except ModuleNotFoundError as error:
            raise ClusterorchError(f"{error.name} is not installed: pip install 'clusterorch[train]'") from None
        from clusterorch.reports.wording import terminal

        use_threads(self.threads)
        if self.resume:
            trainer = Trainer.resume(self.out)
        else:
            if (self.out / "last").exists():
                raise OutputExists(f"{self.out} holds a run already: give another folder, or --resume")
            run = Run(
                observe=self.observe, layouts=tuple(self.layout), profile=self.profile, steps=self.steps,
                seed=self.seed, instances=self.instances, hours=self.hours, memory=self.memory,
                evaluate_every=self.evaluate_every, evaluated=self.evaluated,
                schedule=Schedule(imitation=self.imitation),
            )  # fmt: skip
            trainer = Trainer(run, self.out)
        with Watcher(trainer, terminal()) as watcher:
            trainer.go(watcher.tell)
