"""Smoothing and the best path against conditioning by brute force: forbid all states but one, and compare evidence."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.cascades import best_path
from clusterorch.inference.filtering import Filter
from clusterorch.inference.smoothing import backward_smooth, fixed_lag_smooth
from clusterorch.models.layout import Layout
from tests.inference.worlds import Pair, hot_network


@functools.cache
def case(seed: int, actions: bool = True, slices: int = 7):  # noqa: FBT001, FBT002
    net = hot_network(Layout(1, 2))
    return net, Pair(net, seed, slices, actions=actions).evidence


def total_evidence(net, evidence, forced: dict[int, int]) -> float:
    """Log p(evidence, state of slice t is forced[t])."""
    f, total = Filter(net), 0.0
    for t, one in enumerate(evidence):
        if t in forced:
            soft = np.full(net.states, -np.inf)
            soft[forced[t]] = 0.0
            one = replace(one, soft=soft)
        try:
            total += float(f.step(one)[0])
        except ImpossibleEvidence:
            return -np.inf
    return total


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 7])
def test_smoothed_belief_is_the_share_of_evidence_through_each_state(seed):
    net, evidence = case(seed)
    whole = total_evidence(net, evidence, {})
    for t, belief in backward_smooth(net, evidence):
        likely = np.argsort(-belief.vector)[:4]
        for i in (*likely, 0, 17):
            share = np.exp(total_evidence(net, evidence, {t: int(i)}) - whole)
            assert belief.vector[i] == pytest.approx(share, abs=1e-12)


def test_the_last_smoothed_belief_is_the_filtered_one():
    net, evidence = case(0)
    f = Filter(net)
    for one in evidence:
        f.step(one)
    t, belief = next(backward_smooth(net, evidence))
    assert t == len(evidence) - 1
    np.testing.assert_allclose(belief.vector, f.belief[0], atol=1e-15)


@pytest.mark.parametrize("lag", [0, 2, 20])
def test_fixed_lag_sees_exactly_its_lag(lag):
    net, evidence = case(1)
    for t, belief in fixed_lag_smooth(net, evidence, lag):
        seen = evidence[: t + lag + 1]
        expected = next(b for s, b in backward_smooth(net, seen) if s == t)
        np.testing.assert_allclose(belief.vector, expected.vector, atol=1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_path_has_the_score_it_claims_and_beats_its_neighbours(seed):
    net, evidence = case(seed, actions=False)
    path, score = best_path(net, evidence)
    background = total_background(net, evidence)
    assert total_evidence(net, evidence, dict(enumerate(path))) - background == pytest.approx(score, abs=1e-9)
    beliefs = {t: b.vector for t, b in backward_smooth(net, evidence)}
    for t in range(len(path)):
        for other in np.argsort(-beliefs[t])[:5]:
            rival = total_evidence(net, evidence, dict(enumerate(path)) | {t: int(other)}) - background
            assert rival <= score + 1e-9


def total_background(net, evidence) -> float:
    """Log evidence of the empty slot's likelihoods alone."""
    from clusterorch.inference.likelihood import background_evidence

    f, total = Filter(net), 0.0
    scratch = (
        np.empty(net.width),
        np.empty(net.width, dtype=np.uint64),
        np.zeros(net.width),
        np.zeros(net.width),
    )
    for one in evidence:
        last, gap = f.last[0].copy(), f.gap[0].copy()
        total += background_evidence(f.plan, one.phase, one.values, last, gap, *scratch)
        f.step(one)
    return total
