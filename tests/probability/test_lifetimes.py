"""Rates and durations to slices: closed forms, and the means of the laws they give."""

import math

import numpy as np
import pytest
from scipy import stats

from clusterorch.probability import lifetimes


def test_onset_keeps_small_rates_and_composes_over_slices():
    assert lifetimes.onset_probability(1e-12, 3600.0) == pytest.approx(1e-12, rel=1e-11, abs=0.0)
    assert lifetimes.onset_probability(0.0, 15.0) == 0.0
    short, long = lifetimes.onset_probability(0.3, 15.0), lifetimes.onset_probability(0.3, 150.0)
    assert 1.0 - (1.0 - short) ** 10 == pytest.approx(long, rel=1e-12)
    assert lifetimes.onset_probability(2.0, 900.0) == pytest.approx(stats.expon.cdf(0.5), rel=1e-14)


def test_node_days_become_hours():
    assert lifetimes.per_1000_node_days_to_per_hour(6.5) == pytest.approx(6.5 / 1000 / 24)


def test_geometric_has_the_mean_asked_for():
    p = lifetimes.geometric_from_mean(100.0, 15.0)
    assert stats.geom(p).mean() * 15.0 == pytest.approx(100.0)
    assert lifetimes.geometric_from_mean(15.0, 15.0) == 1.0
    assert lifetimes.geometric_from_mean(1.0, 15.0) == 1.0


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_erlang_has_the_mean_asked_for(stages):
    p = lifetimes.erlang_from_mean(stages, 100.0, 15.0)
    assert (stats.nbinom(stages, p).mean() + stages) * 15.0 == pytest.approx(100.0)
    assert lifetimes.erlang_from_mean(stages, 15.0 * stages, 15.0) == 1.0


def test_erlang_refuses_a_mean_below_one_slice_a_stage():
    with pytest.raises(ValueError, match="below 3 stages"):
        lifetimes.erlang_from_mean(3, 44.9, 15.0)


@pytest.mark.parametrize(
    ("seconds", "width", "slices"),
    [(0.0, 15.0, 0), (1.0, 15.0, 1), (15.0, 15.0, 1), (15.1, 15.0, 2), (600.0, 15.0, 40), (2.1, 0.7, 3)],
)
def test_timers_round_up(seconds, width, slices):
    assert lifetimes.timer_slices(seconds, width) == slices


@pytest.mark.parametrize("sigma", [0.3, 0.55, 0.64, 0.74, 0.8, 1.2])
def test_lognormal_fit_matches_the_mean_and_reports_its_error(sigma):
    fit = lifetimes.lognormal_to_erlang(40.0, sigma)
    lognormal = stats.lognorm(sigma, scale=40.0)
    erlang = stats.gamma(fit.stages, scale=fit.mean / fit.stages)
    assert fit.mean == pytest.approx(lognormal.mean(), rel=1e-12)
    x = np.linspace(1e-6, 2000.0, 400_001)
    difference = np.abs(lognormal.cdf(x) - erlang.cdf(x)).max()
    assert fit.error == pytest.approx(difference, abs=2e-5)
    ratios = [abs(math.log(lognormal.var() / lognormal.mean() ** 2 * k)) for k in (1, 2, 3)]
    assert fit.stages == 1 + int(np.argmin(ratios))


def test_lognormal_fit_does_not_depend_on_the_unit():
    seconds, hours = lifetimes.lognormal_to_erlang(3600.0, 0.9), lifetimes.lognormal_to_erlang(1.0, 0.9)
    assert (seconds.stages, seconds.error) == (hours.stages, hours.error)
    assert seconds.mean == pytest.approx(3600.0 * hours.mean)


def test_a_constant_delay_is_fitted_badly_and_says_so():
    fit = lifetimes.lognormal_to_erlang(10.0, 0.0)
    assert fit.stages == 3
    assert fit.error == pytest.approx(stats.gamma(3, scale=1 / 3).cdf(1.0), abs=1e-9)


@pytest.mark.parametrize(
    "call",
    [
        lambda: lifetimes.onset_probability(-1.0, 15.0),
        lambda: lifetimes.onset_probability(math.nan, 15.0),
        lambda: lifetimes.onset_probability(1.0, 0.0),
        lambda: lifetimes.geometric_from_mean(0.0, 15.0),
        lambda: lifetimes.geometric_from_mean(math.inf, 15.0),
        lambda: lifetimes.erlang_from_mean(0, 60.0, 15.0),
        lambda: lifetimes.timer_slices(-1.0, 15.0),
        lambda: lifetimes.timer_slices(math.inf, 15.0),
        lambda: lifetimes.lognormal_to_erlang(0.0, 1.0),
        lambda: lifetimes.lognormal_to_erlang(1.0, -0.1),
    ],
)
def test_impossible_arguments_are_refused(call):
    with pytest.raises(ValueError, match=r"give a (finite|value)"):
        call()
