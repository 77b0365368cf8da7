"""Products with the K types in the arithmetic of llama.cpp's CPU backend, rounding for rounding; see ggml.py.

Activations become Q8_K: blocks of 256 with a float32 scale. A block's products are whole numbers, scales of
sub-blocks included, and exact; they are rounded to float32 once and added with a fused multiply-add.

Sources, in https://github.com/ggml-org/llama.cpp/tree/5b4ebc5/ggml/src:
ggml-quants.c               quantize_row_q8_K_ref
ggml-cpu/arch/x86/quants.c  ggml_vec_dot_q3_K_q8_K, ggml_vec_dot_q5_K_q8_K, ggml_vec_dot_q6_K_q8_K,
                            ggml_vec_dot_iq4_xs_q8_K
ggml-cpu/arch/x86/repack.cpp  ggml_gemv_q4_K_8x8_q8_K, ggml_gemm_q4_K_8x8_q8_K, and of q2_K
ggml-cpu/repack.cpp         forward_mul_mat_one_chunk
ggml-cpu/tiled/tiled.cpp    ggml_compute_forward_mul_mat_tiled (its order was seen for IQ4_XS alone)
"""

from dataclasses import dataclass, replace

import numpy as np

from pagelm.host.oracle.dequant import (
    Raw,
    iq4_xs_parts,
    q2_k_parts,
    q3_k_parts,
    q4_k_parts,
    q5_k_parts,
    q6_k_parts,
)
from pagelm.host.oracle.ggml import F64, LANES, fma, hsum
from pagelm.host.oracle.half import F32

BLOCK = 256
SUB = 32  # elements that share a minimum of Q5_K
TOGETHER = 4  # rows of activations that ggml multiplies at once, where there are as many
TILED = 8  # as many rows or more take another way through IQ4_XS


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


