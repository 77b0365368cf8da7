"""Cases of what blocks with experts have of their own: the router's choice, the products, and their sum."""

from dataclasses import replace
from itertools import product

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.data import (
    MORE,
    QUANTS,
    SHARERS,
    TILES,
    Tile,
    f64,
    filled,
    padded,
    quantised,
    rng,
    rows,
    spiky,
    state,
)
from kernels.products import SPARE, Normed, blocky, product_op
from kernels.repacking import repacked

from pagelm.kernels import Variant
from pagelm.program import Op

ULP = 1.2e-7
# Rows of an expert may be too few for what a choice asks for: of these there are pairs that it does not list.
ONE_TOKEN = (*(t for t in TILES if t.tokens == 1), Tile(8, 1, "loop", 2), Tile(8, 1, "loop", 1))
N_EXPERT = 5


def experts_cases() -> list[KernelCase]:
    cases = []
    for i, (quant, share, tile) in enumerate(product(QUANTS, SHARERS, ONE_TOKEN)):
        name = f"experts-{quant.lower()}-{share}-{tile.name}c{tile.blocks}"
        cases.append(experts_case(name, quant, share, tile, own=i % 2 > 0, bias=i % 3 > 0))
    for quant, share, tile in product(MORE, SHARERS, (Tile(4, 1), Tile(4, 1, "loop", 2))):
        cases.append(
            experts_case(f"experts-{quant.lower()}-{share}-{tile.name}", quant, share, tile, bias=True)
        )
    for share in SHARERS:
        for own, bias in product((False, True), (False, True)):
            name = f"experts-{share}" + "-own" * own + "-bias" * bias
            cases.append(experts_case(name, "Q4_1", share, Tile(2, 1), own=own, bias=bias, n_used=3))
    for first, end in ((0, 1), (1, 4), (4, 5)):
        name = f"experts-slab{first}-{end}"
        cases.append(experts_case(name, "Q4_1", "quad", Tile(4, 1), bias=True, first=first, end=end))
    return cases


def experts_case(
    name: str,
    quant: str,
    share: str,
    tile: Tile,
    own: bool = False,
    bias: bool = False,
    n_used: int = 2,
    first: int = 0,
    end: int = N_EXPERT,
) -> KernelCase:
    """Experts `first` … `end` are in this slab; the others' rows of y are left alone.

    With `own` rows of x, which are an activation's, nothing is left to be divided by a root mean square.
    """
    r, n_tokens = rng(name), 3
    n_rows, n_in = 16 * max(tile.pairs, 4), blocky(quant, 96, tile)
    whole = quantised(quant, spiky(r, N_EXPERT * n_rows, n_in))
    chosen = np.array([r.permutation(N_EXPERT)[:n_used] for _ in range(n_tokens + SPARE)], np.uint32)
    chosen[0, :2] = (end - 1, end % N_EXPERT) if end - first < N_EXPERT else (N_EXPERT - 1, 0)
    norm = Normed(r, n_tokens * n_used if own else n_tokens, n_in, share, tile)
    if own:
        norm.scale = np.ones((n_tokens * n_used, 1))
        norm.inputs["partials"] = np.full_like(norm.partials, np.nan)
    row = np.arange(n_tokens * n_used) // (1 if own else n_used)
    expert = chosen[:n_tokens].ravel()
    y, off = (of.reshape(len(of), N_EXPERT, n_rows)[row, expert] for of in norm.products(whole))
    b = spiky(r, N_EXPERT, n_rows)
    if bias:
        y = y + f64(b)[expert]
        off = off + 6e-8 * np.abs(y)
    before = filled(-9, (n_tokens + SPARE) * n_used, n_rows + 32)
    values, allowed = f64(before), np.zeros(before.shape)
    here = np.flatnonzero((first <= expert) & (expert < end))
    assert here.size
    values[here, :n_rows], allowed[here, :n_rows] = y[here], off[here]
    slab = whole[first * n_rows : end * n_rows]
    inputs = {**slab.tiles, **norm.inputs, "b": b, "chosen": chosen, "now": state(3, n_tokens), "y": before}
    op = product_op(
        "experts",
        whole,
        share,
        tile,
        list(inputs),
        per_token=n_used,
        N_ROWS=n_rows,
        N_USED=n_used,
        EXPERT0=first,
        N_HERE=end - first,
        OWN=int(own),
        NORMED=int(own),
        BIAS=int(bias),
        Y_STRIDE=n_rows + 32,
        **norm.overrides,
    )
    why = "1.2e-7 (sqrt(N_IN) + 12) rms scale * sum spread |x|; 6e-8 for the bias"
    before_it = (repacked(slab),) if quant in MORE else ()
    return KernelCase(
        name, op, inputs, {"y": Expect(values, allowed, why)}, n_tokens + SPARE, first=before_it
    )


