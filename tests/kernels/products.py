"""Cases of the kernels that multiply with tiled matrices, plain and fused."""

from itertools import product

import numpy as np
from blocks import adversarial, size_of
from kernel_case import Expect, KernelCase
from kernels.activation import activated
from kernels.data import (
    ALL,
    MORE,
    QUANTS,
    SHARERS,
    TILES,
    Tile,
    Weights,
    angles,
    both,
    f64,
    filled,
    from_raw,
    padded,
    quantised,
    rng,
    rows,
    spiky,
    state,
    turned,
)
from kernels.repacking import repacked

from pagelm.kernels import Variant
from pagelm.program import Op

ULP = 1.2e-7
EPS = 1e-5
SPARE = 4  # tokens that buffers and grid have room for, past those of the pass
THOROUGH = "Q4_1"  # gets all shapes; they are handled alike for all types


def product_op(
    kernel: str,
    w: Weights,
    share: str,
    tile: Tile,
    buffers: list[str],
    per_token: int = 1,
    **overrides: float,
) -> Op:
    n_in = w.values.shape[1]
    shape = {"N_BLOCKS": padded(n_in) // 32, "X_STRIDE": padded(n_in), **overrides}
    n_rows = padded(int(shape["N_ROWS"]))
    return Op(
        kernel,
        Variant(kernel, w.quant, share, tile.rows, tile.sizes, w.scales),
        tuple(buffers),
        shape,
        invocations=4 * -(-n_rows // (8 * tile.pairs)),
        per_token=per_token,
    )


def blocky(quant: str, n_in: int, tile: Tile) -> int:
    """`n_in`, made odd for types without blocks, and enough for whole steps of the tile."""
    size, step = size_of(quant)[0], 32 * tile.blocks
    n_in = -(-n_in // max(size, step)) * max(size, step)
    return n_in if size > 1 else n_in - 13


# ---- matmul ----


def matmul_cases() -> list[KernelCase]:
    cases = []
    for quant, share, tile in ALL:
        shapes = [(67, blocky(quant, 160, tile), 5)]
        if quant == THOROUGH:
            shapes += [
                (n, blocky(quant, k, tile), t)
                for n, k, t in ((1, 32, 1), (5, 64, 3), (64, 96, 4), (257, 64, 2))
            ]
        if quant == "F16" and share == "alone" and tile.blocks == 1:
            shapes += [(9, 50, 3), (6, 1, 2)]
        for n_rows, n_in, n_tokens in shapes:
            name = f"matmul-{quant.lower()}-{share}-{tile.name}-{n_rows}x{n_in}x{n_tokens}"
            r = rng(name)
            w = spiky(r, n_rows, n_in)
            w[0] = 0  # a zero row: zero scale
            cases.append(matmul_case(name, quantised(quant, w), share, tile, spiky(r, n_tokens, n_in)))
    for quant in QUANTS[2:]:
        name = f"matmul-{quant.lower()}-adversarial"
        r = rng(name)
        w = from_raw(quant, adversarial(quant, r, 16, 64))
        cases.append(matmul_case(name, w, "alone", Tile(4, 1), r.standard_normal((2, 64)).astype(np.float32)))
    for quant, share, tile in product(MORE, SHARERS, TILES):
        name = f"matmul-{quant.lower()}-{share}-{tile.name}"
        w = quantised(quant, spiky(rng(name), 67, blocky(quant, 300, tile)))
        cases.append(matmul_case(name, w, share, tile, spiky(rng(name), 5, w.values.shape[1])))
    for quant in MORE:
        name = f"matmul-{quant.lower()}-adversarial"
        w = from_raw(quant, adversarial(quant, rng(name), 40, 512))
        x = rng(name).standard_normal((2, 512)).astype(np.float32)
        cases.append(matmul_case(name, w, "alone", Tile(4, 1), x))
    # a slab in the middle of a matrix writes its own rows only; rows that alternate write one of two results;
    # a tensor that starts in the middle of a slab
    r = rng("matmul-part")
    w, x = quantised("Q4_1", r.standard_normal((70, 64))), spiky(r, 2, 64)
    cases.append(matmul_case("matmul-slab", w[:6], "alone", Tile(4, 1), x, ROW0=32, Y_STRIDE=64))
    cases.append(matmul_case("matmul-first", w, "quad", Tile(4, 1), x, FIRST=32))
    for phase in (0, 1):
        cases.append(matmul_case(f"matmul-phase{phase}", w[:6], "quad", Tile(4, 8), x, STEP=2, PHASE=phase))
        more = {"STEP": 2, "PHASE": phase, "FIRST": 32, "ROW0": 96, "Y_STRIDE": 70}
        cases.append(matmul_case(f"matmul-phase{phase}-first", w, "alone", Tile(4, 1), x, **more))
    return cases


def matmul_case(name: str, whole: Weights, share: str, tile: Tile, x: np.ndarray, **more: int) -> KernelCase:
    w = whole[more.get("FIRST", 0) :]
    (n_rows, n_in), n_tokens, step = w.values.shape, len(x), more.get("STEP", 1)
    part, out = slice(more.get("PHASE", 0), None, step), slice(more.get("ROW0", 0) // step, None)
    before = filled(-9, n_tokens + SPARE, more.setdefault("Y_STRIDE", n_rows + 3))
    expect, tolerance = f64(before), np.zeros(before.shape)
    y, size = (of[:, part] for of in w.products(x))
    expect[:n_tokens, out][:, : y.shape[1]] = y
    tolerance[:n_tokens, out][:, : y.shape[1]] = ULP * (n_in**0.5 + 8) * size + 1e-30
    inputs = {**whole.tiles, "x": rows(x, padded(n_in)), "state": state(4, n_tokens), "y": before}
    op = product_op("matmul", w, share, tile, list(inputs), N_ROWS=n_rows, **more)
    why = "1.2e-7 (sqrt(N_IN) + 8) sum spread |x|"
    first = (repacked(whole),) if whole.quant in MORE else ()
    outputs = {"y": Expect(expect, tolerance, why)}
    return KernelCase(name, op, inputs, outputs, n_tokens + SPARE, first=first)


# ---- with the norm before them ----


class Normed:
    """Rows of activations with the partial sums of squares that a kernel scales them by; one row is zero."""

    def __init__(self, r: np.random.Generator, n_tokens: int, n_in: int, share: str, tile: Tile) -> None:
        self.h = spiky(r, n_tokens, n_in)
        n_partials = padded(n_in) // (2 * min(tile.pairs, 4) * SHARERS[share])
        self.partials = (9 * n_in / n_partials * r.random((n_tokens, n_partials))).astype(np.float32)
        if n_tokens > 1:
            self.h[1] = self.partials[1] = 0
        self.scale = 1 / np.sqrt(f64(self.partials).sum(1, keepdims=True) / n_in + np.float32(EPS))
        self.overrides = {"N_EMBD": n_in, "N_PARTIALS": n_partials, "EPS": EPS}
        self.inputs = {"x": rows(self.h, padded(n_in)), "partials": self.partials}

    def products(self, w: Weights) -> tuple[np.ndarray, np.ndarray]:
        """Rows of (W h) * scale, and the tolerance of each."""
        y, size = (of * self.scale for of in w.products(self.h))
        return y, ULP * (self.h.shape[1] ** 0.5 + 12) * size + 1e-30


def qkv_cases() -> list[KernelCase]:
    cases = []
    for quant, share, tile in ALL:
        name = f"qkv-{quant.lower()}-{share}-{tile.name}"
        cases.append(qkv_case(name + "-3/1x20", quant, share, tile, (3, 1, 20), blocky(quant, 96, tile)))
        if quant == THOROUGH:
            # the last token is past the context: not stored
            cases.append(qkv_case(name + "-9/3x64", quant, share, tile, (9, 3, 64), 64, n_past=12))
            # a second matrix of the group
            cases.append(
                qkv_case(name + "-4/2x4", quant, share, tile, (4, 2, 4), blocky(quant, 32, tile), row0=32)
            )
    for row0, end in ((0, 32), (32, 96), (96, None)):
        name = f"qkv-slab{row0}"
        cases.append(qkv_case(name, "Q8_0", "quad", Tile(4, 8), (3, 1, 20), 32, row0=row0, end=end))
    for share in SHARERS:
        cases.append(qkv_case(f"qkv-{share}-no-rope", "Q8_0", share, Tile(4, 4), (3, 1, 20), 64, rope=False))
    return cases


def qkv_case(
    name: str,
    quant: str,
    share: str,
    tile: Tile,
    heads: tuple[int, int, int],
    n_in: int,
    n_past: int = 3,
    row0: int = 0,
    end: int | None = None,
    rope: bool = True,
) -> KernelCase:
    """`row0` … `end` are the rows of this slab, of q, k and v, each padded to 32 with rows of no meaning."""
    n_tokens, n_ctx, (n_head, n_head_kv, n_rot) = 5, 16, heads
    r = rng(name)
    sizes = {"q_out": n_head * n_rot, "k_cache": n_head_kv * n_rot, "v_cache": n_head_kv * n_rot}
    starts = {"q_out": 0, "k_cache": padded(sizes["q_out"])}
    starts["v_cache"] = starts["k_cache"] + padded(sizes["k_cache"])
    end = end or starts["v_cache"] + sizes["v_cache"]
    whole = quantised(quant, spiky(r, padded(starts["v_cache"] + sizes["v_cache"]), n_in))
    norm, turns = Normed(r, n_tokens, n_in, share, tile), angles(n_ctx + 1, n_rot)
    y, tolerance = norm.products(whole)
    if rope:
        tolerance = both(tolerance)
    before = {
        "q_out": filled(-9, n_tokens + SPARE, padded(sizes["q_out"])),
        "k_cache": spiky(r, n_ctx + 1, sizes["k_cache"]),
        "v_cache": spiky(r, n_ctx + 1, sizes["v_cache"]),
    }
    n_stored = min(n_tokens, n_ctx - n_past)
    expect = {}
    for out, start in starts.items():
        values, allowed = f64(before[out]), np.zeros(before[out].shape)
        a, b = max(start, row0), min(start + sizes[out], end)
        if a < b:
            section = y[:n_stored, start : start + sizes[out]]
            if rope and out != "v_cache":
                section = turned(section, turns[n_past : n_past + n_stored])
            first = 0 if out == "q_out" else n_past
            there = slice(first, first + n_stored), slice(a - start, b - start)
            values[there] = section[:, there[1]]
            allowed[there] = tolerance[:n_stored, a:b]
        expect[out] = Expect(
            values, allowed, "1.2e-7 (sqrt(N_EMBD) + 12) rms scale * sum spread |h| of a pair"
        )
    inputs = {
        **whole[row0 : padded(end)].tiles,
        **norm.inputs,
        "angles": turns,
        "now": state(n_past, n_tokens),
    }
    inputs |= before
    overrides = {
        "N_ROWS": end - row0,
        "ROW0": row0,
        "N_EMBD_Q": sizes["q_out"],
        "N_EMBD_KV": sizes["k_cache"],
        "Q_STRIDE": padded(sizes["q_out"]),
        "N_ROT": n_rot,
        "ROPE": int(rope),
        "N_CTX": n_ctx,
    }
    op = product_op("qkv", whole, share, tile, list(inputs), **norm.overrides, **overrides)
    return KernelCase(name, op, inputs, expect, n_tokens + SPARE)


def gate_up_cases() -> list[KernelCase]:
    cases = []
    for quant, share, tile in ALL:
        name = f"gate_up-{quant.lower()}-{share}-{tile.name}"
        cases.append(gate_up_case(name + "-34", quant, share, tile, 34, blocky(quant, 64, tile)))
        if quant == THOROUGH:
            cases.append(gate_up_case(name + "-129", quant, share, tile, 129, blocky(quant, 32, tile)))
    cases.append(gate_up_case("gate_up-slab", "Q4_0", "quad", Tile(4, 8), 50, 64, row0=32, end=96))
    for share in SHARERS:
        cases.append(gate_up_case(f"gate_up-{share}-gelu", "Q4_0", share, Tile(4, 1), 34, 64, gelu=True))
    return cases


def gate_up_case(
    name: str,
    quant: str,
    share: str,
    tile: Tile,
    n_ff: int,
    n_in: int,
    row0: int = 0,
    end: int | None = None,
    gelu: bool = False,
) -> KernelCase:
    n_tokens, end = 6, end or 2 * n_ff
    r = rng(name)
    norm = Normed(r, n_tokens, n_in, share, tile)
    w = spiky(r, padded(2 * n_ff), n_in)
    for i, gate in enumerate((88, -88, -200, 300, 0), 16):
        w[2 * i] = gate / norm.scale[0] * norm.h[0] / (f64(norm.h[0]) ** 2).sum()
    whole = quantised(quant, w)
    assert np.isfinite(whole.values).all()
    y, allowed = norm.products(whole)
    part = slice(row0 // 2, end // 2)
    gate, up = (y[:, i::2][:, part] for i in (0, 1))
    d_gate, d_up = (allowed[:, i::2][:, part] for i in (0, 1))
    before = filled(-9, n_tokens + SPARE, padded(n_ff))
    expect, tolerance = f64(before), np.zeros(before.shape)
    there = slice(0, n_tokens), part
    act, d_act = activated(gate, gelu, d_gate)
    expect[there] = act * up
    tolerance[there] = d_act * (np.abs(up) + d_up) + np.abs(act) * d_up + 6e-7 * np.abs(act * up)
    inputs = {**whole[row0 : padded(end)].tiles, **norm.inputs, "now": state(3, n_tokens), "y": before}
    op = product_op(
        "gate_up",
        whole,
        share,
        tile,
        list(inputs),
        N_ROWS=end - row0,
        ROW0=row0,
        Y_STRIDE=padded(n_ff),
        GELU=int(gelu),
        **norm.overrides,
    )
    why = "the activation's, + 6e-7, and what gate and up are off by"
    return KernelCase(name, op, inputs, {"y": Expect(expect, tolerance, why)}, n_tokens + SPARE)


# ---- with the residual sum after them ----


def project_cases() -> list[KernelCase]:
    cases = []
    for quant, share, tile in ALL:
        name = f"project-{quant.lower()}-{share}-{tile.name}"
        cases.append(project_case(name + "-50", quant, share, tile, 50, blocky(quant, 96, tile)))
        if quant == THOROUGH:
            cases.append(project_case(name + "-260", quant, share, tile, 260, blocky(quant, 32, tile)))
    for share in SHARERS:
        cases.append(project_case(f"project-{share}-halves", "Q8_0", share, Tile(4, 4), 100, 64, pairs=2))
        cases.append(project_case(f"project-{share}-quarters", "Q8_0", share, Tile(4, 8), 100, 64, pairs=1))
        cases.append(
            project_case(f"project-{share}-slab", "Q8_0", share, Tile(4, 8), 100, 64, row0=32, end=64)
        )
        cases.append(project_case(f"project-{share}-rest", "Q8_0", share, Tile(4, 1), 100, 64, row0=64))
        cases.append(project_case(f"project-{share}-scaled", "Q8_0", share, Tile(4, 4), 50, 64, scale=0.3))
    return cases


def project_case(
    name: str,
    quant: str,
    share: str,
    tile: Tile,
    n_out: int,
    n_in: int,
    row0: int = 0,
    end: int | None = None,
    pairs: int | None = None,
    scale: float = 1.0,
) -> KernelCase:
    """`pairs` of rows to a partial sum, an invocation's or 4 unless given."""
    n_tokens, end, stride, pairs = 5, end or n_out, padded(n_out), pairs or min(tile.pairs, 4)
    n_partials = stride // (2 * pairs * SHARERS[share])
    r = rng(name)
    whole = quantised(quant, spiky(r, stride, n_in))
    y = spiky(r, n_tokens, n_in)
    y[2] = 0
    gain = (1 + 0.1 * r.standard_normal(n_out)).astype(np.float32)
    before = {
        "h": filled(-9, n_tokens + SPARE, stride),
        "partials": filled(-9, n_tokens + SPARE, n_partials),
        "residual": spiky(r, n_tokens + SPARE, stride),
    }
    part = slice(row0, end)
    there = slice(0, n_tokens), part
    product, size = (of[:, part] * float(np.float32(scale)) for of in whole.products(y))
    x = f64(before["residual"])[there] + product
    d_x = ULP * (n_in**0.5 + 8) * size + 6e-8 * np.abs(x)
    h = x * f64(gain[part])
    d_h = d_x * np.abs(f64(gain[part])) + 6e-8 * np.abs(h)
    row = np.arange(row0, end)
    height, parts = 8 * pairs, 4 // SHARERS[share]  # rows of a quad for which it has so many partial sums
    sums = row // height * parts + (row % 8 // 2 if parts > 1 else 0)  # which one a row belongs to
    expect = {name: f64(value) for name, value in before.items()}
    allowed = {name: np.zeros(value.shape) for name, value in before.items()}
    expect["residual"][there], allowed["residual"][there] = x, d_x
    expect["h"][there], allowed["h"][there] = h, d_h
    for i in range(row0 // height * parts, padded(end) // height * parts):
        of = sums == i  # none, perhaps: the sum is 0
        squares = (x[:, of] ** 2).sum(1)
        expect["partials"][:n_tokens, i] = squares
        allowed["partials"][:n_tokens, i] = (d_x * (2 * np.abs(x) + d_x))[:, of].sum(1) + 1e-6 * squares
    whys = {
        "h": "relative 6e-8 more than x",
        "partials": "relative 1e-6, and what x is off by",
        "residual": "1.2e-7 (sqrt(N_IN) + 8) sum spread |y| + 6e-8 |x|",
    }
    inputs = {**whole[row0 : padded(end)].tiles, "x": rows(y, padded(n_in)), "norm": gain}
    inputs |= {"now": state(3, n_tokens), **before}
    overrides = {"N_ROWS": end - row0, "ROW0": row0, "STRIDE": stride, "N_PARTIALS": n_partials}
    overrides |= {"PART_PAIRS": pairs, "SCALE": scale}
    op = product_op("project", whole, share, tile, list(inputs), **overrides)
    outputs = {out: Expect(expect[out], allowed[out], why) for out, why in whys.items()}
    return KernelCase(name, op, inputs, outputs, n_tokens + SPARE)
