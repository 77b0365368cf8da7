"""Cases of repack: the bytes of a file into tiles, bit for bit (tests/tiles.py)."""

import numpy as np
from blocks import adversarial, size_of
from kernel_case import Expect, KernelCase
from kernels.data import QUANTS, Weights, rng
from tiles import places, tiled

from pagelm.kernels import Variant
from pagelm.program import Op

OTHER = 0xA5  # bytes of rows that are not this piece's


def repack_cases() -> list[KernelCase]:
    cases = []
    for quant in QUANTS:
        plain = size_of(quant)[0] == 1
        for n_rows, n_in, at, row0, step in (
            (1, 32, 0, 0, 1),
            (70, 160, 4, 0, 1),
            (33, 96, 52, 31, 1),  # the rest of a tile and the start of the next
            (20, 64, 20, 1, 2),  # up, beside gate
            (20, 64, 0, 64, 2),
            *([(9, 33, 4, 3, 1), (5, 1, 0, 0, 1), (4, 95, 8, 33, 2)] if plain else []),
        ):
            name = f"repack-{quant.lower()}-{n_rows}x{n_in}at{at}to{row0}by{step}"
            cases.append(repack_case(name, quant, n_rows, n_in, at, row0, step))
    return cases


def repack_case(name: str, quant: str, n_rows: int, n_in: int, at: int, row0: int, step: int) -> KernelCase:
    """`n_rows` rows from byte `at` of the staging buffer on, to rows `row0`, `row0 + step`, … of a matrix."""
    r, plain = rng(name), size_of(quant)[0] == 1
    raw = adversarial(quant, r, n_rows, n_in)
    rows = row0 + step * np.arange(n_rows)
    n_matrix, n_blocks = -(-(rows[-1] + 1) // 32) * 32, -(-n_in // 32)
    whole = np.zeros((n_matrix, raw.shape[1]), np.uint8)
    whole[rows] = raw
    tile, place, _ = places(rows)
    before, expect = {}, {}
    for out, tiles in zip("qs", tiled(quant, whole.ravel(), n_matrix, n_in), strict=True):
        bits = tiles.view(f"u{tiles.itemsize}")
        before[out] = np.full(4 * bits.nbytes, OTHER, np.uint8).view(bits.dtype)[: bits.size]
        expect[out] = before[out].copy()
        if bits.size >= n_matrix:  # not the buffer of scales of a type that has none
            shape = n_matrix // 32, n_blocks, 32, -1
            expect[out].reshape(shape)[tile, :, place] = bits.reshape(shape)[tile, :, place]
    staging = r.integers(0, 256, at + (raw.size + 3) // 4 * 4, dtype=np.uint8)
    staging[at : at + raw.size] = raw.ravel()
    piece = np.array([at, n_rows, row0, step, n_in, raw.shape[1]], np.uint32)
    inputs = {"raw": staging, "piece": piece, **before}
    n = n_rows * n_blocks
    op = Op(
        "repack",
        Variant("repack", quant, scales=None if plain else "f16"),
        tuple(inputs),
        invocations=n,
        per_token=0,
    )
    return KernelCase(name, op, inputs, {out: Expect(expect[out], 0.0, "bits") for out in "qs"})


def repacked(w: Weights, at: int = 0, row0: int = 0, step: int = 1, n_matrix: int = 0) -> KernelCase:
    """To run before a kernel that reads `w`: its bytes to rows of a matrix, as in `repack_case`.

    What it writes is checked by what that kernel makes of it.
    """
    n_rows, n_in = w.values.shape
    like = Weights(w.quant, w.raw, np.broadcast_to(np.zeros(n_in), (n_matrix or n_rows, n_in)))
    staging = np.full(at + (w.raw.size + 3) // 4 * 4, OTHER, np.uint8)
    staging[at : at + w.raw.size] = w.raw.ravel()
    piece = np.array([at, n_rows, row0, step, n_in, w.raw.shape[1]], np.uint32)
    inputs = {"raw": staging, "piece": piece, **like.tiles}
    variant = Variant("repack", w.quant, scales=w.scales)
    op = Op("repack", variant, tuple(inputs), invocations=n_rows * -(-n_in // 32), per_token=0)
    anything = {out: Expect(np.zeros(inputs[out].shape), np.inf, "read by the next") for out in "qs"}
    return KernelCase(f"repack-{w.quant.lower()}", op, inputs, anything)
