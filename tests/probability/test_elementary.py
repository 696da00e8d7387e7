"""The elementary functions: accuracy against longer arithmetic, and the same bits everywhere."""

import numpy as np
import pytest
from numba import njit
from scipy import special

from clusterorch.probability import elementary


def over_arrays(function):
    """A loop around a scalar function, as a kernel would write it."""

    @njit(error_model="numpy")
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    def call(x):
        out = np.empty_like(x)
        loop(x, out)
        return out

    call.loop = loop
    return call


FUNCTIONS = {name: over_arrays(getattr(elementary, name)) for name in ("exp", "log", "normal_quantile")}
exp, log, normal_quantile = FUNCTIONS.values()
RNG = np.random.default_rng(20250101)
ARGUMENTS = {
    "exp": RNG.uniform(-760.0, 720.0, 67),
    "log": np.exp(RNG.uniform(-740.0, 700.0, 67)),
    "normal_quantile": np.exp(RNG.uniform(-40.0, 0.0, 67)),
}
needs_long_double = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no arithmetic longer than float64")


def ulps(value, reference):
    return np.max(np.abs(value - reference) / np.spacing(np.abs(value)))


@needs_long_double
def test_exp_is_within_one_ulp():
    x = np.concatenate([np.linspace(-745.0, 709.78, 200_001), np.linspace(-1.0, 1.0, 200_001)])
    assert ulps(exp(x), np.exp(x.astype(np.longdouble))) < 1.0


@needs_long_double
def test_log_is_within_one_ulp_also_near_one_and_below_normal():
    x = np.concatenate(
        [
            np.exp(np.linspace(-744.0, 709.0, 200_001)),
            np.linspace(0.4, 2.5, 200_001),
            1.0 + np.arange(-500, 500) * 2.0**-52,
            np.arange(1, 100) * 2.0**-1074,
        ]
    )
    assert ulps(log(x), np.log(x.astype(np.longdouble))) < 1.0


def test_exp_at_the_edges():
    x = np.array([0.0, -0.0, -np.inf, np.inf, np.nan, -745.2, -1e308, 709.79, 1e308, -745.0, 709.78])
    expected = [1.0, 1.0, 0.0, np.inf, np.nan, 0.0, 0.0, np.inf, np.inf, 2.0**-1074, np.exp(709.78)]
    np.testing.assert_allclose(exp(x), expected, rtol=4e-16, atol=0.0)


def test_log_at_the_edges():
    x = np.array([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -1.0, 2.0**-1074, 2.0**-1022, np.finfo(float).max])
    with np.errstate(all="ignore"):
        expected = np.log(x)
    np.testing.assert_allclose(log(x), expected, rtol=2e-16, atol=0.0)


def test_normal_quantile_agrees_with_scipy():
    tails = np.exp(np.linspace(-700.0, np.log(0.075), 50_001))
    u = np.concatenate([tails, np.linspace(1e-6, 1.0 - 1e-6, 100_001), 1.0 - tails[tails > 1e-16]])
    u = np.append(u, [2.0**-53, 2.0**-33, 0.075, 0.925, 0.5, 1.0 - 2.0**-53])
    np.testing.assert_allclose(normal_quantile(u), special.ndtri(u), rtol=2e-14, atol=1e-16)


def test_normal_quantile_is_odd_about_one_half_and_increasing():
    u = (np.arange(1, 2**16, 2)) * 2.0**-17
    np.testing.assert_array_equal(normal_quantile(u), -normal_quantile(1.0 - u))
    assert np.all(np.diff(normal_quantile(np.linspace(1e-9, 1.0 - 1e-9, 100_001))) > 0.0)


def test_normal_quantile_at_the_edges():
    u = np.array([0.0, 1.0, -0.1, 1.1, np.nan, 0.5])
    np.testing.assert_array_equal(normal_quantile(u), [-np.inf, np.inf, -np.inf, np.inf, np.nan, 0.0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_do_not_depend_on_length_or_position(name):
    x, function = ARGUMENTS[name], FUNCTIONS[name]
    scalar = np.array([getattr(elementary, name)(value) for value in x]).view(np.int64)
    for length in range(1, len(x) + 1):
        np.testing.assert_array_equal(function(x[:length]).view(np.int64), scalar[:length])
        start = len(x) - length
        np.testing.assert_array_equal(function(x[start:]).view(np.int64), scalar[start:])
        np.testing.assert_array_equal(function(x[start::3]).view(np.int64), scalar[start::3])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_product_and_sum_are_fused_and_no_library_is_called(name):
    FUNCTIONS[name](ARGUMENTS[name])
    for assembly in FUNCTIONS[name].loop.inspect_asm().values():
        assert "fmadd" not in assembly
        assert "fmsub" not in assembly
        assert "fnmadd" not in assembly
    for code in FUNCTIONS[name].loop.inspect_llvm().values():
        for library_call in ("@exp(", "@log(", "llvm.exp", "llvm.log", "svml"):
            assert library_call not in code


def test_log_add_agrees_with_numpy():
    rng = np.random.default_rng(7)
    a, b = rng.normal(scale=300.0, size=2000), rng.normal(scale=300.0, size=2000)
    b[:1000] = a[:1000] + rng.normal(scale=5.0, size=1000)
    a[:300], b[:300] = -b[:300] * 1e-3, a[:300] * 1e-3
    ours = np.array([elementary.log_add(p, q) for p, q in zip(a, b, strict=True)])
    np.testing.assert_allclose(ours, np.logaddexp(a, b), rtol=4e-16, atol=4e-16)


def test_log_add_keeps_a_small_second_term():
    for b in (-2.0, -20.0, -37.0, -700.0):
        assert elementary.log_add(0.0, b) == pytest.approx(np.log1p(np.exp(b)), rel=1e-15, abs=0.0)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (-np.inf, -np.inf, -np.inf),
        (-np.inf, -3.0, -3.0),
        (2.0, -np.inf, 2.0),
        (np.inf, 1.0, np.inf),
        (np.inf, np.inf, np.inf),
        (np.inf, -np.inf, np.inf),
        (np.nan, 1.0, np.nan),
        (np.nan, np.inf, np.nan),
        (-1e5, -1e5, -1e5 + np.log(2.0)),
    ],
)
def test_log_add_at_the_edges(a, b, expected):
    np.testing.assert_equal(elementary.log_add(a, b), expected)
    np.testing.assert_equal(elementary.log_add(b, a), expected)
