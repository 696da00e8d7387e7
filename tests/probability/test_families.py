"""Emission families: densities against scipy, and samples against their own density.

Sampling tests have fixed seeds and a threshold of 4.9 standard errors: false-alarm rate 1e-6
a comparison, below 1e-4 for the file.
"""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import stats

from clusterorch.probability import families, noise
from clusterorch.probability.families import (
    Categorical,
    Chorus,
    Count,
    FirstSpeaker,
    Gaussian,
    LogRatio,
    Presence,
)

EXACT = {"rtol": 1e-12, "atol": 1e-12}
CLASSES = np.array([0.6, 0.2, 0.1, 0.07, 0.03])


def draws(n, channel=0, rows=None):
    out = np.empty(n if rows is None else n * rows)
    noise.fill_uniform(out, 0, 0, channel, noise.stream_key(4, "families", 0, 0))
    return out if rows is None else out.reshape(n, rows)


def assert_frequencies(samples, probabilities):
    n = len(samples)
    for value, p in enumerate(probabilities):
        assert abs(np.mean(samples == value) - p) <= 4.9 * np.sqrt(p * (1 - p) / n), value


def test_every_family_is_a_class_with_density_and_sampler():
    names = ("Gaussian", "LogRatio", "Presence", "Count", "Categorical", "Chorus", "FirstSpeaker")
    assert [name.replace("_", "") for name in families.FAMILIES] == [name.lower() for name in names]
    for name in names:
        assert {"log_density", "sample"} <= set(dir(getattr(families, name)))


def test_gaussian_density_agrees_with_scipy():
    x = np.linspace(-30.0, 30.0, 241)
    law = Gaussian(1.5, 2.0, memory=0.6, last=4.0)
    np.testing.assert_allclose(law.log_density(x), stats.norm(3.0, 1.6).logpdf(x), **EXACT)
    law = law._replace(contamination=0.02, outlier_mean=-1.0, outlier_sd=20.0)
    mixture = 0.98 * stats.norm(3.0, 1.6).pdf(x) + 0.02 * stats.norm(-1.0, 20.0).pdf(x)
    np.testing.assert_allclose(law.log_density(x), np.log(mixture), **EXACT)


def test_contamination_caps_what_one_sample_weighs():
    healthy = Gaussian(0.0, 1.0, contamination=1e-3, outlier_mean=0.0, outlier_sd=50.0)
    faulty = healthy._replace(mean=40.0)
    weight = faulty.log_density(40.0) - healthy.log_density(40.0)
    assert 0.0 < weight < np.log(1e3 * 50.0) + 1.0
    assert Gaussian(40.0, 1.0).log_density(40.0) - Gaussian(0.0, 1.0).log_density(40.0) == 800.0


def test_gaussian_inverts_its_distribution_function_on_each_side_of_the_contamination():
    law = Gaussian(1.5, 2.0, 0.6, 4.0, contamination=0.25, outlier_mean=-1.0, outlier_sd=20.0)
    u = np.array([0.1, 0.2, 0.25 + 1e-3, 0.5, 0.9])
    expected = np.append(stats.norm(-1.0, 20.0).ppf(u[:2] / 0.25), stats.norm(3.0, 1.6).ppf((u[2:] - 0.25) / 0.75))
    np.testing.assert_allclose(law.sample(u), expected, **EXACT)
    np.testing.assert_allclose(Gaussian(1.5, 2.0).sample(u), stats.norm(1.5, 2.0).ppf(u), **EXACT)


def test_gaussian_samples_stay_finite_where_a_stretched_draw_would_round_to_zero_or_one():
    law = Gaussian(0.0, 1.0, contamination=np.array([0.25, 0.06, 0.25]))
    u = np.array([0.25, 1.0 - 2.0**-53, 0.25 - 2.0**-54])
    assert np.all(np.isfinite(law.sample(u)))


@pytest.mark.parametrize("contamination", [0.0, 0.1])
def test_gaussian_samples_follow_the_density(contamination):
    law = Gaussian(1.0, 2.0, 0.5, 3.0, contamination, outlier_mean=8.0, outlier_sd=5.0)
    samples = law.sample(draws(200_000))
    edges = np.linspace(-6.0, 20.0, 27)
    x = np.linspace(-6.0, 20.0, 26_001)
    density = np.exp(law.log_density(x))
    for low, high in pairwise(edges):
        inside = (x >= low - 1e-9) & (x <= high + 1e-9)
        p = np.trapezoid(density[inside], x[inside])
        frequency = np.mean((samples >= low) & (samples < high))
        assert abs(frequency - p) <= 4.9 * np.sqrt(p * (1 - p) / len(samples)) + 1e-6


