"""The operations in the arithmetic of llama.cpp's CPU backend, rounding for rounding.

Quantising an activation is a step function: one last bit of difference before it becomes a whole quant
after it, and a few layers later the difference is as large as the quantisation error itself. So sums that
are merely as exact come no closer to llama.cpp than float32 does; the order of additions has to be the same.
This file follows ggml-cpu's AVX2 and AVX-512 code (the build named zen4): eight accumulators per dot
product, fused multiply-add, float16 key/value cache, online softmax with a float16 accumulator.

Sources, in https://github.com/ggml-org/llama.cpp/tree/5b4ebc5/ggml/src/ggml-cpu (release v0.4.0):
arch/x86/quants.c  quantize_row_q8_0, quantize_row_q8_1, ggml_vec_dot_q4_0_q8_0, ggml_vec_dot_q4_1_q8_1,
                   ggml_vec_dot_q8_0_q8_0, hsum_float_8
ops.cpp            rms_norm_f32, rope_cache_init, rotate_pairs, flash_attn_ext_f16_one_chunk
vec.h, vec.cpp     ggml_v_expf, ggml_v_silu, ggml_vec_mad_f16, ggml_vec_scale_f16, ggml_vec_dot_f16
simd-mappings.h    GGML_F32x16_REDUCE
Where C leaves fusing to the compiler, the choice here is the one that GCC 11 made in that build.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelm.host.oracle.dequant import BLOCK
from pagelm.host.oracle.half import F32, f16_to_f32, f32_to_f16, round_f16
from pagelm.host.oracle.libm import expf, sincosf
from pagelm.host.oracle.ops import pairs

F64 = NDArray[np.float64]
LANES = 8  # float32 accumulators of one dot product: a 256-bit register
TILE = 32768  # accumulators worked on at once, so that they stay in the processor's cache


def _floats(text: str) -> F32:
    return np.array([float.fromhex(h) for h in text.split()], np.float32)


# ggml_v_expf's constants; the polynomial's are of b, b^2 … b^5.
_SHIFT, _LOG2E, _LN2_HIGH, _LN2_LOW = _floats("0x1.8p23 0x1.715476p0 0x1.62e4p-1 0x1.7f7d1cp-20")
_P = _floats("0x1.ffffecp-1 0x1.fffdb6p-2 0x1.555e66p-3 0x1.573e2ep-5 0x1.0e402p-7")


def fma(a: ArrayLike, b: ArrayLike, c: ArrayLike) -> F32:
    """a * b + c in one float32 rounding.

    The product is exact in float64. The sum is rounded there first, which changes the float32 result only
    when it falls on a tie of 29 bits.
    """
    product = np.multiply(a, b, dtype=np.float64)
    return np.add(product, c, dtype=np.float64).astype(np.float32)


def quantize_q8(x: F32) -> tuple[F32, F32, F32]:
    """Rows (n_tokens, n) to blocks of 32: scales d, quants, sums.

    d (n_tokens, n/32, 1) is max / 127 as f16 holds it; quants (n_tokens, n/32, 32) are x * (127 / max) to the
    nearest, ties to even; sums (n_tokens, n/32) are Q8_1's s, f16(d * sum of quants) with d not yet rounded.
    """
    blocks = x.reshape(len(x), -1, BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    d = largest / np.float32(127)
    inverse = np.divide(np.float32(127), largest, out=np.zeros_like(d), where=largest != 0)
    quants = np.rint(blocks * inverse)
    sums = round_f16(d[..., 0] * quants.sum(axis=-1))
    return round_f16(d), quants, sums


def dot_lanes(weights: F32, x: F64) -> F32:
    """Block dot products accumulated as ggml's vec_dot does, over all rows and tokens.

    weights (n_blocks, lanes, n, n_rows) and x (n_blocks, lanes, n_tokens, n) hold quants times their f16
    scale, so that every product and every sum of n of them is exact in float64. -> (n_tokens, n_rows)
    """
    n_blocks, lanes, _, n_rows = weights.shape
    n_tokens = x.shape[2]
    out = np.empty((n_tokens, n_rows), np.float32)
    step = max(16, TILE // (lanes * n_tokens))
    for r in range(0, n_rows, step):
        w = weights[..., r : r + step].astype(np.float64)
        acc = np.zeros((lanes, n_tokens, w.shape[-1]), np.float32)
        block = np.empty(acc.shape, np.float64)
        for b in range(n_blocks):
            np.matmul(x[b], w[b], out=block)
            np.add(block, acc, out=block)
            acc[...] = block  # the one rounding of acc = fmadd(d, q, acc)
        out[:, r : r + step] = hsum(acc)
    return out


def hsum(acc: F32) -> F32:
    """Sum of the lanes (axis 0) in hsum_float_8's order: upper half onto lower half, until one is left."""
    while len(acc) > 1:
        half = len(acc) // 2
        acc = acc[half:] + acc[:half]
    return acc[0]


