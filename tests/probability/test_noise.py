"""Counter-based noise: published answers, laws, and independence of what surrounds a draw.

Statistical tests have fixed seeds; each threshold has a false-alarm rate near 1e-6 for one
statistic, a few 1e-5 for the file.
"""

import numpy as np
import pytest
from scipy import stats

from clusterorch.probability import noise

FALSE_ALARM = 1e-6
KEY = noise.stream_key(20250101, "test", 3, 5)

KNOWN_ANSWERS = [  # Random123 1.14, kat_vectors, philox4x32 10
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return [int(word, 16) for word in text.split()]


def filled(entities, slice_index=0, first_entity=0, channel=0, key=KEY):
    out = np.empty(entities)
    noise.fill_uniform(out, slice_index, first_entity, channel, key)
    return out


def filled_block(entities, slice_index=0, first_entity=0, block=0, key=KEY):
    out = np.empty((4, entities))
    noise.fill_uniform_block(out, slice_index, first_entity, block, key)
    return out


def z_of_correlation(x, y):
    return np.mean((x - 0.5) * (y - 0.5)) * 12.0 * np.sqrt(len(x))


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter, key, answer):
    assert list(noise.philox4x32(*words(counter), *words(key))) == words(answer)


def test_uniforms_never_reach_zero_or_one():
    full = 2**32 - 1
    assert noise.uniform32(0) == 2.0**-33
    assert noise.uniform32(full) == 1.0 - 2.0**-33
    assert noise.uniform32(2**31) == 0.5 + 2.0**-33
    assert noise.uniform64(0, 0) == 2.0**-53
    assert noise.uniform64(full, full) == 1.0 - 2.0**-53
    assert noise.uniform64(2**31, 0) == 0.5 + 2.0**-53
    assert noise.uniform64(0, 2**12) == 1.5 * 2.0**-52


def test_a_draw_is_the_word_its_counter_names():
    for channel in (0, 1, 2, 3, 6, 4001):
        word = noise.philox4x32(9, 12, channel // 4, 0, *KEY)[channel % 4]
        assert noise.telemetry_uniform(9, 12, channel, *KEY) == (word + 0.5) / 2**32
        assert filled(5, 9, 10, channel)[2] == (word + 0.5) / 2**32
    for channel in (0, 1, 7):
        block = noise.philox4x32(9, 12, channel // 2, 1, *KEY)
        high, low = block[2 * (channel % 2)], block[2 * (channel % 2) + 1]
        assert noise.causal_uniform(9, 12, channel, *KEY) == noise.uniform64(high, low)


def test_draws_do_not_depend_on_length_or_first_entity():
    whole = np.array([noise.telemetry_uniform(4, e, 6, *KEY) for e in range(67)])
    for length in range(1, 68):
        np.testing.assert_array_equal(filled(length, 4, 0, 6), whole[:length])
        np.testing.assert_array_equal(filled(length, 4, 67 - length, 6), whole[67 - length :])
        np.testing.assert_array_equal(filled_block(length, 4, 67 - length, 1)[2], whole[67 - length :])


def test_a_block_holds_four_channels():
    block = filled_block(100, 7, 50, 3)
    for j in range(4):
        np.testing.assert_array_equal(block[j], filled(100, 7, 50, 12 + j))


def test_draws_are_uniform_by_kolmogorov_smirnov_and_moments():
    u = filled_block(250_000, 1).ravel()
    assert stats.kstest(u, "uniform").pvalue > FALSE_ALARM
    for power in (1, 2, 3, 4):
        mean, variance = 1 / (power + 1), 1 / (2 * power + 1) - 1 / (power + 1) ** 2
        assert abs(np.mean(u**power) - mean) < 4.9 * np.sqrt(variance / len(u))


def test_rare_event_draws_are_uniform_also_near_zero():
    u = np.array([noise.causal_uniform(s, e, 1, *KEY) for s in range(300) for e in range(300)])
    assert stats.kstest(u, "uniform").pvalue > FALSE_ALARM
    expected = len(u) * 1e-3
    assert abs(np.sum(u < 1e-3) - expected) < 4.9 * np.sqrt(expected)
    assert len(np.unique(u)) == len(u)


@pytest.mark.parametrize(
    "other",
    [
        {"key": noise.stream_key(20250102, "test", 3, 5)},
        {"key": noise.stream_key(20250101, "tesu", 3, 5)},
        {"key": noise.stream_key(20250101, "test", 4, 5)},
        {"key": noise.stream_key(20250101, "test", 3, 6)},
        {"key": (KEY[0] ^ 1, KEY[1])},
        {"key": (KEY[0], KEY[1] ^ 1)},
        {"slice_index": 1},
        {"first_entity": 1},
        {"channel": 1},
        {"channel": 4},
    ],
    ids=str,
)
def test_neighbouring_streams_are_uncorrelated(other):
    u, v = filled(200_000), filled(200_000, **other)
    assert abs(z_of_correlation(u, v)) < 4.9
    assert abs(z_of_correlation(np.abs(2 * u - 1), np.abs(2 * v - 1))) < 4.9
    assert stats.kstest((u - v) % 1.0, "uniform").pvalue > FALSE_ALARM


def test_telemetry_and_rare_events_share_no_words():
    u = np.array([noise.telemetry_uniform(s, 0, 0, *KEY) for s in range(2000)])
    v = np.array([noise.causal_uniform(s, 0, 0, *KEY) for s in range(2000)])
    assert abs(z_of_correlation(u, v)) < 4.9


def test_stream_keys_are_distinct_uniform_and_fixed():
    keys = np.array([noise.stream_key(1, "test", i, e) for i in range(200) for e in range(50)])
    assert len(np.unique(keys, axis=0)) == len(keys)
    for column in keys.T:
        assert stats.kstest((column + 0.5) / 2**32, "uniform").pvalue > FALSE_ALARM
    assert KEY == (833335287, 4175052387)  # another value would change every published episode


def test_no_seed_is_the_sum_of_others():
    assert noise.stream_key(1, "test", 2, 3) != noise.stream_key(1, "test", 3, 2)
    assert noise.stream_key(1, "test", 2, 3) != noise.stream_key(2, "test", 1, 3)
    assert noise.stream_key(1, 1, 2, 3) != noise.stream_key(1, "1", 2, 3)


def test_integers_of_any_size_and_kind_make_keys():
    values = [0, 1, -1, 2**31, 2**32, 2**63, 2**64, 2**64 + 1, 2**200, -(2**70)]
    streams = [(seed, "test", 0, 0) for seed in values]
    streams += [(7, "test", instance, 0) for instance in values]
    streams += [(7, "test", 0, episode) for episode in values if episode]
    streams += [(7, domain, 0, 0) for domain in values]
    keys = {noise.stream_key(*stream) for stream in streams}
    assert len(keys) == len(streams)
    assert all(0 <= word < 2**32 for key in keys for word in key)
    of_numpy = noise.stream_key(np.int64(7), "test", np.uint64(3), np.int32(1))
    assert of_numpy == noise.stream_key(7, "test", 3, 1)


def test_a_kernel_derives_the_key_that_python_derives():
    assert noise.instance_key(*noise.domain_key(7, "test"), 2**40 + 5, 9) == noise.stream_key(7, "test", 2**40 + 5, 9)
