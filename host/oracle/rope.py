"""How far rope turns each pair of a head, in float64: base, factors, linear scaling and YaRN.

The frequencies alone; rotating with them is in ops.py. The formulas are the guest's, the code is not.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pagelm.host.oracle.half import F32
from pagelm.hparams import Rope

F64 = NDArray[np.float64]


def frequencies(rope: Rope, n_rot: int, factors: ArrayLike | None = None) -> F64:
    """Radians a position for each of the n_rot / 2 pairs: freq_base ** (-2 i / n_rot), scaled as `rope` says.

    `factors` (n_rot / 2) divide them. Sources: arXiv:2104.09864; YaRN, arXiv:2309.00071.
    """
    pair = np.arange(n_rot // 2, dtype=np.float64)
    own = np.float64(rope.freq_base) ** (-2 * pair / n_rot)
    if factors is not None:
        own = own / np.asarray(factors, np.float64)
    kept = kept_shares(rope, n_rot) if rope.yarn else 0.0
    return own * (rope.scale * (1 - kept) + kept)


def kept_shares(rope: Rope, n_rot: int) -> F64:
    """YaRN: how much of its own frequency each pair keeps. 1 for those that turn fast, 0 for slow ones."""
    assert rope.yarn
    fast, slow = (_pair_of(turns, rope, n_rot) for turns in rope.yarn)
    low, high = max(0, math.floor(fast)), min(n_rot - 1, math.ceil(slow))
    way = (np.arange(n_rot // 2) - low) / max(0.001, high - low)
    return 1 - np.clip(way, 0, 1)


def _pair_of(turns: float, rope: Rope, n_rot: int) -> float:
    """The pair, as a fraction, that turns so many times in the context before scaling."""
    return n_rot * math.log(rope.n_ctx_orig / (2 * math.pi * turns)) / (2 * math.log(rope.freq_base))


def magnitude(rope: Rope) -> float:
    """What cosines and sines are multiplied by."""
    return rope.attn_factor * (1 + 0.1 * math.log(1 / rope.scale) if rope.yarn else 1.0)


def cos_sin(
    positions: ArrayLike, rope: Rope, n_rot: int, factors: ArrayLike | None = None
) -> tuple[F32, F32]:
    """Cosines and sines (n_tokens, n_rot / 2) of what `rope` turns at `positions`, times its magnitude."""
    angles = np.multiply.outer(np.asarray(positions, np.float64), frequencies(rope, n_rot, factors))
    size = magnitude(rope)
    return (np.cos(angles) * size).astype(np.float32), (np.sin(angles) * size).astype(np.float32)
