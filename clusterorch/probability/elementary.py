"""Here live the transcendental functions that simulator and filter kernels may call.

Libm, NumPy and SVML differ in the last bits, between machines and even between the body
and the remainder of one vectorised loop.  These functions use only + - * / sqrt, integer
operations and selects, each rounded once, so a value does not depend on the length of
the array it sits in or on its place there, and LLVM still vectorises a loop around them.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_SHIFTER = 1.5 * 2.0**52  # adding it rounds to an integer and leaves that in the low bits
_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01  # 33 bits: times any exponent it is exact (fdlibm)
_LN2_LOW = 1.90821492927058770002e-10
_SQRT2 = 1.4142135623730951
_TWO_52 = 2.0**52
_SMALLEST_NORMAL = 2.0**-1022

_EXPONENT_SHIFT = np.uint64(52)
_FRACTION_MASK = np.uint64(0x000FFFFFFFFFFFFF)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_TWO_52_BITS = np.uint64(0x4330000000000000)


@intrinsic
def bits_of(typingctx: object, x: types.Type) -> tuple:
    """Reinterpret a float64 as uint64.  Free, and vectorisable."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.uint64(types.float64), codegen


@intrinsic
def float_of(typingctx: object, bits: types.Type) -> tuple:
    """Reinterpret a uint64 as float64.  Free, and vectorisable."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.uint64), codegen


@njit(cache=True, error_model="numpy", forceinline=True)
def _power_of_two(exponent: float) -> float:
    """2**exponent for an integral exponent in -1022..1023."""
    return float_of(bits_of(exponent + (_SHIFTER + 1023.0)) << _EXPONENT_SHIFT)


@njit(cache=True, error_model="numpy", forceinline=True)
def exp(x: float) -> float:
    """e**x, below 1 ulp of error, also where the result is subnormal.

    0 below -745.14, inf above 709.79; nan only for nan.
    Source: Taylor series after reduction by ln 2 in two pieces (Cody & Waite 1980).
    """
    bounded = x if x > -746.0 else -746.0
    bounded = bounded if bounded < 710.0 else 710.0
    exponent = (bounded * _LOG2_E + _SHIFTER) - _SHIFTER
    r = (bounded - exponent * _LN2_HIGH) - exponent * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (1.0 / 2 + r * (1.0 / 6)) + r2 * (1.0 / 24 + r * (1.0 / 120))
    middle = (1.0 / 720 + r * (1.0 / 5040)) + r2 * (1.0 / 40320 + r * (1.0 / 362880))
    high = (1.0 / 3628800 + r * (1.0 / 39916800)) + r2 * (1.0 / 479001600 + r * (1.0 / 6227020800))
    mantissa = 1.0 + (r + r2 * (low + r4 * (middle + r4 * high)))
    # Half the exponent twice: one factor alone could not reach subnormal results or 2**1024.
    half = (exponent * 0.5 + _SHIFTER) - _SHIFTER
    value = mantissa * _power_of_two(half) * _power_of_two(exponent - half)
    return x if x != x else value


@njit(cache=True, error_model="numpy", forceinline=True)
def log(x: float) -> float:
    """Natural logarithm, below 1 ulp of error for normal and subnormal x.

    log(0) = -inf, log(inf) = inf, nan for negative x and nan.
    Source: method and coefficients of fdlibm 5.3, e_log.c (Sun Microsystems 1993).
    """
    subnormal = x < _SMALLEST_NORMAL
    bits = bits_of(x * 2.0**54 if subnormal else x)
    exponent = float_of((bits >> _EXPONENT_SHIFT) | _TWO_52_BITS) - (_TWO_52 + 1023.0)
    exponent = exponent - 54.0 if subnormal else exponent
    mantissa = float_of((bits & _FRACTION_MASK) | _ONE_BITS)
    large = mantissa > _SQRT2
    f = (mantissa * 0.5 if large else mantissa) - 1.0
    exponent = exponent + 1.0 if large else exponent
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    odd = 0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591)
    odd = z * (0.6666666666666735130 + w * odd)
    half_square = 0.5 * f * f
    correction = s * (half_square + (even + odd)) + exponent * _LN2_LOW
    value = exponent * _LN2_HIGH - ((half_square - correction) - f)
    value = x if x == np.inf else value
    value = -np.inf if x == 0.0 else value
    return value if x >= 0.0 else np.nan


@njit(cache=True, error_model="numpy", forceinline=True)
def log_add(a: float, b: float) -> float:
    """log(e**a + e**b) without overflow; -inf stands for an impossible term."""
    larger = a if a > b else b
    smaller = b if a > b else a
    e = exp(smaller - larger)
    total = 1.0 + e
    # The second term gives back what 1 + e rounded away (Goldberg 1991, log1p).
    value = larger + (log(total) + (e - (total - 1.0)) / total)
    value = larger if smaller == -np.inf or larger == np.inf else value
    return a + b if a != a or b != b else value


@njit(cache=True, error_model="numpy", forceinline=True)
def _central_fraction(q: float) -> tuple[float, float]:
    """Numerator and denominator of the central branch of AS 241, for q = u - 1/2 with q * q <= 0.180625."""
    r = 0.180625 - q * q
    top = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    top = (top * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4
    top = (top * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    top = (top * r + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    base = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    base = (base * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4
    base = (base * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    base = (base * r + 4.2313330701600911252e1) * r + 1.0
    return q * top, base


@njit(cache=True, error_model="numpy", forceinline=True)
def central_quantile(q: float) -> float:
    """`normal_quantile(q + 1/2)` for q * q <= 0.180625, to the bit, and without its other branches."""
    top, base = _central_fraction(q)
    return top / base


@njit(cache=True, error_model="numpy", forceinline=True)
def normal_quantile(u: float) -> float:
    """Inverse of the standard normal distribution function, relative error below 1e-15.

    -inf at u <= 0 and inf at u >= 1, so keep u inside (0, 1); nan for nan.
    Source: Wichura (1988), Algorithm AS 241, PPND16, Applied Statistics 37, 477-484.
    """
    q = u - 0.5
    central = q * q <= 0.180625
    tail = u if q < 0.0 else 1.0 - u
    tail = 0.25 if central else tail  # keeps the unused branch away from log(0)
    distance = np.sqrt(-log(tail))
    near = distance <= 5.0

    top, base = _central_fraction(q)

    r = distance - 1.6
    near_top = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
    near_top = (near_top * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0
    near_top = (near_top * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0
    near_top = (near_top * r + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
    near_base = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
    near_base = (near_base * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1
    near_base = (near_base * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0
    near_base = (near_base * r + 2.05319162663775882187e0) * r + 1.0

    r = distance - 5.0
    far_top = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    far_top = (far_top * r + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2
    far_top = (far_top * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0
    far_top = (far_top * r + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
    far_base = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    far_base = (far_base * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
    far_base = (far_base * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1
    far_base = (far_base * r + 5.99832206555887937690e-1) * r + 1.0

    tail_top = near_top if near else far_top
    tail_base = near_base if near else far_base
    value = (top if central else tail_top) / (base if central else tail_base)
    value = -value if q < 0.0 and not central else value
    value = -np.inf if u <= 0.0 else value
    value = np.inf if u >= 1.0 else value
    return u if u != u else value