def test_a_chain_of_remembering_samples_is_stationary_with_the_declared_correlation():
    law, n = Gaussian(5.0, 2.0, memory=0.8), 40_000
    x = law._replace(memory=0.0).sample(draws(n, 0))
    chain = [x]
    for channel in range(1, 4):
        chain.append(law._replace(last=chain[-1]).sample(draws(n, channel)))
    for x in chain:
        assert abs(x.mean() - 5.0) < 4.9 * 2.0 / np.sqrt(n)
        assert abs(x.var() / 4.0 - 1.0) < 4.9 * np.sqrt(2.0 / n)
    assert abs(np.corrcoef(chain[0], chain[3])[0, 1] - 0.8**3) < 4.9 / np.sqrt(n)


def test_log_ratio_is_gaussian_in_the_logarithm():
    law = Gaussian(0.2, 0.3, 0.4, 0.1, 0.05, 0.0, 3.0)
    ratio = LogRatio(law, baseline=400.0)
    x = np.linspace(-5.0, 5.0, 101)
    np.testing.assert_allclose(ratio.log_density(400.0 * np.exp(x)), law.log_density(x), **EXACT)
    u = draws(1000)
    np.testing.assert_allclose(np.log(ratio.sample(u) / 400.0), law.sample(u), **EXACT)


def test_presence_agrees_with_bernoulli():
    p = np.array([0.0, 1e-9, 0.3, 1.0])
    for present in (0, 1):
        np.testing.assert_allclose(Presence(p).log_density(present), stats.bernoulli(p).logpmf(present), rtol=1e-12)
    assert_frequencies(Presence(0.3).sample(draws(100_000)), [0.7, 0.3])
    certain = Presence(np.array([0.0, 1.0])).sample(np.array([1.0 - 2.0**-53, 2.0**-53]))
    np.testing.assert_array_equal(certain, [0, 1])


def test_count_classes_have_the_declared_edges():
    counts = np.array([0, 1, 2, 9, 10, 99, 100, 10**9])
    np.testing.assert_array_equal(families.count_class(counts), [0, 1, 2, 2, 3, 3, 4, 4])


def test_count_and_categorical_read_their_tables():
    np.testing.assert_allclose(Count(CLASSES).log_density([0, 1, 5, 50, 5000]), np.log(CLASSES), **EXACT)
    law = stats.rv_discrete(values=(np.arange(5), CLASSES))
    np.testing.assert_allclose(Categorical(CLASSES).log_density(np.arange(5)), law.logpmf(np.arange(5)), **EXACT)
    table = np.array([CLASSES, CLASSES[::-1]])
    np.testing.assert_allclose(Categorical(table).log_density([1, 1]), np.log([0.2, 0.07]), **EXACT)
    assert Categorical(np.array([1.0, 0.0])).log_density(1) == -np.inf


def test_count_and_categorical_samples_follow_their_tables():
    for family in (Count, Categorical):
        assert_frequencies(family(CLASSES).sample(draws(100_000)), CLASSES)
    per_row = Categorical(np.array([CLASSES, CLASSES[::-1]])).sample(np.array([0.1, 0.1]))
    np.testing.assert_array_equal(per_row, [0, 2])


def test_categories_are_cut_in_the_order_declared_and_never_have_mass_zero():
    law = Categorical(np.array([0.0, 0.25, 0.0, 0.75, 0.0]))
    u = np.array([2.0**-53, 0.25 - 1e-9, 0.25, 0.5, 1.0 - 2.0**-53])
    np.testing.assert_array_equal(law.sample(u), [1, 1, 3, 3, 3])
    tenths = np.array([0.1] * 10 + [0.0])  # adds up to a little less than 1
    assert Categorical(tenths).sample(1.0 - 2.0**-53) == 9


def test_chorus_density_sums_over_told_and_untold():
    chorus = Chorus(0.3, np.array([0.9, 0.8, 0.05]), 0.02)
    total = 0.0
    for speaks in product((0, 1), repeat=3):
        told = 0.3 * np.prod(stats.bernoulli(chorus.member).pmf(speaks))
        quiet = 0.7 * np.prod(stats.bernoulli(0.02).pmf(speaks))
        np.testing.assert_allclose(chorus.log_density(np.array(speaks)), np.log(told + quiet), **EXACT)
        total += told + quiet
    assert total == pytest.approx(1.0)


def test_chorus_samples_follow_the_density():
    chorus = Chorus(0.3, np.array([0.9, 0.8, 0.05]), 0.02)
    samples = chorus.sample(draws(60_000, rows=4))
    patterns = np.array(list(product((0, 1), repeat=3)))
    assert_frequencies(samples @ np.array([4, 2, 1]), np.exp(chorus.log_density(patterns)))


def test_first_speaker_is_proportional_to_weight():
    weights = np.array([4.0, 0.0, 1.0, 3.0])
    speaker = FirstSpeaker(weights)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(speaker.log_density(np.arange(4)), np.log(weights / 8.0), **EXACT)
    assert_frequencies(speaker.sample(draws(100_000)), weights / 8.0)
