"""Here lives the team of processes that learn together: each plays its share of the instances, and sums are shared.

A process alone is a team of one.  What is drawn, is drawn for all instances by every process alike, so that a team
learns what one process with the same instances learns; only sums round otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor, distributed

from clusterorch.errors import InvalidAgent


class Team:
    """The processes of a run.

    Args:
        rank: of this process.
        size: number of processes.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def gather(cls) -> Team:
        """The team that torchrun started, or this process alone."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        if not distributed.is_initialized():
            distributed.init_process_group("gloo")
        return cls(distributed.get_rank(), size)

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and tells."""
        return self.rank == 0

    def share(self, instances: int) -> slice:
        """Which of the instances this process plays.

        Raises:
            InvalidAgent: they cannot be shared evenly.
        """
        if instances % self.size:
            raise InvalidAgent(f"{instances} instances for {self.size} processes: give a multiple of {self.size}")
        mine = instances // self.size
        return slice(self.rank * mine, (self.rank + 1) * mine)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the processes, in place."""
        if self.size > 1:
            distributed.all_reduce(values)
        return values

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Make every gradient the sum over the processes."""
        if self.size == 1:
            return
        held = list(parameters)
        for one in held:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        flat = self.sum(torch.cat([one.grad.flatten() for one in held if one.grad is not None]))
        at = 0
        for one in held:
            assert one.grad is not None
            one.grad.copy_(flat[at : at + one.numel()].view_as(one))
            at += one.numel()

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            distributed.barrier()

    def any(self, *, flag: bool) -> bool:
        """Whether it is so for any process."""
        return bool(self.sum(torch.tensor(float(flag))) > 0.0)

    def leave(self) -> None:
        """End the team."""
        if self.size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()
