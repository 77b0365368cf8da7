"""Cases of the kernels that work on rows of activations, of the look-up of tokens, and of argmax."""

from dataclasses import replace

import numpy as np
from blocks import adversarial, size_of
from kernel_case import Expect, KernelCase
from kernels.data import (
    EPS32,
    MORE,
    QUANTS,
    SHARERS,
    Weights,
    f64,
    filled,
    from_raw,
    padded,
    quantised,
    rng,
    spiky,
    state,
)
from kernels.repacking import repacked

from pagelm.kernels import Variant
from pagelm.program import Op


def embed_cases() -> list[KernelCase]:
    cases = []
    for quant in QUANTS:
        for n_in in (64, 160) if size_of(quant)[0] > 1 else (64, 100):
            name = f"embed-{quant.lower()}-{n_in}"
            w = quantised(quant, spiky(rng(name), 50, n_in))
            cases.append(embed_case(name, w, [0, 49, 7, 7, 31]))
    # a slab of two: rows of the other must be left alone
    w = quantised("Q8_0", rng("embed-slab").standard_normal((10, 64)))
    cases.append(embed_case("embed-slab", w, [31, 34, 42], row0=32))
    return cases


def more_embed_cases() -> list[KernelCase]:
    """Every weight of hard blocks, from the file's bytes on: rows by turns over other rows; in two pieces."""
    cases = []
    for quant in MORE:
        name, n_in = f"embed-{quant.lower()}-adversarial", 512 - 13 * (size_of(quant)[0] == 1)
        w = from_raw(quant, adversarial(quant, rng(name), 70, n_in))
        first = (repacked(w[::-1], n_matrix=70), *(repacked(w[i::2], 4 + 8 * i, i, 2, 70) for i in (0, 1)))
        cases.append(embed_case(name, w, list(range(70)), first=first))
        name = f"embed-{quant.lower()}-piece"
        w = from_raw(quant, adversarial(quant, rng(name), 70, n_in))
        first = (repacked(w[:40], n_matrix=70), repacked(w[40:], 4, 40, 1, 70))
        cases.append(embed_case(name, w, list(range(70)), first=first))
    return cases


def embed_case(
    name: str, w: Weights, tokens: list[int], row0: int = 0, first: tuple[KernelCase, ...] = ()
) -> KernelCase:
    n_rows, n_in = w.values.shape
    stride, n_tokens = padded(n_in), len(tokens)
    n_partials = 2 * stride // 32
    gain = (1 + 0.1 * rng(name).standard_normal(n_in)).astype(np.float32)
    before = {
        "h": filled(5, n_tokens, stride),
        "partials": filled(5, n_tokens, n_partials),
        "x": filled(5, n_tokens, stride),
    }
    expect = {out: f64(value) for out, value in before.items()}
    for t, token in enumerate(tokens):
        if row0 <= token < row0 + n_rows:
            row = w.values[token - row0]
            expect["x"][t, :n_in] = row
            expect["h"][t, :n_in] = row * f64(gain)
            expect["partials"][t] = 0
            expect["partials"][t, ::2] = np.pad(row**2, (0, stride - n_in)).reshape(-1, 32).sum(1)
    inputs = {**w.tiles, "norm": gain, "state": state(3, n_tokens, tokens), **before}
    overrides = {"N_EMBD": n_in, "N_ROWS": n_rows, "ROW0": row0, "STRIDE": stride, "N_PARTIALS": n_partials}
    op = Op(
        "embed",
        Variant("embed", w.quant, scales=w.scales),
        tuple(inputs),
        overrides,
        invocations=stride // 32,
    )
    why = "d * q + m rounds twice; h once more; 32 squares are added up"
    outputs = {
        out: Expect(expect[out], ulps * EPS32 * np.abs(expect[out]) + 1e-30, why)
        for out, ulps in {"h": 4, "partials": 40, "x": 3}.items()
    }
    return KernelCase(name, op, inputs, outputs, n_tokens, first=first)


