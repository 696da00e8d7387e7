"""The filter for logs of unknown verbosity against enumeration of states and settings together."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from itertools import product

import numpy as np
import pytest

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.coverage import CoveredFilter, info_lines, info_streams, silence
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.models.compile import Network
from clusterorch.models.layout import Layout
from clusterorch.models.spec import JOB_CLASSES
from tests.inference.worlds import Pair, as_states, assert_same, hot_network, walked_states
from tests.reference import emissions
from tests.reference.draws import Draws, State

SHARE = 0.6


@functools.cache
def network() -> Network:
    return hot_network(Layout(1, 2))


def enumerate_all(pair: Pair, slices: list) -> list[tuple[float, dict, dict]]:
    """By slice: log evidence, posterior over states, posterior over settings.  The setting is part of the state."""
    spec, layout = pair.network.spec, pair.network.layout
    streams = info_streams(pair.network)
    draws = Draws(spec, layout, pair.timers, None)
    start = State(None, frozenset(), (0,) * len(spec.edge), 0, None)
    joint = {
        (start, printed): math.prod(SHARE if on else 1 - SHARE for on in printed)
        for printed in product((True, False), repeat=len(streams))
    }
    found = []
    for now in slices:

        @functools.cache
        def log_likelihood(slot, on, job, printed, now=now):
            kind, level, site = None, emissions.MIDDLE, 0
            if slot is not None:
                kind, level, site = draws.variant[slot[:2]].site, *slot[2:]
            world = emissions.World(layout, now.phase, job, on, kind, site, level)
            total = 0.0
            for signal in spec.signal:
                values = now.values[signal.name]
                if signal.verbosity == "info" and not printed[streams.index(signal.stream)]:
                    total += 0.0 if (np.isnan(values) | (values == 0)).all() else -math.inf
                else:
                    total += emissions.log_likelihood(
                        signal, world, values, now.last[signal.name], now.gap[signal.name]
                    )
            return total

        after = defaultdict(list)
        for (before, printed), weight in joint.items():
            ways = draws.one_slice(
                before, draws.hazards(now.phase), now.phase, now.age_before, None, save_ends=now.save_ends
            )
            for p, state, sounding in ways:
                job = draws.job_class(state.active, now.phase)
                if p * weight > 0 and now.job_class in (None, job):
                    log = log_likelihood(state.slot, state.active | sounding, job, printed)
                    if log > -math.inf:
                        after[state, printed].append(math.log(p * weight) + log)
        peak = max(max(logs) for logs in after.values())
        mass = {key: math.fsum(math.exp(log - peak) for log in logs) for key, logs in after.items()}
        total = math.fsum(mass.values())
        joint = {key: m / total for key, m in mass.items()}
        by_state, by_setting = defaultdict(float), defaultdict(float)
        for (state, printed), p in joint.items():
            by_state[state] += p
            by_setting[printed] += p
        found.append((peak + math.log(total), dict(by_state), dict(by_setting)))
    return found


def hushed(pair: Pair, streams: list[str]) -> None:
    """Let some streams print no informational line in these slices."""
    for one, reference in zip(pair.evidence, pair.slices, strict=True):
        for i, signal in enumerate(pair.network.spec.signal):
            if signal.verbosity == "info" and signal.stream in streams:
                at = pair.network.slice_of(i)
                one.values[at] = np.where(np.isnan(one.values[at]), np.nan, 0.0)
                reference.values[signal.name] = one.values[at].copy()


@pytest.mark.parametrize(
    ("seed", "quiet"), [(0, []), (1, ["kernel"]), (2, ["kernel", "checkpoint"]), (3, ["checkpoint"])]
)
def test_the_mixture_equals_enumeration(seed, quiet):
    net = network()
    assert info_streams(net) == ["kernel", "checkpoint"]
    pair = Pair(net, seed, 4)
    hushed(pair, quiet)
    f = CoveredFilter(net, SHARE)
    for one, (log_evidence, states, settings) in zip(pair.evidence, enumerate_all(pair, pair.slices), strict=True):
        np.testing.assert_allclose(f.step(one)[0], log_evidence, rtol=1e-12, atol=1e-10)
        assert_same(as_states(net, f.posterior().vector), walked_states(net.spec, states, hidden_age=False), 1e-12)
        for printed, weight in zip(f.settings.tolist(), f.weights[0], strict=True):
            assert abs(settings.get(tuple(printed), 0.0) - weight) < 1e-12


def silent_slice(net: Network) -> np.ndarray:
    """Nothing printed, no sample delivered."""
    continuous = np.array([s.family in ("gaussian", "log_ratio") for s in net.spec.signal])
    return np.where(np.repeat(continuous, np.diff(net.signal_offset)), np.nan, silence(net))


def test_one_informational_line_settles_its_stream_for_good():
    net = network()
    f = CoveredFilter(net, SHARE)
    values = silent_slice(net)
    f.step(SliceEvidence(values))
    assert f.printed()["checkpoint"] < SHARE
    values[net.slice_of(net.signal_index("progress"))] = 1.0
    f.step(SliceEvidence(values))
    assert f.printed()["checkpoint"] == pytest.approx(1.0, abs=1e-12)
    f.step(SliceEvidence(silent_slice(net)))
    assert f.printed()["checkpoint"] == pytest.approx(1.0, abs=1e-12)
    assert 0.0 < f.printed()["kernel"] < 1.0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_known_verbosity_is_one_filter(share):
    net = network()
    pair = Pair(net, 5, 4)
    if share == 0.0:
        hushed(pair, ["kernel", "checkpoint"])
    covered, plain = CoveredFilter(net, share), Filter(net)
    lines = np.any([info_lines(net, stream) for stream in info_streams(net)], axis=0)
    for one in pair.evidence:
        told = one.values if share else np.where(lines, np.nan, one.values)
        expected = plain.step(SliceEvidence(told, one.phase, one.save_ends, one.job_class, one.age_before))
        np.testing.assert_allclose(covered.step(one), expected, rtol=1e-13)
        np.testing.assert_allclose(covered.belief, plain.belief, rtol=0, atol=1e-14)


def test_a_batch_is_its_instances_and_both_steps_agree():
    net = network()
    pairs = [Pair(net, seed, 4, classes=False) for seed in range(3)]
    single, batch = CoveredFilter(net, SHARE, batch=3), CoveredFilter(net, SHARE, batch=3)
    for each in zip(*(pair.evidence for pair in pairs), strict=True):
        columns = [
            np.array(c)
            for c in zip(*((e.values, e.phase, e.job_class, e.age_before, e.save_ends) for e in each), strict=True)
        ]
        np.testing.assert_array_equal(single.step(each), batch.step_batch(*columns))
        np.testing.assert_array_equal(single.belief, batch.belief)


def test_what_no_setting_explains_is_refused_or_set_aside():
    net = network()
    values = np.full((2, net.width), np.nan)
    age, phase, ends = np.zeros(2, dtype=np.int64), np.full(2, 3), np.zeros(2, dtype=bool)
    classes = np.array([0, JOB_CLASSES.index("halted")])
    f = CoveredFilter(net, SHARE, batch=2, strict=False)
    f.step_batch(values, np.full(2, 6), np.zeros(2, dtype=np.int64), age, ends)
    before = f.weights.copy()
    none = np.zeros_like(f.belief)
    none[:, 0] = 1.0
    for g in f.filters:
        g.belief[:], g.prior = none, type(g.prior)(np.zeros_like(net.onset))
    log_evidence = f.step_batch(values, phase, classes, age, ends)
    assert f.set_aside == [(1, 1)]
    assert log_evidence[1] == 0.0
    np.testing.assert_array_equal(f.weights[1], before[1])
    np.testing.assert_allclose(f.weights[0], before[0], rtol=0, atol=1e-15)  # the class weighs every setting alike
    np.testing.assert_array_equal(f.belief, none)
    f.strict = True
    with pytest.raises(ImpossibleEvidence, match="slice 2, instance 1"):
        f.step_batch(values, phase, classes, age, ends)
