"""Cases of what ends a pass: logits with the best of each invocation, argmax and accept."""

from contextlib import suppress
from itertools import count

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.attention import CAPPED
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
        if tile.tokens < 8:
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
    cases.append(logits_case("logits-slab-t4", w, "alone", Tile(4, 4), 128, 4, row0=32, end=96))
    for name, share, tile in (
        ("logits-capped", "quad", Tile(4, 1)),
        ("logits-capped-t4", "alone", Tile(4, 4)),
    ):
        cases.append(capped_case(name, share, tile))
    cases.append(logits_case("logits-more-than-t4", w, "quad", Tile(4, 4), 128, 6))
    return cases


def clear_case(name: str, quant: str, share: str, tile: Tile) -> KernelCase:
    """The first of random cases in which rounding does not decide which value is the largest."""
    for attempt in count():
        w = quantised(quant, spiky(rng(f"{name}{attempt}"), 288, blocky(quant, 96, tile)))
        with suppress(NearTie):
            return logits_case(name, w, share, tile, 261, 3)
    raise AssertionError


def capped_case(name: str, share: str, tile: Tile) -> KernelCase:
    """The same with logits that are scaled and capped, of numbers of a size."""
    for attempt in count():
        r = rng(f"{name}{attempt}")
        h = r.standard_normal((3, 96)).astype(np.float32)
        w = quantised("F32", r.standard_normal((288, 96)))
        with suppress(NearTie):
            return logits_case(name, w, share, tile, 261, 3, h, scale=0.4, cap=6.0)
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
    scale: float = 1.0,
    cap: float = 0.0,
) -> KernelCase:
    end = end or n_vocab
    norm = Normed(rng(name), n_tokens, whole.values.shape[1], share, tile)
    if h is not None:
        norm.h, norm.inputs["x"] = h, rows(h, h.shape[1])
    n = min(tile.tokens, n_tokens)  # the last tokens; rows for more of them stay as they are
    y, allowed = (of[-n:, row0:end] * float(np.float32(scale)) for of in norm.products(whole))
    if cap:
        y, allowed = cap * np.tanh(y / cap), allowed + CAPPED * np.abs(cap * np.tanh(y / cap))
    n_parts = 4 * -(-padded(n_vocab) // (8 * tile.pairs))
    before = {
        "best": np.array([NOT_WRITTEN] * (tile.tokens * n_parts), np.uint32),
        "y": filled(-9, tile.tokens, n_vocab),
    }
    expect, tolerance = f64(before["y"]), np.zeros(before["y"].shape)
    expect[:n, row0:end], tolerance[:n, row0:end] = y, allowed
    row = np.arange(row0, end)
    height = 8 * tile.pairs  # rows of four invocations
    parts = row // height * 4 + row % 8 // 2
    best = np.tile([5.0, np.nan, 0.0], (tile.tokens, n_parts, 1))  # index, value, what it may be off by
    for t in range(n):
        for i in range(row0 // height * 4, -(-padded(end) // height) * 4):
            of = parts == i
            winner = first_max(y[t, of], row[of])
            best[t, i, 0] = winner
            if winner != NONE:
                check_margin(y[t, of], allowed[t, of])
                best[t, i, 1:] = y[t, winner - row0], allowed[t, winner - row0]
    winners = [[first_max(y[t], row) if t < n else 5] for t in range(tile.tokens)]
    all_best = np.hstack([winners, best[:, :, 0], best[:, :, 1]])
    all_allowed = np.hstack([np.zeros((tile.tokens, n_parts + 1)), best[:, :, 2]])
    inputs = {**whole[row0 : padded(end)].tiles, **norm.inputs, "now": state(3, n_tokens), **before}
    overrides = {"N_ROWS": end - row0, "ROW0": row0, "SCALE": scale, "CAP": cap, **norm.overrides}
    if tile.tokens > 1:
        overrides |= {"Y_STRIDE": n_vocab, "N_PARTS": n_parts}
    op = product_op("logits", whole, share, tile, list(inputs), per_token=0, **overrides)
    why = "1.2e-7 (sqrt(N_EMBD) + 12) rms scale * sum spread |h|, times SCALE; 1e-6 of the cap"
    outputs = {
        "best": Expect(all_best, all_allowed, why, lambda best: np.hstack(unpacked(best, tile.tokens))),
        "y": Expect(expect, tolerance, why),
    }
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


def unpacked(best: np.ndarray, n_rows: int) -> list[np.ndarray]:
    """For each row: the index that all its (key, index) pairs together say, all indices, all keys' values.

    A key is the value's bits, made to order as the value: 2^31 + bits from 0 up, 2^31 - magnitude below 0.
    """
    out = []
    for pairs in best.reshape(n_rows, -1, 2):
        key, index = pairs.T.astype(np.int64)
        bits = np.where(key >= 1 << 31, key - (1 << 31), (1 << 32) - np.maximum(key, 1))
        winner = index[np.lexsort((index, -key))[0]]
        out.append(np.concatenate([[winner], index, f64(bits.astype(np.uint32).view(np.float32))]))
    return out


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


def accept_cases() -> list[KernelCase]:
    """Four rows of maxima whose best are known, against guesses that are right up to one, or all right."""
    cases = []
    chosen = [31, 4, 15, 9]  # after each token
    for name, tokens, right in (
        ("none", [7, 8, 15, 9], 0),  # those after a wrong one do not count
        ("one", [7, 31, 5, 9], 1),
        ("two", [7, 31, 4, 3], 2),
        ("all", [7, 31, 4, 15], 3),
        ("fewer", [7, 31], 1),  # what was there before looks like a guess, but is not one
        ("alone", [7], 0),
        ("nan", [7, 31, 4, 15], 1),
    ):
        r = rng("accept" + name)
        x = spiky(r, 4, 70).clip(-1e4, 1e4)
        x[np.arange(4), chosen] = 2e4
        answers = list(chosen)
        if name == "nan":
            x[1], answers[1] = np.nan, NONE
        partial = np.array([[[float_key(row, i), i] for i in range(70)] for row in x])
        partial[np.isnan(x)] = 0, NONE
        before = np.array(
            [9, len(tokens), 5, 0, *tokens, *[31, 4, 15, 9][len(tokens) - 1 :], 77, 77], np.uint32
        )
        after = before.copy()
        answer = answers[right]
        verdict = right << 28 | answer & 0xFFFFFFF
        after[:6] = [9 + right + 1, 1, answer, tokens[right], answer, verdict]
        op = Op(
            "accept",
            Variant("accept", tile=(("T", 4),)),
            ("x", "state"),
            {"N_PART": 70},
            workgroups=1,
            per_token=0,
        )
        inputs = {"x": partial.astype(np.uint32), "state": before}
        cases.append(KernelCase(f"accept-{name}", op, inputs, {"state": Expect(after, 0.0, "exact")}))
    return cases


def float_key(x: np.ndarray, i: int) -> int:
    """The order-preserving integer of x[i]: 2^31 + bits from 0 up, 2^31 - magnitude below 0, NaN 0."""
    if i == NONE:
        return 0
    bits = int(np.float32(x[i]).view(np.uint32))
    return 0x80000000 + (bits & 0x7FFFFFFF) if bits <= 0x80000000 else 0x80000000 - (bits & 0x7FFFFFFF)