@dataclass(frozen=True, slots=True)
class Interleaved:
    """A matrix of n_rows, whole eights, which ggml interleaves: d, dmin (n_blocks, n_rows), whole numbers.

    weights (n_blocks, n_subs, 256 / n_subs, n_rows) are scale * q, minima (n_blocks, n_subs, n_rows). The
    tokens that come in whole groups of four are added up `step` sub-blocks at a time, others a block.
    """

    d: F32
    dmin: F32
    weights: F32
    minima: F32
    step: int

    @classmethod
    def pack_q2_k(cls, raw: Raw, n_rows: int) -> "Interleaved":
        return cls._pack(n_rows, *q2_k_parts(raw), step=8)

    @classmethod
    def pack_q4_k(cls, raw: Raw, n_rows: int) -> "Interleaved":
        return cls._pack(n_rows, *q4_k_parts(raw), step=2)

    @classmethod
    def _pack(
        cls, n_rows: int, d: F32, dmin: F32, scales: F32, minima: F32, q: F32, step: int
    ) -> "Interleaved":
        n_subs = scales.shape[1]
        weights = q.reshape(n_rows, -1, n_subs, BLOCK // n_subs) * scales.reshape(n_rows, -1, n_subs, 1)
        return cls(
            d.reshape(n_rows, -1).T,
            dmin.reshape(n_rows, -1).T,
            np.ascontiguousarray(weights.transpose(1, 2, 3, 0)),
            minima.reshape(n_rows, -1, n_subs).transpose(1, 2, 0),
            step,
        )

    def matmul(self, x: F32) -> F32:
        """x (n_tokens, n) -> (n_tokens, n_rows)."""
        together = len(x) - len(x) % TOGETHER
        parts = [self._sums(x[:together], self.step), self._sums(x[together:], self.weights.shape[1])]
        return np.concatenate(parts)

    def _sums(self, x: F32, step: int) -> F32:
        d, quants = quantize_q8_k(x)
        total, floor = np.zeros((2, len(x), self.d.shape[1]), np.float32)
        for b, weights in enumerate(self.weights):
            subs = quants[:, b].reshape(len(x), *weights.shape[:2]).transpose(1, 0, 2)
            products = np.matmul(subs, weights.astype(np.float64))  # (n_subs, n_tokens, n_rows)
            minima = subs.sum(axis=-1)[..., None] * self.minima[b][:, None]
            scale, low = d[:, b, None] * self.d[b], d[:, b, None] * self.dmin[b]
            for at in range(0, len(products), step):
                total = fma(products[at : at + step].sum(axis=0).astype(np.float32), scale, total)
                floor = fma(minima[at : at + step].sum(axis=0).astype(np.float32), low, floor)
        return total - floor


@dataclass(frozen=True, slots=True)
class ByLane:
    """A matrix of n_rows: d (n_blocks, n_rows), whole numbers by lane (n_blocks, 8, 32, n_rows).

    A lane has four of every 32 elements, scale * q. Of Q6_K it has 34 numbers, the last two -32 * scale of
    two groups of 16: they take 32 off q. Q5_K has dmin (n_blocks, n_rows) and minima (n_blocks, 8, n_rows).
    `tiled`: from TILED tokens on a block's whole product is added at once.
    """

    d: F32
    weights: F32
    dmin: F32 | None = None
    minima: F32 | None = None
    tiled: bool = False

    @classmethod
    def pack_q3_k(cls, raw: Raw, n_rows: int) -> "ByLane":
        return cls._pack(n_rows, *q3_k_parts(raw))

    @classmethod
    def pack_iq4_xs(cls, raw: Raw, n_rows: int) -> "ByLane":
        return replace(cls._pack(n_rows, *iq4_xs_parts(raw)), tiled=True)

    @classmethod
    def pack_q5_k(cls, raw: Raw, n_rows: int) -> "ByLane":
        d, dmin, scales, minima, q = q5_k_parts(raw)
        by_block = minima.reshape(n_rows, -1, BLOCK // SUB).transpose(1, 2, 0)
        return replace(cls._pack(n_rows, d, scales, q), dmin=dmin.reshape(n_rows, -1).T, minima=by_block)

    @classmethod
    def pack_q6_k(cls, raw: Raw, n_rows: int) -> "ByLane":
        d, scales, q = q6_k_parts(raw)
        return cls._pack(n_rows, d, scales, q, -32 * scales.reshape(n_rows, -1, LANES, 2))

    @classmethod
    def _pack(cls, n_rows: int, d: F32, scales: F32, q: F32, more: F32 | None = None) -> "ByLane":
        products = q.reshape(*scales.shape, -1) * scales[:, :, None]
        lanes = by_lane(products.reshape(n_rows, -1, BLOCK))
        if more is not None:
            lanes = np.concatenate([lanes, more], axis=-1)
        return cls(d.reshape(n_rows, -1).T, np.ascontiguousarray(lanes.transpose(1, 2, 3, 0)))

    def matmul(self, x: F32) -> F32:
        """x (n_tokens, n) -> (n_tokens, n_rows)."""
        d, quants = quantize_q8_k(x)
        lanes = by_lane(quants)
        if self.weights.shape[2] > lanes.shape[-1]:
            sums = quants.reshape(*quants.shape[:2], LANES, 2, 16).sum(axis=-1)
            lanes = np.concatenate([lanes, sums], axis=-1)
        whole = self.tiled and len(x) >= TILED
        acc = np.zeros((1 if whole else LANES, len(x), self.d.shape[1]), np.float32)
        for b, weights in enumerate(self.weights):
            products = np.matmul(lanes[:, b].transpose(1, 0, 2), weights.astype(np.float64))
            if whole:
                products = products.sum(axis=0, keepdims=True)
            acc = fma(products.astype(np.float32), d[:, b, None] * self.d[b], acc)
        return hsum(acc) if self.minima is None else hsum(acc) + self._floor(d, quants)

    def _floor(self, d: F32, quants: F64) -> F32:
        """What the minima take off, (n_tokens, n_rows)."""
        assert self.dmin is not None and self.minima is not None
        total = np.zeros((len(d), self.dmin.shape[1]), np.float32)
        for b, minima in enumerate(self.minima):
            sums = quants[:, b].reshape(len(d), BLOCK // SUB, SUB).sum(axis=-1)
            total = fma(-d[:, b, None] * self.dmin[b], sums @ minima.astype(np.float64), total)
        return total


def by_lane(x: F32 | F64) -> F32 | F64:
    """(…, 256) to (…, 8, 32): lane l has elements 4 l to 4 l + 3 of every 32."""
    split = x.reshape(*x.shape[:-1], BLOCK // 32, LANES, 4)
    return np.moveaxis(split, -2, -3).reshape(*x.shape[:-1], LANES, 32)
