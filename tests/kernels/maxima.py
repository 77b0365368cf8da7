"""Cases of what ends a pass: logits with the best of each invocation, and argmax."""

from contextlib import suppress
from itertools import count

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.data import (
    ALL,
    Tile,
    Weights,
    f64,
    filled,
    from_raw,
    integers,
    padded,
    quantised,
    rng,
    rows,
    spiky,
    state,
)
from kernels.products import Normed, blocky, product_op

from pagelm.kernels import Variant
from pagelm.program import Op


class NearTie(Exception):
    """Two values are too close for a kernel to be asked which one is larger."""


NONE = 0xFFFFFFFF  # the index of no number at all
NOT_WRITTEN = (1, 5)  # no key of a number, but above that of NaN


def logits_cases() -> list[KernelCase]:
    cases = []
    for quant, share, tile in ALL:
        if tile.tokens == 1:
            name = f"logits-{quant.lower()}-{share}-{tile.name}"
            cases.append(clear_case(name, quant, share, tile))
            r = rng(name + "-ties")

            # all is exact: equal rows are equal logits, rows past the last are larger than all others
            w = integers(quant, r, 96, 32 * tile.blocks)
            h = r.integers(-9, 10, (1, 32 * tile.blocks)).astype(np.float32)
            y = w.values @ h[0]
            order = np.unique(y, return_index=True)[1]
            raw = w.raw.copy()
            raw[y >= y[order[-2]]] = w.raw[order[0]]
            raw[[5, 12, 14, 15, 43, 63]] = w.raw[order[-2]]
            raw[70:] = w.raw[order[-1]]
            raw[[32, 33, 40, 41, 48, 49, 56, 57, 19, 69]] = nan_row(w.raw[0], quant)  # all of one invocation
            cases.append(logits_case(name + "-ties", from_raw(quant, raw), share, tile, 70, 1, h))
            raw[:64] = nan_row(w.raw[0], quant)
            cases.append(logits_case(name + "-nan", from_raw(quant, raw), share, tile, 64, 1, h))
    r = rng("logits-slab")
    w = quantised("Q4_1", spiky(r, 128, 32))
    cases.append(logits_case("logits-slab", w, "quad", Tile(4, 1), 128, 5, row0=32, end=96))
    return cases


def clear_case(name: str, quant: str, share: str, tile: Tile) -> KernelCase:
    """The first of random cases in which rounding does not decide which value is the largest."""
    for attempt in count():
        w = quantised(quant, spiky(rng(f"{name}{attempt}"), 288, blocky(quant, 96, tile)))
        with suppress(NearTie):
            return logits_case(name, w, share, tile, 261, 3)
    raise AssertionError


def nan_row(row: np.ndarray, quant: str) -> np.ndarray:
    """A row whose first weight or scale is NaN."""
    out = row.copy()
    nan = np.array(np.nan, np.float32 if quant == "F32" else np.float16).tobytes()
    out[: len(nan)] = np.frombuffer(nan, np.uint8)
    return out


