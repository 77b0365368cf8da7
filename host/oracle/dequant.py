"""Tensor bytes to float32: one function per tensor type, named as the type in lower case.

Each takes the raw bytes of whole blocks (uint8, any length that is a multiple of the block's bytes) and
returns the elements as one flat float32 array, bit for bit what the `gguf` package's `dequantize` returns.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pagelm.host.oracle.half import F32, f16_to_f32

Raw = NDArray[np.uint8]
BLOCK = 32  # elements per block of the types that are not K-quants
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)  # twice the value


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


def q5_0(raw: Raw) -> F32:
    """22 bytes: d (f16), 32 fifth bits, nibbles as in Q4_0; d * (q - 16)."""
    blocks = raw.reshape(-1, 22)
    q = _nibbles(blocks[:, 6:]) + 16 * _bits(blocks[:, 2:6], 1) - np.float32(16)
    with np.errstate(all="ignore"):
        return (_halves(blocks[:, :2]) * q).reshape(-1)


def q5_1(raw: Raw) -> F32:
    """24 bytes: d (f16), m (f16), 32 fifth bits, nibbles as in Q4_0; d * q + m."""
    d, m, q = q5_1_parts(raw)
    with np.errstate(all="ignore"):
        return (d * q + m).reshape(-1)


def q2_k(raw: Raw) -> F32:
    """84 bytes: scales and minima (16), pairs of bits (64), d, dmin (f16); d * scale * q - dmin * minimum."""
    blocks = raw.reshape(-1, 84)
    scales, minima = blocks[:, :16] & 15, blocks[:, :16] >> 4
    return _with_minima(blocks[:, 80:], scales, minima, _groups(blocks[:, 16:80], 32, 2))


def q3_k(raw: Raw) -> F32:
    """110 bytes: third bits (32), pairs of bits (64), scales (12), d (f16); d * (scale - 32) * (q - 4)."""
    return _products(*q3_k_parts(raw))


def q4_k(raw: Raw) -> F32:
    """144 bytes: d and dmin (f16), scales and minima (12 bytes), nibbles; d * scale * q - dmin * minimum."""
    blocks = raw.reshape(-1, 144)
    return _with_minima(blocks, *_six_bits(blocks), _groups(blocks[:, 16:], 32, 4))


def q5_k(raw: Raw) -> F32:
    """176 bytes: as Q4_K, with fifth bits (32) before the nibbles."""
    blocks = raw.reshape(-1, 176)
    q = _groups(blocks[:, 48:], 32, 4) + 16 * _groups(blocks[:, 16:48], 32, 1)
    return _with_minima(blocks, *_six_bits(blocks), q)


def q6_k(raw: Raw) -> F32:
    """210 bytes: nibbles (128), pairs of high bits (64), scales (16 int8), d (f16); d * scale * (q - 32)."""
    blocks = raw.reshape(-1, 210)
    q = _groups(blocks[:, :128], 64, 4) + 16 * _groups(blocks[:, 128:192], 32, 2)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return _products(_halves(blocks[:, 208:]), scales, q - np.float32(32))


def bf16(raw: Raw) -> F32:
    """2 bytes an element: the upper half of float32."""
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def iq4_nl(raw: Raw) -> F32:
    """18 bytes: d (f16), nibbles as in Q4_0, each the place of a number in a table."""
    d, q = iq4_nl_parts(raw)
    with np.errstate(all="ignore"):
        return (d * q).reshape(-1)


def iq4_xs(raw: Raw) -> F32:
    """136 bytes: d (f16), high (2) and low (4) bits of scales, then for each of them nibbles as in IQ4_NL."""
    return _products(*iq4_xs_parts(raw))


def mxfp4(raw: Raw) -> F32:
    """17 bytes: e, nibbles as in Q4_0, each the place of a number in a table; 2^(e - 128) times it."""
    d, q = mxfp4_parts(raw)
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


def q5_0_parts(raw: Raw) -> tuple[F32, F32]:
    """Scales d (n_blocks, 1) and whole numbers q - 16 (n_blocks, 32) of Q5_0 blocks, both as float32."""
    blocks = raw.reshape(-1, 22)
    return _halves(blocks[:, :2]), _nibbles(blocks[:, 6:]) + 16 * _bits(blocks[:, 2:6], 1) - np.float32(16)


def q5_1_parts(raw: Raw) -> tuple[F32, F32, F32]:
    """As q4_1_parts, of Q5_1 blocks."""
    blocks = raw.reshape(-1, 24)
    q = _nibbles(blocks[:, 8:]) + 16 * _bits(blocks[:, 4:8], 1)
    return _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), q


def iq4_nl_parts(raw: Raw) -> tuple[F32, F32]:
    """Scales d (n_blocks, 1) and the table's whole numbers (n_blocks, 32) of IQ4_NL blocks, as float32."""
    blocks = raw.reshape(-1, 18)
    return _halves(blocks[:, :2]), IQ4[_indices(blocks[:, 2:])]


def mxfp4_parts(raw: Raw) -> tuple[F32, F32]:
    """Scales d (n_blocks, 1) and the table's whole numbers (n_blocks, 32) of MXFP4 blocks, as float32."""
    blocks = raw.reshape(-1, 17)
    with np.errstate(all="ignore"):
        d = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return d, E2M1[_indices(blocks[:, 1:])]