def route_cases() -> list[KernelCase]:
    by_hand = np.array([[1, 3, 3, -2, 3], [0, 0, 0, 0, 0], [-7, -7, -5, -5, -9]], np.float32)
    cases = []
    for over_all in (False, True):
        of = "-all" * over_all
        for n_expert, n_used in ((1, 1), (8, 3), (5, 5), (64, 8)):
            name = f"route-{n_used}of{n_expert}{of}"
            x = 4 * rng(name).standard_normal((4, n_expert)).astype(np.float32)
            cases.append(route_case(name, x, n_used, over_all, scale=2.5 if n_used == 3 else 1.0))
        cases.append(route_case(f"route-ties{of}", by_hand, 4, over_all))
        cases.append(
            route_case(f"route-far{of}", np.array([[3e4, -3e4, 0, 90, -90]], np.float32), 3, over_all)
        )
        for nans in ((0,), (2,), (0, 1, 2, 3, 4)):
            cases.append(nan_case(f"route-nan{len(nans)}at{nans[0]}{of}", by_hand, nans, over_all))
    ties = next(case for case in cases if case.id == "route-ties")
    assert ties.expect["chosen"].values[:3].tolist() == [[1, 2, 4, 0], [0, 1, 2, 3], [2, 3, 0, 1]]
    return cases


def route_case(name: str, x: np.ndarray, n_used: int, over_all: bool, scale: float = 1.0) -> KernelCase:
    n_tokens, n_expert = x.shape
    chosen = np.array([sorted(range(n_expert), key=lambda e: (-row[e], e))[:n_used] for row in x])
    below = f64(x) - f64(x).max(1, keepdims=True)
    share = np.exp(below)
    at = np.arange(n_tokens)[:, None], chosen
    total = (share if over_all else share[at]).sum(1, keepdims=True)
    before = {"chosen": np.full((n_tokens + 1, n_used), 99, np.uint32), "w": filled(-9, n_tokens + 1, n_used)}
    picked, weights, allowed = before["chosen"].copy(), f64(before["w"]), np.zeros(before["w"].shape)
    picked[:n_tokens] = chosen
    weights[:n_tokens] = scale * share[at] / total
    allowed[:n_tokens] = (2e-6 * -below[at] + 4e-6) * weights[:n_tokens] + 1e-37
    stride = padded(n_expert)
    given = np.full((n_tokens, stride), np.nan, np.float32)  # past the experts nothing must be read
    given[:, :n_expert] = x
    inputs = {"x": given, "now": state(3, n_tokens), **before}
    overrides = {"N_EXPERT": n_expert, "N_USED": n_used, "STRIDE": stride}
    overrides |= {"SCALE": scale, "OVER_ALL": int(over_all)}
    op = Op("route", Variant("route"), tuple(inputs), overrides, workgroups=1)
    outputs = {
        "chosen": Expect(picked, 0.0, "the lower one first among equals"),
        "w": Expect(weights, allowed, "relative 2e-6 (max - x) + 4e-6; subnormal weights may be flushed"),
    }
    return KernelCase(name, op, inputs, outputs, n_tokens + 1)


def nan_case(name: str, x: np.ndarray, nans: tuple[int, ...], over_all: bool) -> KernelCase:
    """The second token has NaN: its choice is some expert that there is, and the others' are theirs alone."""
    case = route_case(name, x, 2, over_all)
    case.inputs["x"][1, list(nans)] = np.nan
    chosen, w = case.expect["chosen"], case.expect["w"]
    values = chosen.values.copy()
    values[1] = 0

    def there(got: np.ndarray) -> np.ndarray:
        """Of the second token 0 in the place of every expert that there is."""
        got = got.reshape(values.shape).copy()
        got[1] = np.where(got[1] < x.shape[1], 0, got[1])
        return got.ravel()

    def others(got: np.ndarray) -> np.ndarray:
        return np.delete(got.reshape(values.shape), 1, axis=0)

    outputs = {
        "chosen": Expect(values, 0.0, "an expert that there is", there),
        "w": Expect(np.delete(w.values, 1, 0), np.delete(w.tolerance, 1, 0), w.why, others),
    }
    return replace(case, expect=outputs)


def expert_sum_cases() -> list[KernelCase]:
    cases = []
    for n_used, n in ((1, 32), (3, 64), (8, 320)):
        name = f"expert_sum-{n_used}x{n}"
        r, n_tokens = rng(name), 3
        x, w = spiky(r, n_tokens, n_used, n), r.random((n_tokens, n_used)).astype(np.float32)
        terms = f64(w)[..., None] * f64(x)
        before = filled(-9, n_tokens + 1, n)
        values, allowed = f64(before), np.zeros(before.shape)
        values[:n_tokens] = terms.sum(1)
        allowed[:n_tokens] = ULP * n_used * np.abs(terms).sum(1)
        inputs = {"x": rows(x.reshape(-1, n), n), "w": w, "now": state(3, n_tokens), "y": before}
        overrides = {"N_USED": n_used, "STRIDE": n}
        op = Op("expert_sum", Variant("expert_sum"), tuple(inputs), overrides, invocations=n)
        outputs = {"y": Expect(values, allowed, "1.2e-7 N_USED sum |w x|")}
        cases.append(KernelCase(name, op, inputs, outputs, n_tokens + 1))
    return cases
