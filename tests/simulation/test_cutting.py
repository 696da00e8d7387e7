"""Excerpts are cut by the declared law: gaps, kinds in proportion to their chances, whom they name."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from clusterorch import models
from clusterorch.inference.excerpts import Excerpts, line_kinds
from clusterorch.inference.marks import gap_law
from clusterorch.inference.plan import make_plan
from clusterorch.models.layout import ENTITY_KINDS
from clusterorch.simulation.cutting import FEWEST, MOST, counted, cut, draw_gaps, events_of, excerpt_protocol
from clusterorch.simulation.plan import active
from clusterorch.simulation.trace import simulate

AT = 3


@cache
def world():
    return models.load("reference", layout="2x2", overlays=["incident"])


@cache
def episode(fault):
    nothing = np.zeros_like(world().network.onset)
    return simulate(world(), 40, record=False, seed=4, fault=fault, at=AT, onset=nothing, do=("phase=step",))


def everything():
    layout = world().layout
    return {kind: np.ones(layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}


def test_gaps_follow_the_law_of_the_filter():
    protocol = excerpt_protocol(world())
    drawn = [draw_gaps(protocol, seed) for seed in range(3000)]
    assert {len(gaps) for gaps in drawn} == set(range(FEWEST - 1, MOST))
    law, found = gap_law(protocol), Counter(gap for gaps in drawn for gap in gaps)
    total = sum(found.values())
    assert max(found) < len(law)
    for gap in range(12):
        expected = law[gap] * total
        assert abs(found[gap] - expected) < 4.9 * np.sqrt(expected), gap
    tail = law[12:].sum() * total
    assert abs(sum(n for gap, n in found.items() if gap >= 12) - tail) < 4.9 * np.sqrt(tail)


def test_a_healthy_job_pastes_each_kind_in_proportion_to_its_chance():
    trace = episode(None)
    first = [cut(world(), trace, seed, 10, [])[0] for seed in range(4000)]
    network = world().hidden_network
    excerpts = Excerpts(network, make_plan(network), everything(), 0.0)
    phase = int(trace.published["phase"][10])
    chances = excerpts._tables(phase)[0]
    kinds = [(kind.signal, kind.value) for kind in line_kinds(network)]
    found = Counter((line.signal, line.value) for line in first)
    assert set(found) <= set(kinds)
    for kind, p in zip(kinds, chances / chances.sum(), strict=True):
        assert abs(found[kind] - 4000 * p) < 4.9 * np.sqrt(4000 * p) + 1.0, kind


def test_a_fault_names_its_own_place_first_of_all():
    trace = episode("gpu_xid.engine_fault/2")
    signal, crash = world().network.signal_index("xid"), [m.name for m in world().spec.mechanism].index("rank_crashed")
    shown = int(np.argmax(active(trace.truth["bits"], crash)))
    lines = [line for seed in range(400) for line in cut(world(), trace, seed, shown, [0] * 5) if line.signal == signal]
    named = Counter(line.entity for line in lines)
    assert len(lines) > 40
    assert named[2] > 0.9 * len(lines)


def test_no_kind_comes_twice_unless_it_informs():
    trace = episode("gpu_xid.lost_from_bus/2")
    spec = world().spec
    for seed in range(60):
        kinds = [(line.signal, line.value) for line in cut(world(), trace, seed, AT, [1] * 11)]
        twice = {kind for kind, count in Counter(kinds).items() if count > 1}
        assert all(spec.signal[s].verbosity == "info" for s, _ in twice), twice


def test_an_excerpt_ends_with_the_episode_and_its_events_keep_its_gaps():
    trace = episode(None)
    pasted = cut(world(), trace, 5, 36, [0, 2, 1, 30, 1])
    assert [line.slice for line in pasted] == [36, 36, 38, 39]
    dt = world().spec.model.slice_seconds
    events = events_of(world(), pasted)
    assert [(after.time - before.time) / dt for before, after in pairwise(events)] == [0, 2, 1]
    assert all(event.time % 1.0 == 0.0 for event in events)
    assert [event.kind for event in events] == [world().spec.signal[line.signal].name for line in pasted]


def test_counters_of_links_and_lines_of_the_job_stand_in_the_values_and_nothing_else_does():
    trace, network = episode(None), world().network
    pasted = [line for seed in range(30) for line in cut(world(), trace, seed, 10, [0] * 8)]
    values = counted(world(), pasted, trace.slices)
    signals = world().spec.signal
    links = {
        line
        for line in pasted
        if (s := signals[line.signal]).entity == "job" or (s.entity == "link" and s.stream == "network")
    }
    assert {signals[line.signal].entity for line in links} == {"job", "link"}
    assert np.isfinite(values).sum() == len({(line.slice, line.signal, line.entity) for line in links})
    assert all(np.isfinite(values[line.slice, network.signal_offset[line.signal] + line.entity]) for line in links)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_cuts_the_same(seed):
    trace = episode(None)
    assert cut(world(), trace, seed, 2, [1, 1, 1]) == cut(world(), trace, seed, 2, [1, 1, 1])
