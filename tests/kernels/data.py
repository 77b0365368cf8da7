"""What the case tables share: numbers that are hard on a kernel, and matrices with what they stand for.

Truth is numpy in float64 and, for tensor types, the `gguf` package. Expected values never come from pagelm.
"""

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import gguf
import numpy as np
from blocks import random_blocks, size_of, values_of
from tiles import TILED, tiled

from pagelm.quants import QUANTS as TABLE
from pagelm.quants import SUPPORTED

EPS32 = 2.0**-23  # one ulp of 1.0
QUANTS = TILED  # these go through every kernel; what makes the others different, through two (see MORE)
# Those that numpy has no tiles of: repack makes what the kernels read of them, and what they then compute is
# held against the values that the file's bytes stand for.
MORE = tuple(quant for quant in SUPPORTED if quant not in QUANTS)
SHARERS = {"alone": 1, "quad": 4}


class Tile(NamedTuple):
    """How an invocation of a product kernel goes over its rows, and how many of what it has."""

    pairs: int
    tokens: int
    rows: str = "registers"
    blocks: int = 1

    @property
    def name(self) -> str:
        return f"{self.rows}-p{self.pairs}t{self.tokens}"

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        sizes = (("P", self.pairs), ("T", self.tokens))
        return (*sizes, ("C", self.blocks)) if self.rows != "registers" else sizes


TILES = (
    *(Tile(p, 1) for p in (1, 2, 4)),
    Tile(4, 4),
    Tile(4, 8),
    *(Tile(p, 1, "loop", 2) for p in (4, 16, 32)),
    *(Tile(p, t, "loop_tokens", 1 + p // 32) for t in (4, 8) for p in (8, 16, 32)),
)
ALL = list(product(QUANTS, SHARERS, TILES))


def rng(name: str) -> np.random.Generator:
    """A generator of its own for each case, so that adding one leaves the others as they are."""
    return np.random.default_rng(list(name.encode()))


def spiky(r: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal values with a few outliers of 1e3 to 1e4: near-uniform input hides errors."""
    x = r.standard_normal(shape).astype(np.float32)
    x.flat[r.integers(0, x.size, max(1, x.size // 97))] *= np.float32(3000)
    return x


def padded(n: int) -> int:
    return -(-n // 32) * 32


def rows(x: np.ndarray, stride: int) -> np.ndarray:
    """Rows of `x` at a stride, the rest zero."""
    out = np.zeros((x.shape[0], stride), np.float32)
    out[:, : x.shape[1]] = x
    return out


def filled(value: float, *shape: int) -> np.ndarray:
    """A buffer whose values show where nothing was written."""
    return np.full(shape, value, np.float32)


def state(n_past: int, n_tokens: int, tokens: list[int] | None = None) -> np.ndarray:
    return np.array([n_past, n_tokens, 77, 0, *(tokens or [0] * max(1, n_tokens))], np.uint32)


def f64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# ---- matrices ----


@dataclass(frozen=True)
class Weights:
    """A matrix as the file has it, and the values it stands for."""

    quant: str
    raw: np.ndarray  # (rows, bytes)
    values: np.ndarray  # (rows, n_in) float64, by the gguf package

    def __getitem__(self, part: slice) -> "Weights":
        return Weights(self.quant, self.raw[part], self.values[part])

    @property
    def tiles(self) -> dict[str, np.ndarray]:
        """The inputs `q` and `s` of a kernel; zeros that repack fills, of MORE types."""
        if self.quant in MORE:
            n_rows, n_in = self.values.shape
            cells, row = padded(n_rows) * (padded(n_in) // 32), TABLE[self.quant]
            nbytes = row.cell_bytes * cells, max(4, row.scale_bytes("f16", cells))
            return {name: np.zeros(n // 4, np.uint32) for name, n in zip("qs", nbytes, strict=True)}
        return dict(zip("qs", tiled(self.quant, self.raw.ravel(), *self.values.shape), strict=True))

    @property
    def scales(self) -> str | None:
        """How `tiles` keeps them: as the file does (`widened` makes cases with f32 of these)."""
        return "f16" if TABLE[self.quant].wide else None

    @property
    def spread(self) -> np.ndarray:
        """Per weight, the size of the numbers that it is put together from: rounding is relative to it.

        The kernels add up d q x and bring zero points and minima in once for 32 weights, so what is rounded
        is as large as the largest quant, however small the weight.
        """
        size = size_of(self.quant)[0]
        if size == 1:
            return np.abs(self.values)
        if self.quant in MORE:  # with minima or zero points, up to four times the largest weight of a block
            blocks = np.abs(self.values).reshape(len(self.values), -1, size)
            return np.broadcast_to(4 * blocks.max(-1, keepdims=True), blocks.shape).reshape(self.values.shape)
        halves = 2 if self.quant == "Q4_1" else 1
        blocks = self.raw.reshape(len(self.raw), self.values.shape[1] // 32, -1)[:, :, : 2 * halves]
        scales = np.abs(f64(blocks.copy().view(np.float16)))
        size = (255 if self.quant == "Q8_0" else 16) * scales[..., 0]
        return np.repeat(size + scales[..., 1] if halves == 2 else size, 32, axis=1)

    def products(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x Wᵀ, and the size of what was added up for it, both (tokens, rows)."""
        return f64(x) @ self.values.T, np.abs(f64(x)) @ self.spread.T


def from_raw(quant: str, raw: np.ndarray) -> Weights:
    return Weights(quant, raw, f64(values_of(quant, raw)))


def quantised(quant: str, weights: np.ndarray) -> Weights:
    """Rows of `weights` in a type. Of those that the package cannot write, random blocks instead."""
    w = weights.astype(np.float32)
    if quant in ("F32", "F16"):
        data = w.astype({"F32": np.float32, "F16": np.float16}[quant])
    else:
        try:
            data = gguf.quants.quantize(w, gguf.GGMLQuantizationType[quant])
        except NotImplementedError:
            data = random_blocks(quant, rng(f"{quant}{w.shape}"), *w.shape)
    return from_raw(quant, data.view(np.uint8).reshape(len(w), -1))


def integers(quant: str, r: np.random.Generator, n_rows: int, n_in: int) -> Weights:
    """Small integers that every type holds exactly: sums of their products do not depend on the order."""
    low, high = {"Q4_0": (-8, 7), "Q4_1": (0, 15), "Q8_0": (-127, 127)}.get(quant, (-9, 9))
    w = r.integers(low, high + 1, (n_rows, n_in))
    w[:, ::32] = high if quant == "Q8_0" else low  # makes the scale of a block 1
    w[:, 1::32] = high
    made = quantised(quant, w)
    assert (made.values == w).all()
    return made


# ---- rope ----


def angles(n_ctx: int, n_rot: int) -> np.ndarray:
    """(n_ctx, n_rot / 2, 2): cos and sin."""
    theta = np.arange(n_ctx)[:, None] * 10000.0 ** (-2 * np.arange(n_rot // 2) / n_rot)
    return np.stack([np.cos(theta), np.sin(theta)], -1).astype(np.float32)


def turned(x: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Rows of heads, each pair turned by its angle: x (tokens, n), turns (tokens, n_rot / 2, 2)."""
    pairs = f64(x).reshape(len(x), -1, turns.shape[1], 2)
    c, s = (f64(turns[:, None, :, i]) for i in (0, 1))
    a, b = pairs[..., 0], pairs[..., 1]
    return np.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def both(size: np.ndarray) -> np.ndarray:
    """For each of a pair, the sum over both."""
    return np.repeat(size.reshape(len(size), -1, 2).sum(-1), 2, axis=1)
