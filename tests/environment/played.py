"""Small episodes that several tests look at; played once each."""

from functools import cache

import numpy as np

from clusterorch.environment.making import episodes_of
from clusterorch.environment.recorder import TraceRecorder
from clusterorch.environment.replaying import play

SMALL = {"layout": "2x2", "hours": 1.0, "seed": 3}  # a failure enters in slice 168


@cache
def trace_of(*do, **arguments):
    """The trace of an episode under moves that are set."""
    return play(episodes_of(1, **(SMALL | arguments)), 0, do)


def recorded(moves, *, stated=None, **arguments):
    """Episodes, their recorder and the raw arrays of every slice, under moves by decision; it waits elsewhere."""
    episodes = episodes_of(1, **(SMALL | arguments))
    recorder, heard = TraceRecorder(episodes), Heard()
    episodes.listeners.append(heard)
    episodes.begin(np.array([0]), np.array([0]))
    decision = 0
    while episodes.world.books.time[0] < episodes.horizon:
        if stated and decision in stated:
            recorder.state_diagnosis(*stated[decision])
        episodes.decide(np.array([episodes.world.moves.parse(moves.get(decision, "wait"))]), np.array([True]))
        decision += 1
    return episodes, recorder, heard


class Heard:
    """What every slice held."""

    def __init__(self):
        self.values, self.arrival = [], []

    def listen(self, episodes, running):
        self.values.append(episodes.world.state.values[0].copy())
        self.arrival.append(episodes.world.state.arrival[0].copy())