def q2_k_parts(raw: Raw) -> tuple[F32, F32, F32, F32, F32]:
    """d, dmin (n_blocks, 1), scales, minima (n_blocks, 16), q (n_blocks, 256) of Q2_K blocks, as float32."""
    blocks = raw.reshape(-1, 84)
    scales, minima = ((blocks[:, :16] >> at & 15).astype(np.float32) for at in (0, 4))
    q = _groups(blocks[:, 16:80], 32, 2)
    return _halves(blocks[:, 80:82]), _halves(blocks[:, 82:84]), scales, minima, q


def q3_k_parts(raw: Raw) -> tuple[F32, F32, F32]:
    """d (n_blocks, 1), scales - 32 (n_blocks, 16), q - 4 (n_blocks, 256) of Q3_K blocks, as float32."""
    blocks = raw.reshape(-1, 110)
    low, high = _groups(blocks[:, 96:104], 8, 4), _groups(blocks[:, 104:108], 4, 2)
    q = _groups(blocks[:, 32:96], 32, 2) + 4 * _groups(blocks[:, :32], 32, 1)
    return _halves(blocks[:, 108:]), low + 16 * high - np.float32(32), q - np.float32(4)


def q4_k_parts(raw: Raw) -> tuple[F32, F32, F32, F32, F32]:
    """d, dmin (n_blocks, 1), scales, minima (n_blocks, 8), q (n_blocks, 256) of Q4_K blocks, as float32."""
    blocks = raw.reshape(-1, 144)
    scales, minima = (part.astype(np.float32) for part in _six_bits(blocks))
    return _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), scales, minima, _groups(blocks[:, 16:], 32, 4)


def q5_k_parts(raw: Raw) -> tuple[F32, F32, F32, F32, F32]:
    """As q4_k_parts, of Q5_K blocks."""
    blocks = raw.reshape(-1, 176)
    scales, minima = (part.astype(np.float32) for part in _six_bits(blocks))
    q = _groups(blocks[:, 48:], 32, 4) + 16 * _groups(blocks[:, 16:48], 32, 1)
    return _halves(blocks[:, :2]), _halves(blocks[:, 2:4]), scales, minima, q


def iq4_xs_parts(raw: Raw) -> tuple[F32, F32, F32]:
    """d (n_blocks, 1), scales - 32 (n_blocks, 8), the table's numbers (n_blocks, 256) of IQ4_XS blocks."""
    blocks = raw.reshape(-1, 136)
    scales = _bits(blocks[:, 4:8], 4) + 16 * _bits(blocks[:, 2:4], 2) - np.float32(32)
    return _halves(blocks[:, :2]), scales, IQ4[_indices(blocks[:, 8:].reshape(-1, 16))].reshape(-1, 256)


def q6_k_parts(raw: Raw) -> tuple[F32, F32, F32]:
    """d (n_blocks, 1), scales (n_blocks, 16), q without its 32 taken off (n_blocks, 256) of Q6_K blocks."""
    blocks = raw.reshape(-1, 210)
    q = _groups(blocks[:, :128], 64, 4) + 16 * _groups(blocks[:, 128:192], 32, 2)
    return _halves(blocks[:, 208:]), blocks[:, 192:208].view(np.int8).astype(np.float32), q


def _halves(two_bytes: Raw) -> F32:
    return f16_to_f32(np.ascontiguousarray(two_bytes).view("<u2"))


def _indices(packed: Raw) -> Raw:
    """(n, 16) bytes to (n, 32) numbers 0..15: all low nibbles of a block come before its high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _nibbles(packed: Raw) -> F32:
    """The same as float32."""
    return _indices(packed).astype(np.float32)


def _bits(packed: Raw, width: int) -> F32:
    """(n, m) bytes to (n, 8 m / width) numbers, the lowest bits of a byte first."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    return (packed[:, :, None] >> shifts & ((1 << width) - 1)).reshape(len(packed), -1).astype(np.float32)


def _groups(packed: Raw, group: int, width: int) -> F32:
    """(n, m) bytes to (n, 8 m / width) numbers: of each `group` bytes all the lowest bits first."""
    shifts = np.arange(0, 8, width, dtype=np.uint8)[:, None]
    fields = packed.reshape(len(packed), -1, 1, group) >> shifts & ((1 << width) - 1)
    return fields.reshape(len(packed), -1).astype(np.float32)


def _products(d: F32, scales: F32, q: F32) -> F32:
    """d (n_blocks, 1) times each scale (n_blocks, n) times its share of the block's numbers, flat."""
    with np.errstate(all="ignore"):
        return ((d * scales)[:, :, None] * q.reshape(*scales.shape, -1)).reshape(-1)


def _six_bits(blocks: Raw) -> tuple[Raw, Raw]:
    """Eight scales and eight minima of each block of Q4_K or Q5_K."""
    low, mid, high = (blocks[:, at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate([low & 63, (high & 15) | (low >> 2 & 48)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | (mid >> 2 & 48)], axis=1)
    return scales, minima


def _with_minima(d_dmin: Raw, scales: Raw, minima: Raw, q: F32) -> F32:
    """d * scale * q - dmin * minimum, flat. d and dmin are the first 4 bytes; a scale has its share of q."""
    d, dmin = _halves(d_dmin[:, :2]), _halves(d_dmin[:, 2:4])
    with np.errstate(all="ignore"):
        s, m = (of[:, :, None] for of in (d * scales.astype(np.float32), dmin * minima.astype(np.float32)))
        return (s * q.reshape(*scales.shape, -1) - m).reshape(-1)


_FUNCTIONS = (
    *(f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k),
    *(iq4_nl, iq4_xs, mxfp4),
)
DEQUANT: dict[str, Callable[[Raw], F32]] = {f.__name__.upper(): f for f in _FUNCTIONS}