def elementwise_cases() -> list[KernelCase]:
    cases = []
    for n in (32, 96, 1024):
        r = rng(f"elementwise{n}")
        x, y = spiky(r, 3, n), spiky(r, 3, n)
        inputs = {"y": y, "state": state(0, 2), "x": x}
        for scale in (1.0, 0.3):
            overrides = {"STRIDE": n, "SCALE": scale}
            op = Op("add", Variant("add"), tuple(inputs), overrides, invocations=n // 4)
            part = f64(y) * float(np.float32(scale))
            expect = f64(x + y) if scale == 1 else f64(x) + part
            expect[2] = x[2]  # n_tokens is 2: the third row is left alone
            allowed = np.zeros(x.shape)
            if scale != 1:
                allowed[:2] = (6e-8 * (np.abs(part) + np.abs(expect)))[:2]
            name = f"add-{n}" + "-scaled" * (scale != 1)
            outputs = {"x": Expect(expect, allowed, "one IEEE addition, of a product where there is a scale")}
            cases.append(KernelCase(name, op, inputs, outputs, 3))

        inputs = {"x": x, "state": state(9, 2), "y": filled(0, 1, n)}
        op = Op("last_row", Variant("last_row"), tuple(inputs), {"STRIDE": n}, invocations=n, per_token=0)
        cases.append(KernelCase(f"last_row-{n}", op, inputs, {"y": Expect(f64(x[1:2]), 0.0, "a copy")}, 3))
    return cases


def scaled_embed_cases() -> list[KernelCase]:
    """Rows times a number; rows of positions, which are added."""
    cases = []
    for quant in ("F32", "Q8_0"):
        name = f"embed-{quant.lower()}-scaled"
        case = embed_case(name, quantised(quant, spiky(rng(name), 50, 160)), [0, 49, 7, 7, 31])
        scale = float(np.float32(12.65))
        factors = {"h": scale, "partials": scale**2, "x": scale}
        outputs = {}
        for out, ulps in {"h": 6, "partials": 44, "x": 4}.items():
            values = (
                np.where(case.inputs[out] == case.expect[out].values, 1, factors[out])
                * case.expect[out].values
            )
            why = "d * q + m rounds twice, the scale once; h once more; 32 squares are added up"
            outputs[out] = Expect(values, ulps * EPS32 * np.abs(values) + 1e-30, why)
        op = replace(case.op, overrides={**case.op.overrides, "SCALE": scale})
        cases.append(replace(case, op=op, expect=outputs))
    for row0 in (0, 32):  # of a slab: tokens 0 … 4 are at 30 … 34
        name, n_in, n_past, n_tokens = f"embed-positions-{row0}", 100, 30, 5
        r = rng(name)
        w = quantised("F32", spiky(r, 40 - row0, n_in))
        case = embed_case(name, w, [n_past + t for t in range(n_tokens)], row0)  # token ids as the positions
        x = spiky(r, n_tokens, padded(n_in))
        inputs = {**case.inputs, "state": state(n_past, n_tokens, [3] * n_tokens), "x": x}
        gain, stride = f64(case.inputs["norm"]), padded(n_in)
        expect = {out: f64(inputs[out]) for out in case.expect}
        allowed = {out: np.zeros(values.shape) for out, values in expect.items()}
        for t in range(n_tokens):
            if n_past + t >= row0:
                row = w.values[n_past + t - row0]
                total = f64(x[t, :n_in]) + row
                off = EPS32 * (np.abs(row) + np.abs(total))
                expect["x"][t, :n_in], allowed["x"][t, :n_in] = total, off
                expect["h"][t, :n_in] = total * gain
                allowed["h"][t, :n_in] = off * gain + EPS32 * np.abs(total * gain)
                blocks = np.pad(total**2, (0, stride - n_in)).reshape(-1, 32).sum(1)
                slack = np.pad(off * (2 * np.abs(total) + off), (0, stride - n_in)).reshape(-1, 32).sum(1)
                expect["partials"][t], allowed["partials"][t] = 0, 0
                expect["partials"][t, ::2], allowed["partials"][t, ::2] = blocks, slack + 32 * EPS32 * blocks
        why = "one addition; h one product more; 32 squares are added up"
        outputs = {out: Expect(expect[out], allowed[out], why) for out in expect}
        op = replace(case.op, overrides={**case.op.overrides, "POSITIONS": 1})
        cases.append(replace(case, op=op, inputs=inputs, expect=outputs))
    return cases


def share_cases() -> list[KernelCase]:
    cases = []
    for share in SHARERS:
        name = f"share_test-{share}"
        x = rng(name).standard_normal((64, 2, 4, 4)).astype(np.float32)  # row, half, quarter, element
        i, slot = np.ogrid[:256, :4]
        expect = x[i // 4, :, slot ^ i % 4].reshape(256, 32)
        inputs = {"x": x, "y": filled(-9, 256, 32)}
        op = Op("share_test", Variant("share_test", share=share), tuple(inputs), invocations=256)
        cases.append(KernelCase(name, op, inputs, {"y": Expect(f64(expect), 0.0, "a copy")}))
    return cases
