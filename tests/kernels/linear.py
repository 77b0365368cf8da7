"""Cases of linear: a product with what may come at its end."""

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.activation import activated
from kernels.data import ALL, SHARERS, Tile, f64, filled, padded, quantised, rng, spiky, state
from kernels.products import SPARE, Normed, blocky, product_op

from pagelm.program import Op


def linear_cases() -> list[KernelCase]:
    cases = []
    for i, (quant, share, tile) in enumerate(ALL):
        name = f"linear-{quant.lower()}-{share}-{tile.name}"
        of = quant, share, tile
        normed = i % 2 == 0
        cases.append(linear_case(name, *of, 67, blocky(quant, 96, tile), normed, bias=i % 3 > 0, act="silu"))
    for share in SHARERS:
        for tile in (Tile(4, 1), Tile(4, 8)):
            name, of = f"linear-{share}-t{tile.tokens}", ("Q8_0", share, tile)
            cases.append(linear_case(f"{name}-plain", *of, 50, 64, True))
            cases.append(linear_case(f"{name}-bias", *of, 50, 64, False, bias=True))
            cases.append(linear_case(f"{name}-gelu", *of, 33, 96, False, bias=True, act="gelu"))
            cases.append(linear_case(f"{name}-slab", *of, 100, 64, True, bias=True, row0=32, end=64))
    return cases


def linear_case(
    name: str,
    quant: str,
    share: str,
    tile: Tile,
    n_out: int,
    n_in: int,
    normed: bool,
    bias: bool = False,
    act: str = "",
    row0: int = 0,
    end: int | None = None,
) -> KernelCase:
    """`normed`: x needs no division by the root of its partial sums. `row0` … `end`: rows of this slab."""
    n_tokens, end, stride = 5, end or n_out, padded(n_out)
    r = rng(name)
    norm = Normed(r, n_tokens, n_in, share, tile)
    if normed:
        norm.scale = np.ones((n_tokens, 1))
        norm.inputs["partials"] = np.full_like(norm.partials, np.nan)
    whole = quantised(quant, spiky(r, stride, n_in))
    b = spiky(r, n_out)
    part = slice(row0, end)
    y, off = (of[:, part] for of in norm.products(whole))
    if bias:
        y = y + f64(b)[part]
        off = off + 6e-8 * np.abs(y)
    if act:
        y, off = activated(y, act == "gelu", off)
    before = filled(-9, n_tokens + SPARE, stride)
    expect, allowed = f64(before), np.zeros(before.shape)
    expect[:n_tokens, part], allowed[:n_tokens, part] = y, off
    inputs = {
        **whole[row0 : padded(end)].tiles,
        **norm.inputs,
        "b": b,
        "now": state(3, n_tokens),
        "y": before,
    }
    op: Op = product_op(
        "linear",
        whole,
        share,
        tile,
        list(inputs),
        N_ROWS=end - row0,
        ROW0=row0,
        Y_STRIDE=stride,
        NORMED=int(normed),
        BIAS=int(bias),
        ACTIVATE=int(bool(act)),
        GELU=int(act == "gelu"),
        **norm.overrides,
    )
    why = "1.2e-7 (sqrt(N_IN) + 12) rms scale * sum spread |x|; 6e-8 for the bias; the activation's"
    return KernelCase(name, op, inputs, {"y": Expect(expect, allowed, why)}, n_tokens + SPARE)
