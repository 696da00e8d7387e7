"""Here lives the cluster a model is grounded on: how many of each thing, and what hangs from what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from clusterorch.errors import InvalidLayout

ENTITY_KINDS = (
    "gpu", "rank", "link", "node", "leaf", "rail", "communicator", "storage", "checkpoint", "job",
)  # fmt: skip
MOST_NODES, MOST_GPUS = 65_536, 64


@dataclass(frozen=True)
class Layout:
    """Nodes of GPUs on leaf switches, one rank a GPU, `rails` network links a node.

    Entity e of a per-node kind sits on node e // per_node at place e % per_node; link place = rail.
    """

    nodes: int
    gpus: int
    rails: int = 0  # 0: one link a GPU
    leaves: int = 0  # 0: one leaf for 16 nodes
    spares: int = 0
    storage: int = 1
    copies: int = 3

    def __post_init__(self) -> None:
        if not self.rails:
            object.__setattr__(self, "rails", self.gpus)
        if not self.leaves:
            object.__setattr__(self, "leaves", -(-self.nodes // 16))
        bounds = {
            "nodes": (1, MOST_NODES), "gpus": (1, MOST_GPUS), "rails": (1, MOST_GPUS),
            "leaves": (1, self.nodes), "spares": (0, self.nodes), "storage": (1, 64), "copies": (1, 8),
        }  # fmt: skip
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise InvalidLayout(f"layout {self.nodes}x{self.gpus}: {name}={value} must lie in {low}..{high}")

    @classmethod
    def parse(cls, text: str | Layout, **options: int) -> Layout:
        """Read `"4x8"` = 4 nodes of 8 GPUs; options are the other fields.

        Raises:
            InvalidLayout: not of that form, or a number out of range.

        >>> Layout.parse("4x8").count("gpu")
        32
        """
        if isinstance(text, Layout):
            return text
        match = re.fullmatch(r"([0-9]{1,7})x([0-9]{1,7})", text)
        if not match:
            raise InvalidLayout(f"layout {text!r}: write it as NODESxGPUS, for example 4x8")
        return cls(int(match[1]), int(match[2]), **options)

    def count(self, kind: str) -> int:
        """How many entities (equally, sites) of a kind there are."""
        return {
            "gpu": self.nodes * self.gpus, "rank": self.nodes * self.gpus, "link": self.nodes * self.rails,
            "node": self.nodes, "leaf": self.leaves, "rail": self.rails, "communicator": 1,
            "storage": self.storage, "checkpoint": 1, "job": 1,
        }[kind]  # fmt: skip

    @cached_property
    def leaf_of_node(self) -> np.ndarray:
        """[nodes] leaf of each node, filled in order."""
        return (np.arange(self.nodes) * self.leaves) // self.nodes

    def node_of(self, kind: str) -> np.ndarray:
        """[count(kind)] node of each entity; -1 where it has none."""
        if kind in ("gpu", "rank"):
            return np.arange(self.count(kind)) // self.gpus
        if kind == "link":
            return np.arange(self.count(kind)) // self.rails
        if kind == "node":
            return np.arange(self.nodes)
        return np.full(self.count(kind), -1)

    def place_of(self, site_kind: str, target_kind: str) -> np.ndarray:
        """[count(site_kind)] the node, rail or leaf that each site is or lies on; -1 where it lies on none."""
        sites = np.arange(self.count(site_kind))
        if target_kind == "node":
            return self.node_of(site_kind)
        if target_kind == "rail" and site_kind in ("link", "rail"):
            return sites % self.rails
        if target_kind == "leaf" and (site_kind == "leaf" or self.node_of(site_kind)[0] >= 0):
            return sites if site_kind == "leaf" else self.leaf_of_node[self.node_of(site_kind)]
        return np.full(len(sites), -1)

    def targets(self, target_kind: str) -> int:
        """How many targets of a kind an action has; one if it needs none."""
        return {"node": self.nodes, "copy": self.copies, "rail": self.rails, "leaf": self.leaves}.get(target_kind, 1)

    def groups(self, kind: str, level: str) -> np.ndarray:
        """[count(kind)] the group of each entity at a level: unit, node, leaf or rail."""
        if level == "unit":
            return np.arange(self.count(kind))
        if level == "rail":
            return np.arange(self.count(kind)) % self.rails
        node = self.node_of(kind)
        return node if level == "node" else self.leaf_of_node[node]

    def group_count(self, kind: str, level: str) -> int:
        """How many groups a level has for entities of this kind."""
        return {"unit": self.count(kind), "node": self.nodes, "leaf": self.leaves, "rail": self.rails}[level]

    def relation_levels(self, site_kind: str, entity_kind: str) -> tuple[str | None, str | None]:
        """Levels whose group holds the `site` and the near `node` entities (the table of models/README.md 3)."""
        hosted, host = ("gpu", "rank", "link"), "node"
        if entity_kind == site_kind and site_kind not in ("gpu", "rank", "link"):
            return "unit", None
        if site_kind in ("gpu", "rank"):
            return {
                "gpu": ("unit", "node"), "rank": ("unit", "node"), "link": (None, "node"), host: ("unit", None),
            }.get(entity_kind, (None, None))  # fmt: skip
        if site_kind == "link":
            return {
                "link": ("unit", "node"), "gpu": (None, "node"), "rank": (None, "node"), host: ("unit", None),
            }.get(entity_kind, (None, None))  # fmt: skip
        if site_kind == "node" and entity_kind in hosted:
            return "node", None
        if site_kind == "leaf" and entity_kind in (*hosted, host):
            return "leaf", None
        if site_kind == "rail" and entity_kind == "link":
            return "rail", None
        return None, None

    def site_group(self, site_kind: str, entity_kind: str, level: str) -> np.ndarray:
        """[sites] the group, among entities of `entity_kind` at `level`, that each site points to."""
        sites = np.arange(self.count(site_kind))
        if level == "rail":
            return sites
        if level == "leaf":
            return sites if site_kind == "leaf" else self.leaf_of_node[self.node_of(site_kind)]
        if level == "node":
            return self.node_of(site_kind)
        return sites if entity_kind != "node" else self.node_of(site_kind)

    def relation(self, site_kind: str, site: int, entity_kind: str) -> np.ndarray:
        """[count(entity_kind)] 0 rest, 1 node, 2 site: how each entity stands to one site."""
        relation = np.zeros(self.count(entity_kind), dtype=np.int64)
        site_level, near_level = self.relation_levels(site_kind, entity_kind)
        for value, level in ((1, near_level), (2, site_level)):
            if level is not None:
                group = self.site_group(site_kind, entity_kind, level)[site]
                relation[self.groups(entity_kind, level) == group] = value
        return relation

    def __str__(self) -> str:
        return f"{self.nodes}x{self.gpus}"
