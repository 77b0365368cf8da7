"""Rotary angles, computed on the CPU in double precision and rounded once to f32."""

import math
from array import array
from collections.abc import Sequence

from .errors import ArchError
from .hparams import Rope

LEAST_RAMP = 0.001  # pairs between those that yarn leaves and those that it scales, at least


def frequencies(rope: Rope, n_rot: int, factors: Sequence[float] | None = None) -> list[float]:
    """Angle of each of the n_rot / 2 pairs at position 1, in radians.

    Of pair j it is freq_base ** (-2j / n_rot), divided by its factor, if any, and scaled: all of them, or
    with yarn those that turn slowly. Sources: arXiv:2104.09864, 2306.15595 (linear), 2309.00071 (yarn).
    """
    plain = [rope.freq_base ** (-2 * j / n_rot) for j in range(n_rot // 2)]
    if factors is not None:
        plain = [frequency / factor for frequency, factor in zip(plain, factors, strict=True)]
    kept = [0.0] * len(plain)  # the share of a pair that is not scaled
    if rope.yarn is not None:

        def pair_of(turns: float) -> float:
            """The pair that turns so often in the context before scaling."""
            return n_rot * math.log(rope.n_ctx_orig / (turns * 2 * math.pi)) / (2 * math.log(rope.freq_base))

        fast, slow = rope.yarn
        low, high = max(0, math.floor(pair_of(fast))), min(n_rot - 1, math.ceil(pair_of(slow)))
        kept = [1 - min(1, max(0, (j - low) / max(LEAST_RAMP, high - low))) for j in range(len(plain))]
    return [f * (rope.scale * (1 - share) + share) for f, share in zip(plain, kept, strict=True)]


def check_factors(file: str, tensor: str, factors: Sequence[float]) -> None:
    """Raises: ArchError for factors that nothing can be divided by."""
    for i, factor in enumerate(factors):
        if not factor or math.isnan(factor):
            raise ArchError(f"{file}: element {i} of {tensor} is {factor:g}; allowed: numbers other than 0")


def magnitude(rope: Rope) -> float:
    """What cosines and sines are multiplied by. Source: arXiv:2309.00071, section 3.4."""
    return rope.attn_factor * (1 + 0.1 * math.log(1 / rope.scale) if rope.yarn is not None else 1)


def angle_table(rope: Rope, n_ctx: int, n_rot: int, factors: Sequence[float] | None = None) -> bytes:
    """cos and sin for each position and pair, times `magnitude`: f32, (n_ctx, n_rot / 2, 2)."""
    turns, size = frequencies(rope, n_rot, factors), magnitude(rope)
    table = array("f", bytes(4 * n_ctx * n_rot))
    at = 0
    cos, sin = math.cos, math.sin
    for position in range(n_ctx):
        for frequency in turns:
            angle = position * frequency
            table[at] = size * cos(angle)
            table[at + 1] = size * sin(angle)
            at += 2
    return table.tobytes()
