"""Cases of the kernels that work on rows of activations, of the look-up of tokens, and of argmax."""

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
    rows,
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


def rms_norm_cases() -> list[KernelCase]:
    cases = []
    for n in (1, 63, 64, 65, 576, 1000):
        r = rng(f"rms_norm-{n}")
        stride, eps = padded(n), 1e-5
        x = spiky(r, 3, n)
        x[1] = 0
        w = (1 + 0.1 * r.standard_normal(n)).astype(np.float32)
        expect = np.zeros((3, stride))
        expect[:, :n] = f64(x) / np.sqrt((f64(x) ** 2).mean(1, keepdims=True) + np.float32(eps)) * w
        inputs = {"x": rows(x, stride), "w": w, "state": state(0, 3), "y": filled(0, 3, stride)}
        overrides = {"N_EMBD": n, "STRIDE": stride, "EPS": eps}
        op = Op("rms_norm", Variant("rms_norm"), tuple(inputs), overrides, workgroups=1)
        # with one invocation the sum of squares is a plain running sum: up to n / 2 roundings
        allowed = (4e-6 + 3e-8 * n**0.5) * np.abs(expect) + 1e-30
        why = "relative 4e-6, + 3e-8 sqrt(n) for one running sum at WG = 1"
        cases.append(KernelCase(f"rms_norm-{n}", op, inputs, {"y": Expect(expect, allowed, why)}, 3))
    return cases


def elementwise_cases() -> list[KernelCase]:
    cases = []
    for n in (32, 96, 1024):
        r = rng(f"elementwise{n}")
        x, y = spiky(r, 3, n), spiky(r, 3, n)
        op = Op("add", Variant("add"), ("y", "state", "x"), {"STRIDE": n}, invocations=n // 4)
        expect = f64(x + y)
        expect[2] = x[2]  # n_tokens is 2: the third row is left alone
        inputs = {"y": y, "state": state(0, 2), "x": x}
        cases.append(KernelCase(f"add-{n}", op, inputs, {"x": Expect(expect, 0.0, "one IEEE addition")}, 3))

        gate = (4 * r.standard_normal((2, n))).astype(np.float32)
        gate[0, :6] = [0, -0.0, 88, -88, -200, 3e4]
        up = spiky(r, 2, n)
        expect = f64(gate) / (1 + np.exp(-f64(gate))) * up
        allowed = (6e-7 + 1.2e-7 * (4 + 2 * np.abs(np.minimum(f64(gate), 80)))) * np.abs(expect) + 1e-30
        inputs = {"gate": gate, "up": up, "state": state(0, 2), "y": filled(0, 2, n)}
        op = Op("swiglu", Variant("swiglu"), tuple(inputs), {"STRIDE": n}, invocations=n // 4)
        outputs = {"y": Expect(expect, allowed, "exp: 3 + 2|x| ulp; division")}
        cases.append(KernelCase(f"swiglu-{n}", op, inputs, outputs, 2))

        inputs = {"x": x, "state": state(9, 2), "y": filled(0, 1, n)}
        op = Op("last_row", Variant("last_row"), tuple(inputs), {"STRIDE": n}, invocations=n, per_token=0)
        cases.append(KernelCase(f"last_row-{n}", op, inputs, {"y": Expect(f64(x[1:2]), 0.0, "a copy")}, 3))
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
