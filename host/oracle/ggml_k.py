"""Products with the K types in the arithmetic of llama.cpp's CPU backend, rounding for rounding; see ggml.py.

Activations become Q8_K: blocks of 256 with a float32 scale. A block's products are whole numbers, scales of
sub-blocks included, and exact; they are rounded to float32 once and added with a fused multiply-add.

Sources, in https://github.com/ggml-org/llama.cpp/tree/5b4ebc5/ggml/src:
ggml-quants.c               quantize_row_q8_K_ref
ggml-cpu/arch/x86/quants.c  ggml_vec_dot_q6_K_q8_K
ggml-cpu/arch/x86/repack.cpp  ggml_gemv_q4_K_8x8_q8_K, ggml_gemm_q4_K_8x8_q8_K
ggml-cpu/repack.cpp         forward_mul_mat_one_chunk
"""

from dataclasses import dataclass

import numpy as np

from pagelm.host.oracle.dequant import Raw, q4_k_parts, q6_k_parts
from pagelm.host.oracle.ggml import F64, LANES, fma, hsum
from pagelm.host.oracle.half import F32

BLOCK = 256
SUB = 32  # elements that share a scale of Q4_K
TOGETHER = 4  # rows of activations that ggml multiplies at once, where there are as many


def quantize_q8_k(x: F32) -> tuple[F32, F64]:
    """Rows (n_tokens, n) to scales (n_tokens, n/256) and quants (n_tokens, n/256, 256).

    The number farthest from 0, the first of several, becomes -127.
    """
    blocks = x.reshape(len(x), x.shape[1] // BLOCK, BLOCK)
    farthest = np.abs(blocks).argmax(axis=-1, keepdims=True)
    most = np.take_along_axis(blocks, farthest, axis=-1)
    inverse = np.divide(np.float32(-127), most, out=np.zeros_like(most), where=most != 0)
    d = np.divide(np.float32(1), inverse, out=np.zeros_like(most), where=most != 0)
    return d[..., 0], np.rint(blocks * inverse).astype(np.float64)


def rounded_q8_k(x: F32) -> F64:
    """Rows as their Q8_K blocks say: float64 holds d * quant exactly."""
    d, quants = quantize_q8_k(x)
    return (d[..., None] * quants).reshape(x.shape)


@dataclass(frozen=True, slots=True)
class Q4K:
    """A matrix of n_rows: d, dmin (n_blocks, n_rows), whole numbers by sub-block.

    weights (n_blocks, 8, 32, n_rows) are scale * q, minima (n_blocks, 8, n_rows).
    """

    d: F32
    dmin: F32
    weights: F32
    minima: F32

    @classmethod
    def pack(cls, raw: Raw, n_rows: int) -> "Q4K":
        d, dmin, scales, minima, q = q4_k_parts(raw)
        weights = q.reshape(n_rows, -1, BLOCK // SUB, SUB) * scales.reshape(n_rows, -1, BLOCK // SUB, 1)
        return cls(
            d.reshape(n_rows, -1).T,
            dmin.reshape(n_rows, -1).T,
            np.ascontiguousarray(weights.transpose(1, 2, 3, 0)),
            minima.reshape(n_rows, -1, BLOCK // SUB).transpose(1, 2, 0),
        )

    def matmul(self, x: F32) -> F32:
        """x (n_tokens, n) -> (n_tokens, n_rows).

        The first tokens, as many as are whole groups of four, are added up two sub-blocks at a time, the
        others a block at a time.
        """
        together = len(x) - len(x) % TOGETHER
        parts = [self._sums(x[:together], 2), self._sums(x[together:], BLOCK // SUB)]
        return np.concatenate(parts)

    def _sums(self, x: F32, step: int) -> F32:
        d, quants = quantize_q8_k(x)
        total, floor = np.zeros((2, len(x), self.d.shape[1]), np.float32)
        for b, weights in enumerate(self.weights):
            subs = quants[:, b].reshape(len(x), BLOCK // SUB, SUB).transpose(1, 0, 2)
            products = np.matmul(subs, weights.astype(np.float64))  # (8, n_tokens, n_rows)
            minima = subs.sum(axis=-1)[..., None] * self.minima[b][:, None]
            scale, low = d[:, b, None] * self.d[b], d[:, b, None] * self.dmin[b]
            for at in range(0, len(products), step):
                total = fma(products[at : at + step].sum(axis=0).astype(np.float32), scale, total)
                floor = fma(minima[at : at + step].sum(axis=0).astype(np.float32), low, floor)
        return total - floor


@dataclass(frozen=True, slots=True)
class Q6K:
    """A matrix of n_rows: d (n_blocks, n_rows), whole numbers by lane (n_blocks, 8, 34, n_rows).

    A lane has four of every 32 elements, scale * q, then -32 * scale of two groups of 16: it takes 32 off q.
    """

    d: F32
    weights: F32

    @classmethod
    def pack(cls, raw: Raw, n_rows: int) -> "Q6K":
        d, scales, q = q6_k_parts(raw)
        products = (q.reshape(len(q), 16, 16) * scales[:, :, None]).reshape(n_rows, -1, BLOCK)
        lanes = np.concatenate([by_lane(products), -32 * scales.reshape(n_rows, -1, LANES, 2)], axis=-1)
        return cls(d.reshape(n_rows, -1).T, np.ascontiguousarray(lanes.transpose(1, 2, 3, 0)))

    def matmul(self, x: F32) -> F32:
        """x (n_tokens, n) -> (n_tokens, n_rows)."""
        d, quants = quantize_q8_k(x)
        sums = quants.reshape(*quants.shape[:2], LANES, 2, 16).sum(axis=-1)
        lanes = np.concatenate([by_lane(quants), sums], axis=-1).transpose(1, 2, 0, 3)
        acc = np.zeros((LANES, len(x), self.d.shape[1]), np.float32)
        for b, weights in enumerate(self.weights):
            products = np.matmul(lanes[b], weights.astype(np.float64)).astype(np.float32)
            acc = fma(products, d[:, b, None] * self.d[b], acc)
        return hsum(acc)


def by_lane(x: F32 | F64) -> F32 | F64:
    """(…, 256) to (…, 8, 32): lane l has elements 4 l to 4 l + 3 of every 32."""
    split = x.reshape(*x.shape[:-1], BLOCK // 32, LANES, 4)
    return np.moveaxis(split, -2, -3).reshape(*x.shape[:-1], LANES, 32)
