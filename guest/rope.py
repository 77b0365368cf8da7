"""Rotary angles, computed on the CPU in double precision and rounded once to f32."""

import math
from array import array


def angle_table(n_ctx: int, n_rot: int, freq_base: float) -> bytes:
    """cos and sin for each position and pair: f32, (n_ctx, n_rot / 2, 2).

    Angle of pair j at position p: p * freq_base ** (-2j / n_rot). Source: arXiv:2104.09864.
    """
    frequencies = [freq_base ** (-2 * j / n_rot) for j in range(n_rot // 2)]
    table = array("f", bytes(4 * n_ctx * n_rot))
    at = 0
    cos, sin = math.cos, math.sin
    for position in range(n_ctx):
        for frequency in frequencies:
            angle = position * frequency
            table[at] = cos(angle)
            table[at + 1] = sin(angle)
            at += 2
    return table.tobytes()