def logits_case(
    name: str,
    whole: Weights,
    share: str,
    tile: Tile,
    n_vocab: int,
    n_tokens: int,
    h: np.ndarray | None = None,
    row0: int = 0,
    end: int | None = None,
) -> KernelCase:
    end = end or n_vocab
    norm = Normed(rng(name), n_tokens, whole.values.shape[1], share, tile)
    if h is not None:
        norm.h, norm.inputs["x"] = h, rows(h, h.shape[1])
    y, allowed = (of[-1, row0:end] for of in norm.products(whole))
    before = {
        "best": np.array([NOT_WRITTEN] * (4 * -(-padded(n_vocab) // (8 * tile.pairs))), np.uint32),
        "y": filled(-9, n_vocab),
    }
    expect, tolerance = f64(before["y"]), np.zeros(n_vocab)
    expect[row0:end], tolerance[row0:end] = y, allowed
    row = np.arange(row0, end)
    height = 8 * tile.pairs  # rows of four invocations
    parts = row // height * 4 + row % 8 // 2
    indices, keys, key_tolerance = (np.full(len(before["best"]), v) for v in (5.0, np.nan, 0.0))
    for i in range(row0 // height * 4, -(-padded(end) // height) * 4):
        of = parts == i
        indices[i] = best = first_max(y[of], row[of])
        if best != NONE:
            check_margin(y[of], allowed[of])
            keys[i], key_tolerance[i] = y[best - row0], allowed[best - row0]
    all_best = np.concatenate([[first_max(y, row)], indices, keys])
    all_allowed = np.concatenate([np.zeros(len(indices) + 1), key_tolerance])
    inputs = {**whole[row0 : padded(end)].tiles, **norm.inputs, "now": state(3, n_tokens), **before}
    overrides = {"N_ROWS": end - row0, "ROW0": row0, **norm.overrides}
    op = product_op("logits", whole, share, tile, list(inputs), per_token=0, **overrides)
    why = "1.2e-7 (sqrt(N_EMBD) + 12) rms scale * sum spread |h|"
    outputs = {"best": Expect(all_best, all_allowed, why, unpacked), "y": Expect(expect, tolerance, why)}
    return KernelCase(name, op, inputs, outputs, n_tokens)


def first_max(x: np.ndarray, index: np.ndarray) -> int:
    """Index of the largest value, the lowest on ties, NaN never; NONE when all are NaN."""
    number = ~np.isnan(x)
    return int(index[number][x[number].argmax()]) if number.any() else NONE


def check_margin(y: np.ndarray, allowed: np.ndarray) -> None:
    """A case is a bad one if rounding may decide which value is the largest."""
    near = y + allowed >= (top := np.nanmax(y)) - allowed[np.nanargmax(y)]
    if not (y[near] == top).all():
        raise NearTie


def unpacked(best: np.ndarray) -> np.ndarray:
    """The index that all (key, index) pairs together say, then all indices, then the values of all keys.

    A key is the value's bits, made to order as the value: 2^31 + bits from 0 up, 2^31 - magnitude below 0.
    """
    key, index = best.reshape(-1, 2).T.astype(np.int64)
    bits = np.where(key >= 1 << 31, key - (1 << 31), (1 << 32) - np.maximum(key, 1))
    winner = index[np.lexsort((index, -key))[0]]
    return np.concatenate([[winner], index, f64(bits.astype(np.uint32).view(np.float32))])


def argmax_cases() -> list[KernelCase]:
    cases = []
    vectors: dict[str, np.ndarray] = {}
    for n in (1, 63, 64, 65, 1000):
        vectors[f"{n}"] = spiky(rng(f"argmax{n}"), n)
    vectors["ties"] = np.array([1, 5, 2, 5, 5, 0] * 50, np.float32)
    vectors["negative"] = -np.abs(spiky(rng("negative"), 300)) - 1
    vectors["zeros"] = np.array([-0.0, 0.0, -1.0] * 30, np.float32)
    vectors["nan"] = np.array([np.nan, -np.inf, 3, np.nan, 2, -np.nan] * 20, np.float32)
    vectors["infinite"] = np.array([1, np.inf, np.nan, np.inf], np.float32)
    vectors["minus-infinite"] = np.array([np.nan, -np.inf, -np.inf], np.float32)
    vectors["all-nan"] = np.full(70, np.nan, np.float32)
    for name, x in vectors.items():
        n = x.size
        for span in {n, -(-n // 7)}:  # partial maxima are an encoding of the kernel's own
            parts = -(-n // span)
            groups = np.split(np.arange(n), range(span, n, span))
            best = [first_max(x[group], group) for group in groups]
            partial = np.array([[float_key(x, i), i] for i in best], np.uint32)
            whole = first_max(x, np.arange(n))
            after = np.array([11, 1, whole, 8, whole, 8], np.uint32)
            op = Op("argmax", Variant("argmax"), ("x", "state"), {"N_PART": parts}, workgroups=1, per_token=0)
            inputs = {"x": partial, "state": np.array([9, 2, 5, 0, 7, 8], np.uint32)}
            outputs = {"state": Expect(after, 0.0, "exact")}
            cases.append(KernelCase(f"argmax-{name}-{parts}", op, inputs, outputs))
    return cases


def float_key(x: np.ndarray, i: int) -> int:
    """The order-preserving integer of x[i]: 2^31 + bits from 0 up, 2^31 - magnitude below 0, NaN 0."""
    if i == NONE:
        return 0
    bits = int(np.float32(x[i]).view(np.uint32))
    return 0x80000000 + (bits & 0x7FFFFFFF) if bits <= 0x80000000 else 0x80000000 - (bits & 0x7FFFFFFF)
