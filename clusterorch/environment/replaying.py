"""Here lives the counterfactual: an episode played again from its own noise, as it was or under `do`.

The coupling is that of `clusterorch.simulation.channels`: every draw is a function of slice, variable and entity, so
the same variable reads the same noise whatever was done.  Moves are set, not decided: no policy is asked again.  A
recorded move that comes after a changed one is made at the first decision not before its slice, one move a decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.environment.recorder import TraceRecorder
from clusterorch.environment.tables import EpisodeTrace
from clusterorch.errors import ClusterorchError, InvalidIntervention, InvalidTrace
from clusterorch.models import Layout, Model, load
from clusterorch.simulation.interventions import Do, compile_do
from clusterorch.simulation.plan import FOREVER

MOVE = "move"  # the variable that a move is: `move=roll_back:2@16`
THEN = ("recorded", "wait")
_NOTHING = 0


class _Made(NamedTuple):
    """A move that was recorded."""

    slice: int
    move: int
    stated: tuple[str | None, int | None]


def replay(trace: EpisodeTrace, do: Sequence[str | Do] = (), *, then: str = "recorded") -> EpisodeTrace:
    """Play the episode of a trace again; without `do`, it is the same to the bit.

    Args:
        trace: of the episode.
        do: moves, `move=ACTION[:TARGET]@SLICE` or `@FROM:TO` (every decision in between), and interventions of
            `clusterorch.simulation.interventions` on any named variable.
        then: after a changed move, make the moves that were recorded later, or wait.

    Raises:
        InvalidIntervention: no such move, variable or value; a move that is not legal when it is to be made.
        InvalidTrace: the model is no longer the one of the trace.
    """
    if then not in THEN:
        raise InvalidIntervention(f"then={then!r}: give one of {', '.join(THEN)}")
    metadata = trace.metadata
    episodes = episodes_of_trace(metadata, str(trace.folder or "the trace"))
    dt, parse = trace.slice_seconds, episodes.world.moves.parse
    made = [
        _Made(round(row["time"] / dt), parse(row["move"]), (row["stated_mode"], row["stated_node"]))
        for row in trace.rows("recovery")
    ]
    earlier = [Do.parse(one) for one in metadata["do"] if not one.startswith(f"{MOVE}=")]
    played = play(
        episodes, int(metadata["episode"]), [*earlier, *do], made, until=trace.slices, then=then,
        starts=metadata["starts"],
    )  # fmt: skip
    texts = [*metadata["do"], *(text_of(Do.parse(one)) for one in do)]
    return EpisodeTrace(played.tables, played.events, played.metadata | {"do": texts})


def replay_exactly(trace: EpisodeTrace) -> EpisodeTrace:
    """Play the episode again as it was, and hold it to the trace.

    Raises:
        InvalidTrace: it comes out otherwise.
    """
    again = replay(trace)
    if not again.same_as(trace):
        raise InvalidTrace(
            str(trace.folder or "the trace"), f"an episode that version {trace.metadata['clusterorch']} played",
            "one that plays again to the bit", "record it again with this version",
        )  # fmt: skip
    return again


def play(
    episodes: Episodes, episode: int, do: Iterable[str | Do] = (), made: Sequence[_Made] = (), *,
    until: int | None = None, then: str = "recorded", starts: str | None = None,
) -> EpisodeTrace:  # fmt: skip
    """Play one episode of a batch of one under moves that are set, and record it; it waits where none is.

    Args:
        episodes: a batch of one, which is used up.
        episode: its number.
        do: as for `replay`.
        made: moves recorded before, in order of time.
        until: slices, the whole episode if not given.
        then: as for `replay`.
        starts: the episode's zero on the wall clock, as ISO 8601.

    Raises:
        InvalidIntervention: as for `replay`.
    """
    world, texts = episodes.world, [Do.parse(one) for one in do]
    world.simulator.do = compile_do(world.network, [one for one in texts if one.name != MOVE])
    script = _Script(episodes, [one for one in texts if one.name == MOVE], made, then)
    clock = {} if starts is None else {"starts": datetime.fromisoformat(starts)}
    recorder = TraceRecorder(episodes, **clock)
    episodes.begin(np.array([0]), np.array([episode]))
    until, everyone = min(episodes.horizon, until or episodes.horizon), np.array([True])
    while (now := int(world.books.time[0])) < until:
        move, stated = script.next(now)
        if stated is not None:
            recorder.state_diagnosis(*stated)
        episodes.decide(np.array([move]), everyone)
    script.check_all_made(until)
    recorder.stop()
    trace = recorder.trace()
    return EpisodeTrace(trace.tables, trace.events, trace.metadata | {"do": [text_of(one) for one in texts]})


class _Script:
    """Which move is made at each decision."""

    def __init__(self, episodes: Episodes, changes: list[Do], made: Sequence[_Made], then: str) -> None:
        self._world, self._then = episodes.world, then
        self._open = [(one, self._number(one)) for one in changes]
        self._made, self._used = deque(made), set()
        self._changed = False

    def _number(self, one: Do) -> int:
        number = self._world.moves.parse(one.value)
        if number >= self._world.moves.count:
            raise InvalidIntervention(f"move {one.value}: it is the scheduler's own")
        return number

    def next(self, now: int) -> tuple[int, tuple[str | None, int | None] | None]:
        """The move of a decision at slice `now`, and what was stated with it, as long as nothing was changed."""
        recorded = self._recorded(now)
        for i, (one, number) in enumerate(self._open):
            once = one.stop == one.start + 1
            if (once and i not in self._used and now >= one.start) or (not once and one.start <= now < one.stop):
                self._used.add(i)
                self._changed = True
                if not self._world.masks()[0, number]:
                    raise InvalidIntervention(f"move {one.value} is not legal at slice {now}: {self._legal()}")
                return number, None
        if recorded is None:
            return _NOTHING, None
        return recorded.move, None if self._changed else recorded.stated

    def _recorded(self, now: int) -> _Made | None:
        """The recorded move that is due; waiting that comes late is dropped."""
        if self._changed and self._then == "wait":
            return None
        while self._made and self._made[0].slice <= now:
            due = self._made.popleft()
            if due.slice == now or due.move != _NOTHING:
                return due
        return None

    def _legal(self) -> str:
        moves, mask = self._world.moves, self._world.masks()[0]
        return f"legal are {', '.join(moves.label(m) for m in np.flatnonzero(mask))}"

    def check_all_made(self, until: int) -> None:
        """Raise `InvalidIntervention` if a move never came to be made."""
        for i, (one, _) in enumerate(self._open):
            if i not in self._used:
                raise InvalidIntervention(f"move {one.value}@{one.start}: no decision of 0..{until - 1} falls there")


def text_of(one: Do) -> str:
    """An intervention as `Do.parse` reads it.

    >>> text_of(Do.parse("move=roll_back:2@16")), text_of(Do.parse("phase=save"))
    ('move=roll_back:2@16', 'phase=save@0:')
    """
    entity = "" if one.entity is None else f"[{one.entity}]"
    span = f"{one.start}" if one.stop == one.start + 1 else f"{one.start}:{one.stop if one.stop < FOREVER else ''}"
    return f"{one.name}{entity}={one.value}@{span}"


def model_of_trace(metadata: dict[str, Any], where: str = "the trace") -> Model:
    """The model that an episode was played with.

    Raises:
        InvalidTrace: it is not there, or no longer the same.
    """
    options = {"spares": metadata["spares"], "leaves": metadata["leaves"], **metadata["layout_options"]}
    try:
        layout = Layout.parse(metadata["layout"], **options)
        limits = tuple(sorted(metadata["limits"].items()))
        model = _loaded(metadata["model"], layout, tuple(metadata["overlays"]), limits)
    except ClusterorchError as error:
        raise InvalidTrace(where, f"no model to play with ({error})", "the trace's model", "put it back") from error
    if model.sha256 != metadata["sha256"]:
        raise InvalidTrace(
            where, f"a trace of model {metadata['sha256'][:12]}", f"one of {model.sha256[:12]}, as the files now are",
            "read it with the files that it was made with, or record it again",
        )  # fmt: skip
    return model


@lru_cache(maxsize=4)
def _loaded(name: str, layout: Layout, overlays: tuple[str, ...], limits: tuple[tuple[str, float], ...]) -> Model:
    model = load(name, layout=layout, overlays=overlays)
    return model.with_limits(dict(limits)) if limits else model


def episodes_of_trace(metadata: dict[str, Any], where: str = "the trace") -> Episodes:
    """The episodes that a trace is one of, a batch of one, ready to begin.

    Raises:
        InvalidTrace: as `model_of_trace`; or a setting is missing or unknown.
    """
    try:
        model = model_of_trace(metadata, where)
        return Episodes(
            model, 1, Settings(**metadata["settings"]), seed=metadata["seed"], domain=metadata["domain"],
            first_instance=metadata["instance"],
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise InvalidTrace(
            where, f"metadata without what it takes ({error})", "those of this version", "record it again"
        ) from error
