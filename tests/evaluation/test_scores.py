"""Scores against what they are by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clusterorch.evaluation import scores

EVEN = {"a": 0.25, "b": 0.25, "c": 0.5}


def test_a_truth_that_is_no_mode_ranks_behind_all():
    assert [scores.rank_of(EVEN, truth) for truth in ("c", "a", "b", "unheard of")] == [1, 2, 3, 4]


def test_the_log_score_is_floored():
    assert scores.log_score(EVEN, "unheard of") == pytest.approx(np.log(1e-6))
    assert scores.log_score(EVEN, "c") == pytest.approx(np.log(0.5))


def test_total_variation_is_the_largest_difference_over_sets():
    other = {"a": 0.5, "b": 0.0, "c": 0.5}
    assert scores.total_variation(EVEN, other) == pytest.approx(0.25)
    assert scores.total_variation(EVEN, EVEN) == 0.0


def test_labels_drawn_from_the_posteriors_are_calibrated_and_others_are_not():
    rng = np.random.default_rng(5)
    rows = rng.dirichlet([0.5] * 4, size=6000)
    posteriors = [dict(zip("abcd", map(float, row), strict=True)) for row in rows]
    drawn = ["abcd"[rng.choice(4, p=row)] for row in rows]
    assert scores.top_label_error(posteriors, drawn) < 0.02
    assert scores.classwise_error(posteriors, drawn) < 0.02
    turned = ["bcda"["abcd".index(truth)] for truth in drawn]
    assert scores.top_label_error(posteriors, turned) > 0.2
    assert scores.classwise_error(posteriors, turned) > 0.05


def test_the_mean_log_score_of_calibrated_posteriors_is_minus_their_entropy():
    rng = np.random.default_rng(6)
    rows = rng.dirichlet([1.0] * 4, size=20_000)
    posteriors = [dict(zip("abcd", map(float, row), strict=True)) for row in rows]
    drawn = ["abcd"[int(np.searchsorted(np.cumsum(row), rng.random()))] for row in rows]
    score = np.mean([scores.log_score(p, truth) for p, truth in zip(posteriors, drawn, strict=True)])
    assert score == pytest.approx(-np.mean([scores.entropy(p) for p in posteriors]), abs=0.02)
