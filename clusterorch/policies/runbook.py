"""Here live runbooks: ordered rules on what has just arrived, as operators write them down.

A runbook is a file (`models/runbooks/*.toml`): which column of a row, or which published thing, calls for which action,
where, and what the rule takes the matter to be.  The first rule that applies and whose move is legal decides.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clusterorch.environment.moves import Moves
from clusterorch.errors import InvalidModel
from clusterorch.models.reading import models_folder
from clusterorch.policies.view import NO_NODE, Choice, View, nothing_stated


class Rule(BaseModel):
    """`[[rule]]`: a column of the node rows or of the job row, a bound, and what to do."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    column: str
    at_least: float = 0.5
    action: str
    at: Literal["node", "job", "first"] = "node"  # the node that shows it; no target; target 0
    states: str  # mode
    repeats: int = Field(default=1, ge=1)  # rows in a row that must show it


class RunbookFile(BaseModel):
    """A runbook."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    title: str
    patience: int = Field(ge=0)  # decisions after a move before the next
    rule: list[Rule]


def load_runbook(name: str) -> RunbookFile:
    """A runbook by name, or from a file.

    Raises:
        InvalidModel: there is none, or it is not of this form.
    """
    path = Path(name) if name.endswith(".toml") else models_folder() / "runbooks" / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in (models_folder() / "runbooks").glob("*.toml")))
        raise InvalidModel(str(path), "runbook", "there is none", f"give a file, or one of {known}")
    try:
        return RunbookFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise InvalidModel(str(path), "rule", str(error).splitlines()[0], "see models/runbooks for examples") from None


class Runbook:
    """Follows a runbook.

    Args:
        runbook: what to follow.

    Raises:
        InvalidModel: at the first decision, a rule names a column, an action or a mode that there is not.
    """

    needs = "raw"

    def __init__(self, runbook: RunbookFile) -> None:
        self.name, self.runbook = runbook.name, runbook
        self._rests = self._shown = np.zeros(0, dtype=np.int64)
        self._columns: list[tuple[bool, int]] = []

    def decide(self, view: View) -> Choice:
        """The first rule that applies."""
        batch = len(view.time)
        if len(self._rests) != batch or not self._columns:
            self._check(view)
            self._rests = np.zeros(batch, dtype=np.int64)
            self._shown = np.zeros((batch, len(self.runbook.rule), view.nodes.shape[1]), dtype=np.int64)
        self._rests[view.begun], self._shown[view.begun] = 0, 0
        moves = np.zeros(batch, dtype=np.int64)
        modes, nodes = nothing_stated(batch)
        for r, (rule, (of_node, column)) in enumerate(zip(self.runbook.rule, self._columns, strict=True)):
            rows = view.nodes[:, :, column] if of_node else view.job[:, column, None]
            shows = rows >= rule.at_least
            self._shown[:, r] = np.where(shows, self._shown[:, r] + 1, 0)
        for b in range(batch):
            if self._rests[b] > 0:
                self._rests[b] -= 1
                continue
            for r, rule in enumerate(self.runbook.rule):
                at = int(np.argmax(self._shown[b, r]))
                if self._shown[b, r, at] < rule.repeats:
                    continue
                move = self._move(view.moves, rule, at)
                modes[b], nodes[b] = rule.states, at if rule.at == "node" else NO_NODE
                if view.masks[b, move]:
                    moves[b], self._rests[b] = move, self.runbook.patience
                    break
        return Choice(moves, modes, nodes)

    def _move(self, moves: Moves, rule: Rule, node: int) -> int:
        return moves.number(rule.action, node if rule.at == "node" else 0)

    def _check(self, view: View) -> None:
        actions = {name for name, _ in view.moves.names}
        modes = {mode.name for mode in view.network.spec.mode}
        self._columns = []
        for rule in self.runbook.rule:
            of_node = rule.column in view.node_names
            for kind, name, known in (
                ("column", rule.column, [*view.node_names, *view.job_names]), ("action", rule.action, actions),
                ("mode", rule.states, modes),
            ):  # fmt: skip
                if name not in known:
                    raise InvalidModel(self.runbook.name, f"rule.{kind}", f"no {kind} is named {name!r}", "correct it")
            if rule.at == "node" and not of_node:
                fix = 'give at = "job" or "first"'
                raise InvalidModel(self.runbook.name, "rule.at", f"{rule.column} is not a column of nodes", fix)
            names = view.node_names if of_node else view.job_names
            self._columns.append((of_node, names.index(rule.column)))
