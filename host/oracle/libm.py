"""float32 exp, sin and cos as the C library that llama.cpp's builds call computes them.

glibc takes these from Arm's optimized routines: float64 polynomials whose last float32 bit is wrong now and
then (about one result in a hundred for sine and cosine). The exact mode needs the same wrong bits, on every
platform, so the polynomials are evaluated here. Coefficients, by file of
https://github.com/ARM-software/optimized-routines: math/exp2f_data.c at
6752e61839efd6aaef06342985328ab0a83ba17b, math/sincosf_data.c as described by math/sincosf.h at
269dc16f8bd323c1e16893ed1481494d4d7bac65.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelm.host.oracle.half import F32

F64 = NDArray[np.float64]


def _hex(numbers: str) -> list[float]:
    return [float.fromhex(n) for n in numbers.split()]


_EXP = _hex("0x1.c6af84b912394p-5 0x1.ebfce50fac4f3p-3 0x1.62e42ff0c52d6p-1")  # of r^3, r^2, r
_COS = _hex("-0x1.ffffffd0c621cp-2 0x1.55553e1068f19p-5 -0x1.6c087e89a359dp-10 0x1.99343027bf8c3p-16")
_SIN = _hex("-0x1.555545995a603p-3 0x1.1107605230bc4p-7 -0x1.994eb3774cf24p-13")
_STEPS = 32  # exp: parts of an octave
# pi / 2 in two parts, the first of 33 bits, so that its product with a quadrant number below 2**20 is exact.
_HALF_PI_HIGH, _HALF_PI_LOW = _hex("0x1.921fb544p0 0x1.0b4611a626331p-34")


def expf(x: ArrayLike) -> F32:
    """exp(x) in float32: 2^(k/32) from a table, times a cubic in the rest."""
    x = np.asarray(x, np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        z = np.clip(x.astype(np.float64), -1000, 1000) * (_STEPS / np.log(2.0))
        k = np.rint(z)
        r = (z - k) / _STEPS
        y = (_EXP[0] * r + _EXP[1]) * (r * r) + (_EXP[2] * r + 1)
        return (y * np.exp2(k / _STEPS)).astype(np.float32)


def sincosf(x: ArrayLike) -> tuple[F32, F32]:
    """sin(x) and cos(x) in float32, for |x| below about 1.6 million."""
    x = np.asarray(x, np.float32).astype(np.float64)
    quadrant = np.rint(x * (2 / np.pi))
    r = x - quadrant * _HALF_PI_HIGH - quadrant * _HALF_PI_LOW
    r2 = r * r
    s = r + r * r2 * _SIN[0] + r * r2 * r2 * (_SIN[1] + r2 * _SIN[2])
    c = 1 + r2 * _COS[0] + r2 * r2 * _COS[1] + r2 * r2 * r2 * (_COS[2] + r2 * _COS[3])
    n = quadrant.astype(np.int64) & 3
    sine = np.where(n & 1, c, s) * np.where(n & 2, -1.0, 1.0)
    cosine = np.where(n & 1, s, c) * np.where((n == 1) | (n == 2), -1.0, 1.0)
    return sine.astype(np.float32), cosine.astype(np.float32)
