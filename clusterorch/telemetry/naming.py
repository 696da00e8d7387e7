"""Here live the names that a simulated cluster gives its things, and the fields of its templates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from clusterorch.models.layout import Layout
from clusterorch.telemetry.timestamps import time_fields

START = 794_390_400.0  # the episode's zero on the wall clock: 2025-03-04 08:00:00 after 2000-01-01
_STEP_SAMPLES, _STEPS = 2048, 200_000
_FIRST_STEP = 8800
_FIRST_COPY, _BETWEEN_COPIES, _FEWEST_LISTED = 8500, 500, 3
_COPY_BYTES = 4_831_838_208
_BUSES = 29  # GPUs of one PCI domain, eight buses apart


@dataclass(frozen=True)
class Naming:
    """Hosts, devices and processes of a layout, and the running numbers of a training job.

    limits: seconds of each timer, by name.
    """

    layout: Layout
    limits: dict[str, float] = field(default_factory=dict)

    def host(self, node: int) -> str:
        """Name of a node.

        >>> Naming(Layout(2, 8)).host(1)
        'node-0001'
        """
        return f"node-{node:04d}"

    def address(self, place: int) -> str:
        """PCI address of the GPU at a place of its node."""
        domain, bus = divmod(place, _BUSES)
        return f"{domain:04x}:{0x18 + 8 * bus:02x}:00"

    def card(self, rail: int) -> str:
        """PCI address of the network device on a rail: under the same switch as a GPU."""
        domain, bus = divmod(rail, _BUSES)
        return f"{domain:04x}:{0x1B + 8 * bus:02x}:00"

    def device(self, rail: int) -> str:
        """Name of the network device on a rail."""
        return f"mlx5_{rail}"

    def checkpoint(self, copy: int) -> str:
        """Name of a copy of the job's state.

        >>> Naming(Layout(2, 8)).checkpoint(1)
        'step-9000'
        """
        return f"step-{_FIRST_COPY + _BETWEEN_COPIES * copy}"

    def storage(self, number: int) -> str:
        """Name of a file system."""
        return "fsx" if number == 0 else f"fsx{number}"

    def listing(self, cut: int) -> str:
        """The copies as they are listed, one of them cut short."""
        copies = range(max(_FEWEST_LISTED, self.layout.count("checkpoint")))
        sizes = [_COPY_BYTES // 4 if copy == cut else _COPY_BYTES for copy in copies]
        return "\n".join(
            f"-rw-r--r-- 1 root root {size} Mar  4 0{1 + copy % 8}:11 {self.checkpoint(copy)}.ckpt"
            for copy, size in zip(copies, sizes, strict=True)
        )

    def node_of(self, kind: str, entity: int) -> int:
        """Where an entity sits; what belongs to no node speaks from the first."""
        return max(0, int(self.layout.node_of(kind)[entity]))

    def fields(self, kind: str, entity: int, time: float, step: int) -> dict[str, Any]:
        """Everything a template may ask for, about one entity at a time of the episode."""
        node = self.node_of(kind, entity)
        place = entity % self.layout.gpus if kind in ("gpu", "rank") else 0
        rail = entity % self.layout.rails if kind == "link" else place % self.layout.rails
        rank = node * self.layout.gpus + place
        ranks, other = self.layout.count("rank"), (node + 1) % self.layout.nodes
        number = _FIRST_STEP + step
        limit = max(self.limits.values(), default=600.0)
        return time_fields(START + time) | {
            "host": self.host(node), "peer": self.host(other), "rank": rank, "local_rank": place, "ranks": ranks,
            "other_rank": (rank + 1) % ranks, "pid": 41_000 + 10 * place + 1, "tid": 41_500 + 10 * place + 7,
            "pci": self.card(rail) if kind == "link" else self.address(place),
            "device": self.device(rail), "device_index": rail,
            "bus_id": f"{0x18 + 8 * (place % _BUSES):x}000", "step": number, "steps": _STEPS,
            "samples": _STEP_SAMPLES * number,
            "loss": 2.0 + 20.0 / number, "grad_norm": 0.25, "scale": 4096.0, "scale_before": 8192.0, "value": 0,
            "skipped": 0, "nans": 0, "sequence": 12 * number, "elements": 1 << 20, "enqueued": 12 * number + 3,
            "completed": 12 * number, "limit_ms": int(1000 * limit), "ran_ms": int(1000 * limit) + 42,
            "path": "/ckpt/run7", "size": 1 << 32, "minutes": round(time / 60.0, 2), "seconds": 5.0, "ms": 5000.0,
            "microseconds": 23_011, "bandwidth": 350.0, "algorithm_bandwidth": 186.7, "pieces": "",
            "event": "port error", "error": "unknown error", "node": self.host(node), "epoch": number / 10_000.0,
            "checkpoint": self.checkpoint(entity if kind == "checkpoint" else 0),
            "storage": self.storage(entity if kind == "storage" else 0), "rate": 8000.0,
            "copies": self.listing(entity if kind == "checkpoint" else -1), "group": number,
        }  # fmt: skip
