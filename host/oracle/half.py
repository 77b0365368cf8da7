"""Half precision: float32 to float16 bits and back, exact and rounded to nearest even.

numpy's own conversion does the work: it is IEEE 754 in both directions, subnormals included, and is
vectorised. The tests hold it against two independent truths: `struct`'s 'e' format (CPython's C code,
no numpy) and the rounding rule itself in exact rational arithmetic. Overflow gives infinity, as the
F16C instructions that ggml uses do, and no floating-point warning.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

F32 = NDArray[np.float32]


def f16_to_f32(bits: ArrayLike) -> F32:
    """The float32 values of float16 bit patterns (uint16, any shape). Always exact."""
    with np.errstate(all="ignore"):  # a signalling NaN becomes quiet, which numpy reports as "invalid"
        return np.asarray(bits, np.uint16).view(np.float16).astype(np.float32)


def f32_to_f16(x: ArrayLike) -> NDArray[np.uint16]:
    """The float16 bit patterns nearest to float32 values, ties to even; 65520 and more become infinity."""
    with np.errstate(all="ignore"):
        return np.asarray(x, np.float32).astype(np.float16).view(np.uint16)


def round_f16(x: ArrayLike) -> F32:
    """float32 values rounded to what a float16 can hold."""
    return f16_to_f32(f32_to_f16(x))


def round_bf16(x: ArrayLike) -> F32:
    """float32 values rounded to what a bfloat16 can hold, ties to even; NaN stays one."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = bits + (0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))
