"""Here lives what one sees of a training run: a line that moves, and TensorBoard's events under CleanRL's names."""

from __future__ import annotations

import contextlib
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from clusterorch.learning.training import Told, Trainer

_LOSSES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clipfrac", "explained_variance", "imitation", "regret")


class Watcher:
    """Shows and logs the updates of a trainer, inside a `with`."""

    def __init__(self, trainer: Trainer, console: Console) -> None:
        self.trainer, self.console = trainer, console
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=20), TimeRemainingColumn(), console=console
        )
        self._task = self._progress.add_task("starting", total=trainer.updates, completed=trainer.update)
        self._events: Any = None
        self._share: float | None = None

    def __enter__(self) -> Watcher:
        """Start showing."""
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(self.trainer.folder / "events"), purge_step=self.trainer.decisions)
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop showing, and close the events."""
        self._progress.stop()
        if self._events is not None:
            self._events.close()

    def tell(self, told: Told) -> None:
        """One update."""
        if told.shares is not None:
            self._share = told.shares["argmax"]
            words = ", ".join(f"{how} {share:.3f}" for how, share in told.shares.items())
            self.console.print(f"{told.decisions:>10,} decisions  recovered share {words}")
        share = "" if self._share is None else f" share {self._share:.2f}"
        returns = "" if told.returns is None else f" return {told.returns:.0f}"
        words = f"{told.decisions:,} {told.per_second:.0f}/s{returns}{share} KL {told.losses.approx_kl:.4f}"
        self._progress.update(self._task, completed=told.update, description=words)
        if self._events is None:
            return
        at = told.decisions
        for name in _LOSSES:
            self._events.add_scalar(f"losses/{name}", getattr(told.losses, name), at)
        self._events.add_scalar("charts/SPS", told.per_second, at)
        self._events.add_scalar("charts/learning_rate", self.trainer.optimiser.param_groups[0]["lr"], at)
        if told.returns is not None:
            self._events.add_scalar("charts/episodic_return", told.returns, at)
            self._events.add_scalar("charts/episodic_length", told.length, at)
        for how, share_now in (told.shares or {}).items():
            self._events.add_scalar(f"charts/recovered_share_{how}", share_now, at)