def chain(a: F32, b: F32) -> F32:
    """a (n_tokens, n) times b (n_rows, n) by one chain of fused multiply-adds -> (n_tokens, n_rows)."""
    total = np.zeros((len(a), len(b)), np.float32)
    for i in range(a.shape[1]):
        total = fma(a[:, i, None], b[None, :, i], total)
    return total


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Float32 squares summed in float64; mean, scale and both products in float32."""
    mean = (np.square(x).sum(axis=-1, keepdims=True, dtype=np.float64) / x.shape[-1]).astype(np.float32)
    scale = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return x * scale * weight


def rope_cos_sin(
    positions: ArrayLike, n_rot: int, freq_base: float, scale: float = 1.0, factors: F32 | None = None
) -> tuple[F32, F32]:
    """Cosines and sines (n_tokens, n_rot / 2) of angles multiplied up in float32: ggml_rope_cache_init.

    `factors` (n_rot / 2) divide them, `scale` multiplies them.
    """
    step = np.float32(np.float64(freq_base) ** np.float64(np.float32(-2) / np.float32(n_rot)))
    theta = np.asarray(positions, np.float32)
    angles = np.empty((len(theta), n_rot // 2), np.float32)
    for i in range(n_rot // 2):
        angles[:, i] = theta
        theta = theta * step
    if factors is not None:
        angles = angles / factors
    sin, cos = sincosf(np.float32(scale) * angles)
    return cos, sin


def rope(x: F32, cos: F32, sin: F32, halves: bool = False) -> F32:
    """As ops.rope; rotate_pairs, where the compiler fuses the first product with the sum."""
    first, second = pairs(cos.shape[-1], halves)
    cos, sin = cos[:, None, :], sin[:, None, :]
    a, b = x[..., first], x[..., second]
    out = x.copy()
    out[..., first] = fma(a, cos, -(b * sin))
    out[..., second] = fma(a, sin, b * cos)
    return out


def v_expf(x: F32) -> F32:
    """exp by ggml_v_expf's polynomial: n = round(x / ln 2), b = x - n ln 2, 2^n * p(b).

    ggml leaves the float32 range at |n| > 192, this at |n| > 300; both are 0 or infinity by then.
    """
    z = fma(x, _LOG2E, _SHIFT)
    n = z - _SHIFT
    b = fma(-n, _LN2_LOW, fma(-n, _LN2_HIGH, x))
    square = b * b
    p = fma(fma(fma(_P[4], b, _P[3]), square, fma(_P[2], b, _P[1])), square, fma(_P[0], b, 1))
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(p, np.clip(n, -300, 300).astype(np.int32)).astype(np.float32)


def geglu(gate: F32, up: F32) -> F32:
    """gelu(gate) * up, gelu from a table of half floats: ggml_vec_geglu_f32."""
    inside = _GELU[f32_to_f16(gate)]
    return np.where(gate <= -10, np.float32(0), np.where(gate >= 10, gate, inside)) * up


def _gelu_table() -> F32:
    """gelu of every half float, as a half float: ggml_gelu_f32, where the compiler fuses 1 + a * x."""
    with np.errstate(all="ignore"):
        x = f16_to_f32(np.arange(1 << 16))
        inner = np.float32(0.79788456) * x * fma(np.float32(0.044715) * x, x, 1)
        tanh = np.tanh(inner.astype(np.float64)).astype(np.float32)
        return round_f16(np.float32(0.5) * x * (1 + tanh))


_GELU = _gelu_table()


def swiglu(gate: F32, up: F32) -> F32:
    """gate / (1 + v_expf(-gate)) * up, each step rounded to float32: ggml_vec_swiglu_f32."""
    return gate / (np.float32(1) + v_expf(-gate)) * up


def dot_f16(q: F32, k: F32) -> F32:
    """Dot products over the last axis of values that float16 holds, in ggml_vec_dot_f16's order (AVX-512).

    Four registers of sixteen lanes take 64 elements at a time; what is left over is added in float64.
    """
    n = q.shape[-1]
    whole = n - n % 64
    acc = np.zeros((*np.broadcast_shapes(q.shape, k.shape)[:-1], 64), np.float32)
    for i in range(0, whole, 64):
        acc = acc + q[..., i : i + 64] * k[..., i : i + 64]  # f16 products are exact: same as fused
    total = hsum(np.moveaxis(acc, -1, 0)).astype(np.float64)
    for i in range(whole, n):
        total = total + q[..., i] * k[..., i]
    return total.astype(np.float32)


def flash_attention(
    q: F32, k: F32, v: F32, n_past: int, scale: np.float32 | None = None, window: int = 0
) -> F32:
    """Online softmax over the keys in order, those before the window left out: flash_attn_ext_f16_one_chunk.

    q (n_tokens, n_head, n_embd_head), k and v (n_head_kv, n_keys, n_embd_head) with values that float16 holds
    -> (n_tokens, n_head * n_embd_head). The accumulator is rounded to float16 after every key.
    """
    n_tokens, n_head, n_embd_head = q.shape
    group = n_head // len(k)
    qh = round_f16(q).transpose(1, 0, 2)
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    if scale is None:
        scale = np.float32(1) / np.sqrt(np.float32(n_embd_head))
    top = np.full((n_head, n_tokens, 1), -np.inf, np.float32)
    total = np.zeros_like(top)
    acc = np.zeros((n_head, n_tokens, n_embd_head), np.float32)
    for key in range(k.shape[1]):
        last = max(0, key - n_past + window) if window else None
        rows = slice(max(0, key - n_past), last)  # the tokens that may see this key
        s = (dot_f16(qh[:, rows], k[:, None, key]) * scale)[..., None]
        m, a = top[:, rows], acc[:, rows]
        rises = s > m
        new = np.where(rises, s, m)
        shrink, weight = expf(m - new), expf(s - new)
        a = np.where(rises, round_f16(a * shrink), a)
        acc[:, rows] = round_f16(fma(weight, v[:, None, key], a))
        total[:, rows] = total[:, rows] * shrink + weight  # not fused, unlike the others
        top[:, rows] = new
    out = acc * (np.float32(1) / total)
    return out.transpose(1, 0, 2).reshape(n_tokens, -1)
