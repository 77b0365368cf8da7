"""Tensor bytes to float32: one function per tensor type, named as the type in lower case.

Each takes the raw bytes of whole blocks (uint8, any length that is a multiple of the block's bytes) and
returns the elements as one flat float32 array, bit for bit what the `gguf` package's `dequantize` returns.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pagelm.host.oracle.half import F32, f16_to_f32

Raw = NDArray[np.uint8]
BLOCK = 32  # elements per block of all quantised types here


def f32(raw: Raw) -> F32:
    """4 bytes an element, little endian."""
    return raw.view("<f4").astype(np.float32, copy=False)


def f16(raw: Raw) -> F32:
    """2 bytes an element, little endian."""
    return f16_to_f32(raw.view("<u2"))


def q4_0(raw: Raw) -> F32:
    """18 bytes: d (f16), 16 bytes (low nibbles are elements 0..15, high ones 16..31); d * (q - 8)."""
    d, q = q4_0_parts(raw)
    with np.errstate(all="ignore"):
        return (d * q).reshape(-1)


def q4_1(raw: Raw) -> F32:
    """20 bytes: d (f16), m (f16), nibbles as in Q4_0; d * q + m."""
    d, m, q = q4_1_parts(raw)
    with np.errstate(all="ignore"):
        return (d * q + m).reshape(-1)


def q8_0(raw: Raw) -> F32:
    """34 bytes: d (f16), then 32 int8; d * q."""
    d, q = q8_0_parts(raw)
    with np.errstate(all="ignore"):
        return (d * q).reshape(-1)


def q4_0_parts(raw: Raw) -> tuple[F32, F32]:
    """Scales d (n_blocks, 1) and whole numbers q - 8 (n_blocks, 32) of Q4_0 blocks, both as float32."""
    blocks = raw.reshape(-1, 2 + BLOCK // 2)
    return _halves(blocks[:, :2]), _nibbles(blocks[:, 2:]) - np.float32(8)


def q4_1_parts(raw: Raw) -> tuple[F32, F32, F32]:
    """Scales d and minima m (n_blocks, 1) and whole numbers q (n_blocks, 32) of Q4_1 blocks, as float32."""
    blocks = raw.reshape(-1, 4 + BLOCK // 2)
    return _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), _nibbles(blocks[:, 4:])


def q8_0_parts(raw: Raw) -> tuple[F32, F32]:
    """Scales d (n_blocks, 1) and whole numbers q (n_blocks, 32) of Q8_0 blocks, both as float32."""
    blocks = raw.reshape(-1, 2 + BLOCK)
    return _halves(blocks[:, :2]), blocks[:, 2:].view(np.int8).astype(np.float32)


def _halves(two_bytes: Raw) -> F32:
    return f16_to_f32(np.ascontiguousarray(two_bytes).view("<u2"))


def _nibbles(packed: Raw) -> F32:
    """(n, 16) bytes to (n, 32) numbers 0..15: all low nibbles of a block come before its high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


DEQUANT: dict[str, Callable[[Raw], F32]] = {"F32": f32, "F16": f16, "Q4_0": q4_0, "Q4_1": q4_1, "Q8_0": q8_0}
