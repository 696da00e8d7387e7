"""Here live the moves: every declared action with every target, numbered, and which of them are legal.

Whether a move is legal follows from published things alone: the mask tells nothing of a fault.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit

from clusterorch.causal.slices import DOWN
from clusterorch.environment.books import IN_JOB, NO_DETOUR, TREE, Books
from clusterorch.environment.rules import Rules
from clusterorch.errors import InvalidIntervention, InvalidModel
from clusterorch.inference.actions import action_kernel
from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES, Action
from clusterorch.simulation.state import State

NOTHING, ISOLATE, SWAP, ROLL_BACK, USE_TREE, USE_RING, AROUND, RESTART, REQUEUE = range(9)
_DOES = {"isolate": ISOLATE, "swap": SWAP, "tree": USE_TREE, "ring": USE_RING, "around": AROUND, "requeue": REQUEUE}
_STEP = PHASES.index("step")


class MoveTable(NamedTuple):
    """M moves as the kernels read them; the last one is the scheduler's own."""

    action: np.ndarray  # [M] number of the declared action, -1 for the move that does nothing
    target: np.ndarray  # [M] node, copy, rail or leaf; 0 without one
    at_node: np.ndarray  # [M] whether the target is a node
    does: np.ndarray  # [M] NOTHING, ISOLATE, ...
    restarts: np.ndarray  # [M]
    discards: np.ndarray  # [M] copies
    clears: np.ndarray  # [M, sum of sites] probability that a fault there leaves
    brought: np.ndarray  # [M, V]
    brought_to: np.ndarray  # [M, sum of sites]


class Moves:
    """The moves of a network, by number; 0 waits."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.names: list[tuple[str, int]] = []
        rows: list[tuple[int, int, int]] = []
        own: list[tuple[tuple[str, int], tuple[int, int, int]]] = []
        for number, action in enumerate(network.spec.action):
            does, targets = _does(action), network.layout.targets(action.target)
            if action.target in ("rail", "leaf") and targets < 2:
                continue  # a detour needs another way
            for target in range(targets):
                name, row = (action.name, target), (-1 if does == NOTHING else number, target, does)
                if does == REQUEUE:
                    own.append((name, row))
                else:
                    self.names.append(name)
                    rows.append(row)
        if not rows or rows[0][2] != NOTHING or not own:
            raise InvalidModel(
                network.spec.model.name, "action", "the first one must do nothing, and one must be the scheduler's",
                'declare an action without effects first, and one with does = "requeue"',
            )  # fmt: skip
        self.count = self.requeue = len(rows)
        self.names.append(own[0][0])
        self._rows = [*rows, own[0][1]]

    @cached_property
    def table(self) -> MoveTable:
        """What the kernels read."""
        kernels = [action_kernel(self.network, *name) for name in self.names]
        rows, kinds = np.array(self._rows, dtype=np.int64), {a.name: a.target for a in self.network.spec.action}
        at_node = [kinds[name] == "node" for name, _ in self.names]
        return MoveTable(
            rows[:, 0].copy(), rows[:, 1].copy(), np.array(at_node, dtype=np.int64), rows[:, 2].copy(),
            np.array([k.restarts for k in kernels], dtype=np.int64),
            np.array([k.discards for k in kernels], dtype=np.int64),
            np.stack([k.clears for k in kernels]), np.stack([k.brought for k in kernels]),
            np.stack([k.brought_to for k in kernels]),
        )  # fmt: skip

    def number(self, name: str, target: int = 0) -> int:
        """Number of a move.

        Raises:
            InvalidIntervention: no such action or target on this layout.
        """
        try:
            return self.names.index((name, target))
        except ValueError:
            known = sorted({n for n, _ in self.names[: self.count]})
            at = [t for n, t in self.names[: self.count] if n == name]
            way = f"give a target in 0..{max(at)}" if at else f"give one of {', '.join(known)}"
            raise InvalidIntervention(f"no move {name}:{target} on layout {self.network.layout}: {way}") from None

    def parse(self, text: str) -> int:
        """Number of a move written `action` or `action:target`.

        Raises:
            InvalidIntervention: it has another form, or there is no such move.
        """
        name, _, target = text.strip().partition(":")
        if target and not target.isdigit():
            raise InvalidIntervention(f"move {text!r}: write ACTION or ACTION:TARGET, the target a number")
        return self.number(name, int(target or 0))

    def label(self, number: int) -> str:
        """A move in words, as `parse` reads it."""
        name, target = self.names[number]
        kind = next(a.target for a in self.network.spec.action if a.name == name)
        return name if kind in ("none", "job") else f"{name}:{target}"


def _does(action: Action) -> int:
    if action.does:
        return _DOES[action.does]
    return ROLL_BACK if action.discards else RESTART if action.restarts else NOTHING


@njit(cache=True, error_model="numpy")
def fill_masks(table: MoveTable, rules: Rules, state: State, books: Books, masks: np.ndarray) -> None:
    """[B, moves] 1 where a move is legal.  Waiting always is."""
    for b in range(masks.shape[0]):
        working = 0
        for n in range(books.place.shape[1]):
            working += 1 if books.place[b, n] == IN_JOB else 0
        dwelt = books.time[b] - books.turned[b] >= rules.dwell
        for m in range(masks.shape[1]):
            does, target, legal = table.does[m], table.target[m], False
            if does == NOTHING:
                legal = True
            elif books.lost[b]:
                legal = False
            elif does == ISOLATE:
                legal = books.place[b, target] == IN_JOB and working > rules.least_nodes
            elif does == SWAP:
                legal = books.spares[b] + books.frail_spares[b] > 0
            elif does == ROLL_BACK:
                legal = state.held[b] > target
            elif does == RESTART:
                legal = books.place[b, target] == IN_JOB
            else:
                settled = state.phase[b] == _STEP and state.job_class[b] != DOWN and dwelt
                if does == USE_TREE:
                    legal = settled and books.detour[b] == NO_DETOUR
                elif does == USE_RING:
                    legal = settled and books.detour[b] == TREE
                else:
                    legal = settled and books.detour[b] <= TREE
            masks[b, m] = 1 if legal else 0
