"""The operations of the forward pass in float32, written for clarity; the truth that the GPU is held to.

Values between operations are float32. Sums that cost little are carried in float64, matrix products are
BLAS float32. Nothing here is shared with the guest: same formulas, separate code.
"""

from dataclasses import dataclass

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


def layer_norm(x: F32, weight: F32, bias: F32 | None, eps: float) -> F32:
    """Rows of x (n_tokens, n) with their mean taken off, to unit variance, by weight (n,), plus bias (n,)."""
    centred = x - x.mean(axis=-1, keepdims=True, dtype=np.float64)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    y = centred / np.sqrt(variance + eps) * weight
    return (y if bias is None else y + bias).astype(np.float32)


def rope(x: F32, cos: F32, sin: F32, halves: bool = False) -> F32:
    """Rotate pairs of x (n_tokens, n_head, n_embd_head) by angles (n_tokens, n_rot / 2).

    Pairs are (2i, 2i + 1), with `halves` (i, i + n_rot / 2). Elements from n_rot on stay as they are.
    """
    first, second = pairs(cos.shape[-1], halves)
    cos, sin = cos[:, None, :], sin[:, None, :]
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def pairs(n: int, halves: bool) -> tuple[slice, slice]:
    """Where the first and the second elements of `n` rotated pairs are in a head."""
    return (slice(0, n), slice(n, 2 * n)) if halves else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))


def argmax(logits: F32) -> int:
    """Index of the largest of `logits` (n,): the lowest on ties, never that of a NaN; -1 when all are NaN."""
    numbers = np.flatnonzero(~np.isnan(logits))
    return int(numbers[logits[numbers].argmax()]) if len(numbers) else -1


def softmax(scores: F32, sinks: F32 | None = None) -> F32:
    """Softmax over the last axis; -inf entries become 0.

    `sinks` (n_head,): one more score for each row of the first axis, which takes its share and is left out.
    """
    top = scores.max(axis=-1, keepdims=True)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    with np.errstate(under="ignore"):
        e = np.exp(scores - top)
        total = e.sum(axis=-1, keepdims=True, dtype=np.float64)
        if sinks is not None:
            total += np.exp(sinks[:, None, None] - top)
        return (e / total).astype(np.float32)


def top_experts(logits: F32, n_used: int, over_all: bool) -> tuple[NDArray[np.int64], F32]:
    """The `n_used` largest of each row of logits (n_tokens, n_expert), largest first, and their weights.

    Weights are a softmax over the chosen, or `over_all` of the row; both (n_tokens, n_used).
    arXiv:2101.03961.
    """
    chosen = np.argsort(-logits, axis=-1, kind="stable")[:, :n_used]
    if over_all:
        return chosen, np.take_along_axis(softmax(logits), chosen, axis=-1)
    return chosen, softmax(np.take_along_axis(logits, chosen, axis=-1))


@dataclass(frozen=True, slots=True)
class Scoring:
    """How queries score keys: q·k * scale, capped, over the last `window` keys. 0 is no cap, no window.

    `sinks` (n_head,): scores that no key has, for the softmax.
    """

    scale: float
    cap: float = 0.0
    window: int = 0
    sinks: F32 | None = None


def capped(x: F32, cap: float) -> F32:
    """cap * tanh(x / cap); x itself where the cap is 0."""
    return np.float32(cap) * np.tanh(x / np.float32(cap)) if cap else x


def attention_scores(q: F32, k: F32, n_past: int, scoring: Scoring) -> F32:
    """Scaled, capped and causally masked q·k.

    q (n_tokens, n_head, n_embd_head), k (n_head_kv, n_past + n_tokens, n_embd_head)
    -> (n_head, n_tokens, n_past + n_tokens). Query head h reads key head h // (n_head / n_head_kv). What a
    query does not see, the future and what lies before its window, is -inf.
    """
    n_tokens, n_head, n_embd_head = q.shape
    n_head_kv, n_keys, _ = k.shape
    grouped = q.transpose(1, 0, 2).reshape(n_head_kv, -1, n_embd_head)
    scores = np.stack([matmul(heads, keys) for heads, keys in zip(grouped, k, strict=True)])
    scores = capped(scores.reshape(n_head, n_tokens, n_keys) * np.float32(scoring.scale), scoring.cap)
    scores[:, ~visible(n_tokens, n_past, scoring.window)] = -np.inf
    return scores


def visible(n_tokens: int, n_past: int, window: int) -> NDArray[np.bool_]:
    """Which of the keys (n_tokens, n_past + n_tokens) each token sees: itself and `window` - 1 before it."""
    back = n_past + np.arange(n_tokens)[:, None] - np.arange(n_past + n_tokens)
    return (back >= 0) & (back < window) if window else back >= 0


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


def geglu(gate: F32, up: F32) -> F32:
    """gelu(gate) * up. Shazeer, arXiv:2002.05202."""
    return gelu(gate) * up


def clamped_swiglu(gate: F32, up: F32) -> F32:
    """g / (1 + exp(-1.702 g)) * (u + 1), g = gate up to 7, u = up within -7 and 7. arXiv:2508.10925."""
    gate, up = np.minimum(gate, np.float32(7)), np.clip(up, np.float32(-7), np.float32(7))
    with np.errstate(over="ignore", under="ignore"):
        return gate / (1 + np.exp(np.float32(-1.702) * gate)) * (up + 1)


def gelu(x: F32) -> F32:
    """x times the normal distribution's integral up to x, by the tanh form of arXiv:1606.08415."""
    with np.errstate(over="ignore", under="ignore"):  # the cube of a large x: tanh is then 1 or -1
        inner = np.float32((2 / np.pi) ** 0.5) * x * (1 + np.float32(0.044715) * x * x)
        return np.float32(0.5) * x * (1 + np.tanh(inner))


def log_softmax(logits: ArrayLike) -> NDArray[np.float64]:
    """Natural log probabilities over the last axis, in float64."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    with np.errstate(under="ignore"):
        return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
