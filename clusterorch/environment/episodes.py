"""Here lives the play of a batch of episodes, decision by decision, for the single and the vector environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from clusterorch.environment.believer import Believer
from clusterorch.environment.books import HEADS, USEFUL
from clusterorch.environment.outlook import look, look_at_truth, new_outlook, places_of
from clusterorch.environment.published import NODE_COLUMNS, job_columns, publish
from clusterorch.environment.window import Names, columns_of, empty_rows, gather, new_window, write_rows
from clusterorch.environment.world import DOMAIN, World
from clusterorch.errors import InvalidIntervention
from clusterorch.models import Model
from clusterorch.models.spec import PHASES

OBSERVE = ("raw", "belief", "both", "truth")
_STEP = PHASES.index("step")


@dataclass(frozen=True)
class Settings:
    """How an episode is played.  Slices are those of the model, 15 s in the reference model."""

    observe: str = "both"
    decision: int = 4  # slices between two decisions
    hours: float = 4.0  # length of an episode
    rows: int = 16  # decisions that the window shows
    most_forward: int = 40  # slices that a start is fast-forwarded, at most
    blackouts: bool = True
    privileged: bool = False  # whether every step tells the truth in its info

    def __post_init__(self) -> None:
        if self.observe not in OBSERVE:
            raise InvalidIntervention(f"observe={self.observe!r}: give one of {', '.join(OBSERVE)}")
        bounds = {"decision": (1, 240), "rows": (1, 512), "most_forward": (1, 960)}
        for name, (low, high) in bounds.items():
            if not isinstance(value := getattr(self, name), int | np.integer) or not low <= value <= high:
                raise InvalidIntervention(f"{name}={value!r}: give a whole number in {low}..{high}")
        if not 0.0 < self.hours <= 240.0:
            raise InvalidIntervention(f"hours={self.hours!r}: give more than 0 and at most 240")


class Decision(NamedTuple):
    """What a decision brought.  [B]"""

    reward: np.ndarray
    slices: np.ndarray
    ended: np.ndarray  # the time of the episode is up
    illegal: np.ndarray  # the move was not legal, and nothing was done


@dataclass
class Totals:
    """Sums of the running episodes, and what their incidents were."""

    heads: np.ndarray  # [B, 6]
    discarded: np.ndarray
    false_moves: np.ndarray
    moves: np.ndarray
    incidents: list[list[dict[str, Any]]] = field(default_factory=list)


class Episodes:
    """A batch of episodes under one policy.

    Args:
        model: on its layout, with the episode prior.
        batch: number of instances.
        settings: how they are played.
        seed, domain, first_instance: of the noise.
    """

    def __init__(
        self, model: Model, batch: int = 1, settings: Settings | None = None, *, seed: int = 0,
        domain: int | str = DOMAIN, first_instance: int = 0,
    ) -> None:  # fmt: skip
        self.settings = settings or Settings()
        self.model, self._noise = model, (domain, first_instance)
        self.world = World(
            model, batch, seed=seed, domain=domain, first_instance=first_instance, blackouts=self.settings.blackouts
        )
        network, moves = self.world.network, self.world.moves
        dt = network.spec.model.slice_seconds
        self.horizon = max(1, round(self.settings.hours * 3600.0 / dt))
        self.every = int(self.world.simulator.plan.duration[_STEP])
        self.names = self._names()
        self._columns, self._signals = columns_of(network)
        self.window = new_window(network, self.names, batch, self.settings.rows)
        self.believer = Believer(network, moves, self.world.prior, batch) if self.infers else None
        self._places, self.outlook = places_of(network), new_outlook(network, moves.count, batch)
        self._of_node = np.zeros((batch, network.layout.nodes, len(NODE_COLUMNS)), dtype=np.float32)
        self._of_job = np.zeros((batch, len(job_columns(network.layout.copies))), dtype=np.float32)
        self.moved = np.zeros(batch, dtype=np.int64)  # move of the newest decision
        self.totals = Totals(
            np.zeros((batch, len(HEADS))), np.zeros(batch), np.zeros(batch), np.zeros(batch, dtype=np.int64),
            [[] for _ in range(batch)],
        )  # fmt: skip
        self.worth = np.ones(len(network.blocks))  # of the end of each variant, for `outlook.gains`
        self.listeners: list[Any] = []  # told of every slice: `listen(episodes, running)`
        self.recorders: list[Any] = []  # told of every beginning and decision: `begun`, `decided`

    @property
    def believes(self) -> bool:
        """Whether a belief is shown, be it the filter's or that of one who knows."""
        return self.settings.observe != "raw"

    @property
    def infers(self) -> bool:
        """Whether the filter runs."""
        return self.settings.observe in ("belief", "both")

    @property
    def shows_telemetry(self) -> bool:
        """Whether what the streams tell is shown; what is published always is."""
        return self.settings.observe in ("raw", "both")

    @property
    def batch(self) -> int:
        """Number of instances."""
        return self.world.batch

    def _names(self) -> Names:
        signals = columns_of(self.world.network)[1]
        copies = self.world.network.layout.copies
        node = [*signals.node, *(f"place.{name}" for name in NODE_COLUMNS)]
        return signals._replace(node=node, job=[*signals.job, *job_columns(copies)])

    def reseed(self, seed: int) -> None:
        """From now on the episodes of another root seed."""
        self.world.simulator.reseed(seed)

    def begin(self, rows: np.ndarray, episodes: np.ndarray) -> None:
        """Begin episodes of some instances.  [n] rows, [n] numbers"""
        self.world.begin(rows, episodes)
        empty_rows(self.window, rows)
        if self.believer is not None:
            self.believer.begin(rows)
        self.moved[rows] = 0
        for column in (self.totals.heads, self.totals.discarded, self.totals.false_moves, self.totals.moves):
            column[rows] = 0
        for b in rows:
            self.totals.incidents[b] = []
        self._show(np.asarray(rows), self.world.books.time.copy())
        for recorder in self.recorders:
            recorder.begun(self, rows)

    def decide(self, moves: np.ndarray, deciding: np.ndarray) -> Decision:
        """Play until the next decision of the instances that decide.  [B] moves by number, [B] bool"""
        world, books = self.world, self.world.books
        legal = world.masks()[np.arange(self.batch), moves] == 1
        illegal = deciding & ~legal
        chosen = np.where(legal & deciding, moves, 0)
        since, played = books.time.copy(), np.zeros(self.batch, dtype=np.int64)
        reward, running = np.zeros(self.batch), deciding & (books.time < self.horizon)
        self.moved[deciding] = chosen[deciding]
        self.totals.moves[running] += chosen[running] != 0
        nothing = np.zeros_like(chosen)
        while running.any():
            world.step(np.where(played == 0, chosen, nothing), running)
            played += running
            self._take_in(running)
            gained = books.heads[:, USEFUL] - books.discarded - world.rules.false_intervention * books.false_moves
            reward += np.where(running, gained, 0.0)
            on_its_way = world.starting() & (played < self.settings.most_forward) & (books.lost == 0)
            running = deciding & (books.time < self.horizon) & ((played < self.settings.decision) | on_its_way)
        self._show(np.flatnonzero(deciding), since)
        decision = Decision(reward, played, deciding & (books.time >= self.horizon), illegal)
        for recorder in self.recorders:
            recorder.decided(self, moves, deciding, decision)
        return decision

    def _take_in(self, running: np.ndarray) -> None:
        world, books, state = self.world, self.world.books, self.world.state
        gather(self._columns, self.window, np.where(running, books.time - 1, -1), state.values, state.arrival)
        if self.believer is not None:
            self.believer.record(
                running, state.values, state.arrival, state.phase, state.job_class, state.age_before, state.save_ends,
                world.taken, state.proneness, state.share,
            )  # fmt: skip
        totals = self.totals
        totals.heads += np.where(running[:, None], books.heads, 0.0)
        totals.discarded += np.where(running, books.discarded, 0.0)
        totals.false_moves += np.where(running, books.false_moves, 0)
        for b in np.flatnonzero(running & ((books.recovered >= 0) | (books.incident == books.time - 1))):
            self._note(int(b))
        for listener in self.listeners:
            listener.listen(self, running)

    def _note(self, b: int) -> None:
        """Keep when failures began and how long they lasted."""
        books, state, known = self.world.books, self.world.state, self.totals.incidents[b]
        if books.recovered[b] >= 0 and known and known[-1]["recovered"] is None:
            known[-1]["recovered"] = int(books.recovered[b])
        if books.incident[b] == books.time[b] - 1:
            variant = self.world.network.blocks[state.variant[b]].variant
            known.append(
                {
                    "variant": variant.name, "mode": variant.mode, "site_kind": variant.spec.site,
                    "site": int(state.site[b]), "slice": int(books.incident[b]), "recovered": None,
                }
            )  # fmt: skip

    def tell(self, rows: np.ndarray, since: np.ndarray) -> None:
        """Close a row of the window with what is published now.  [n] rows, [B] slices played at the row before"""
        world = self.world
        publish(
            world.rules, world.moves.table, world.state, world.books, self.moved, self.every, self.horizon,
            self._of_node, self._of_job,
        )  # fmt: skip
        write_rows(self.window, world.books.time, since, rows, self._of_node, self._of_job)

    def _show(self, rows: np.ndarray, since: np.ndarray) -> None:
        """Close a row of the window, and bring the belief up to date."""
        world = self.world
        self.tell(rows, since)
        if self.believer is not None:
            belief = self.believer.believe(rows)
            look(self.believer.plan, world.moves.table, self._places, belief, rows, self.worth, self.outlook)
        elif self.believes:
            look_at_truth(
                world.moves.table, self._places, world.site_start, world.state.variant, world.state.site,
                world.state.poisoned, rows, self.worth, self.outlook,
            )  # fmt: skip

    def incident(self, b: int) -> dict[str, Any]:
        """What the episode of an instance was worth so far, in slices of healthy training; and its incidents."""
        totals = self.totals
        told: dict[str, Any] = {name: float(totals.heads[b, i]) for i, name in enumerate(HEADS)}
        told |= {
            "rolled_back": float(totals.discarded[b]), "false_moves": int(totals.false_moves[b]),
            "moves": int(totals.moves[b]), "slices": int(self.world.books.time[b]),
            "kept": float(self.world.books.good[b]), "lost": bool(self.world.books.lost[b]),
            "incidents": [dict(one) for one in totals.incidents[b]],
        }  # fmt: skip
        ended = [one["recovered"] for one in told["incidents"] if one["recovered"] is not None]
        told["recovery_latency"] = float(np.mean(ended)) if ended else float("nan")
        return told
