"""The operations of the forward pass in float32, written for clarity; the truth that the GPU is held to.

Values between operations are float32. Sums that cost little are carried in float64, matrix products are
BLAS float32. Nothing here is shared with the guest: same formulas, separate code.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelm.host.oracle.half import F32

# OpenBLAS computes products of this size on the calling thread. Larger ones are shared with another thread
# and wait for it; where something else keeps the processor busy, that turns microseconds into milliseconds,
# 211 times a pass. Cut to pieces they cost a little more on an idle machine, and hardly more on a busy one.
THREADLESS = 8192  # elements of the matrix, with up to
ROWS = 16  # tokens


def matmul(x: F32, w: F32) -> F32:
    """x (n_tokens, n) times w (n_rows, n) transposed -> (n_tokens, n_rows)."""
    n_rows, n = w.shape
    step = max(1, THREADLESS // n)
    whole = n_rows - n_rows % step
    out = np.empty((len(x), n_rows), np.float32)
    for t in range(0, len(x), ROWS):
        part = np.ascontiguousarray(x[t : t + ROWS].T)
        pieces = np.matmul(w[:whole].reshape(whole // step, step, n), part)
        out[t : t + ROWS, :whole] = pieces.reshape(whole, part.shape[1]).T
        out[t : t + ROWS, whole:] = np.matmul(w[whole:], part).T
    return out


def rms_norm(x: F32, weight: F32, eps: float) -> F32:
    """Rows of x (n_tokens, n) scaled to unit root-mean-square, then by weight (n,)."""
    mean = np.square(x, dtype=np.float64).mean(axis=-1, keepdims=True)
    return (x / np.sqrt(mean + eps) * weight).astype(np.float32)


def rope_angles(positions: ArrayLike, n_rot: int, freq_base: float) -> NDArray[np.float64]:
    """Angles (n_tokens, n_rot / 2) in float64: position * freq_base ** (-2 i / n_rot). arXiv:2104.09864."""
    exponents = np.arange(0, n_rot, 2, dtype=np.float64) / n_rot
    return np.multiply.outer(np.asarray(positions, np.float64), np.float64(freq_base) ** -exponents)


def rope(x: F32, cos: F32, sin: F32) -> F32:
    """Rotate adjacent pairs (2i, 2i + 1) of x (n_tokens, n_head, n_rot) by angles (n_tokens, n_rot / 2)."""
    cos, sin = cos[:, None, :], sin[:, None, :]
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * cos - odd * sin
    out[..., 1::2] = even * sin + odd * cos
    return out


def argmax(logits: F32) -> int:
    """Index of the largest of `logits` (n,): the lowest on ties, never that of a NaN; -1 when all are NaN."""
    numbers = np.flatnonzero(~np.isnan(logits))
    return int(numbers[logits[numbers].argmax()]) if len(numbers) else -1


def softmax(scores: F32) -> F32:
    """Softmax over the last axis; -inf entries become 0."""
    with np.errstate(under="ignore"):
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)


def attention_scores(q: F32, k: F32, n_past: int) -> F32:
    """Scaled and causally masked q·k.

    q (n_tokens, n_head, n_embd_head), k (n_head_kv, n_past + n_tokens, n_embd_head)
    -> (n_head, n_tokens, n_past + n_tokens). Query head h reads key head h // (n_head / n_head_kv).
    """
    n_tokens, n_head, n_embd_head = q.shape
    n_head_kv, n_keys, _ = k.shape
    grouped = q.transpose(1, 0, 2).reshape(n_head_kv, -1, n_embd_head)
    scores = np.stack([matmul(heads, keys) for heads, keys in zip(grouped, k, strict=True)])
    scores = scores.reshape(n_head, n_tokens, n_keys)
    scores *= np.float32(n_embd_head**-0.5)
    future = np.arange(n_keys) > n_past + np.arange(n_tokens)[:, None]
    scores[:, future] = -np.inf
    return scores


def attention_values(weights: F32, v: F32) -> F32:
    """v (n_head_kv, n_keys, n_embd_head) summed with weights (n_head, n_tokens, n_keys).

    -> (n_tokens, n_head * n_embd_head)
    """
    n_head, n_tokens, n_keys = weights.shape
    grouped = weights.reshape(v.shape[0], -1, n_keys)
    columns = np.ascontiguousarray(v.transpose(0, 2, 1))
    out = np.stack([matmul(heads, values) for heads, values in zip(grouped, columns, strict=True)])
    out = out.reshape(n_head, n_tokens, -1)
    return out.transpose(1, 0, 2).reshape(n_tokens, -1)


def swiglu(gate: F32, up: F32) -> F32:
    """silu(gate) * up, silu(g) = g / (1 + exp(-g)). Shazeer, arXiv:2002.05202."""
    with np.errstate(over="ignore", under="ignore"):  # exp(-g) may reach infinity: the quotient is then 0
        return gate / (1 + np.exp(-gate)) * up


def log_softmax(logits: ArrayLike) -> NDArray[np.float64]:
    """Natural log probabilities over the last axis, in float64."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    with np.errstate(under="ignore"):
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
