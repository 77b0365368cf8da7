"""The case table: every kernel, with sizes around the workgroup size, outliers, zero rows and ties.

Truth is numpy in float64 and, for tensor types, the `gguf` package. Expected values never come from pagelm.
"""

import gguf
import numpy as np
from kernel_case import KernelCase
from tiles import tiled

from pagelm.kernels import Variant
from pagelm.program import PAIRS, Op

EPS32 = 2.0**-23  # one ulp of 1.0
STATE = 4  # words before the token ids


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


def state(n_past: int, n_tokens: int, tokens: list[int] | None = None) -> np.ndarray:
    return np.array([n_past, n_tokens, 77, 0, *(tokens or [0] * max(1, n_tokens))], np.uint32)


def f64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def quantised(quant: str, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(bytes as the file has them, the values they stand for in float64), by the gguf package."""
    kind = gguf.GGMLQuantizationType[quant]
    if quant == "F32":
        data = weights.astype(np.float32)
    elif quant == "F16":
        data = weights.astype(np.float16)
    else:
        data = gguf.quants.quantize(weights.astype(np.float32), kind)
    raw = np.frombuffer(data.tobytes() + bytes(-data.nbytes % 4), np.uint32)
    return raw, f64(gguf.quants.dequantize(data, kind)).reshape(weights.shape)


def spread(quant: str, raw: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Per weight, the size of the numbers that it is put together from: rounding errors are relative to it.

    The kernels add up d q x and bring zero points and minima in once for 32 weights, so what is rounded is as
    large as the largest quant, however small the weight.
    """
    if not quant.startswith("Q"):
        return np.abs(w)
    n_rows, n_in = w.shape
    largest = 255 if quant == "Q8_0" else 16
    _, s = tiled(quant, raw, n_rows, n_in)
    s = np.abs(f64(s)).reshape(-1, n_in // 32, 4, 2, 4, s.size // (padded(n_rows) * n_in // 32))
    s = s.transpose(0, 2, 4, 3, 1, 5).reshape(padded(n_rows), n_in // 32, -1)[:n_rows]  # rows in order again
    return np.repeat(largest * s[..., 0] + (s[..., 1] if s.shape[-1] > 1 else 0), 32, axis=1)


QUANTS = ("F32", "F16", "Q4_0", "Q4_1", "Q8_0")


def embed_cases() -> list[KernelCase]:
    cases = []
    for quant in QUANTS:
        for n_in in (64, 160) if quant.startswith("Q") else (64, 100):
            for output in ("x", "h", "partials"):
                name = f"embed-{quant.lower()}-{n_in}"
                r = rng(name)
                raw, values = quantised(quant, spiky(r, 50, n_in))
                norm = (1 + 0.1 * r.standard_normal(n_in)).astype(np.float32)
                cases.append(embed_case(name, quant, raw, values, norm, [0, 49, 7, 7, 31], output))
    # two slabs: rows of the other slab must be left alone
    r = rng("embed-slab")
    raw, values = quantised("Q8_0", r.standard_normal((10, 64)))
    norm = np.ones(64, np.float32)
    cases.append(embed_case("embed-slab", "Q8_0", raw, values, norm, [31, 34, 42], "x", row0=32))
    return cases


def embed_case(
    name: str,
    quant: str,
    raw: np.ndarray,
    values: np.ndarray,
    norm: np.ndarray,
    tokens: list[int],
    output: str,
    row0: int = 0,
) -> KernelCase:
    n_rows, n_in = values.shape
    stride, n_tokens = padded(n_in), len(tokens)
    n_partials = 2 * stride // 32
    q, s = tiled(quant, raw, n_rows, n_in)
    before = {
        "h": np.full((n_tokens, stride), 5, np.float32),
        "partials": np.full((n_tokens, n_partials), 5, np.float32),
        "x": np.full((n_tokens, stride), 5, np.float32),
    }
    expect = f64(before[output])
    for t, token in enumerate(tokens):
        if not row0 <= token < row0 + n_rows:
            continue
        row = values[token - row0]
        if output == "partials":
            expect[t] = 0
            squares = np.pad(row**2, (0, stride - n_in)).reshape(-1, 32).sum(1)
            expect[t, ::2] = squares
        else:
            expect[t, :n_in] = row * (f64(norm) if output == "h" else 1)
    op = Op(
        "embed",
        Variant("embed", quant),
        ("q", "s", "norm", "state", "h", "partials", "x"),
        {"N_EMBD": n_in, "N_ROWS": n_rows, "ROW0": row0, "STRIDE": stride, "N_PARTIALS": n_partials},
        invocations=stride // 32,
    )
    inputs = {"q": q, "s": s, "norm": norm, "state": state(3, n_tokens, tokens), **before}
    ulps = {"x": 3, "h": 4, "partials": 40}[output]
    return KernelCase(
        f"{name}-{output}",
        op,
        inputs,
        output,
        expect,
        ulps * EPS32 * np.abs(expect) + 1e-30,
        "d * q + m rounds twice; h once more; 32 squares are added up",
        n_tokens,
    )


def matmul_cases() -> list[KernelCase]:
    cases = []
    shapes = [(1, 32, 1), (5, 64, 3), (64, 96, 4), (67, 160, 5), (257, 64, 2)]
    for quant in QUANTS:
        for share in ("alone", "quad"):
            for tokens in (1, 4):
                for n_rows, n_in, n_tokens in [
                    *shapes,
                    *([] if quant.startswith("Q") else [(9, 50, 3), (6, 33, 2)]),
                ]:
                    if tokens == 1 and n_rows not in (1, 67, 9):
                        continue
                    name = f"matmul-{quant.lower()}-{share}-t{tokens}-{n_rows}x{n_in}x{n_tokens}"
                    r = rng(name)
                    w = spiky(r, n_rows, n_in)
                    w[0] = 0  # a zero row: zero scale
                    raw, values = quantised(quant, w)
                    x = spiky(r, n_tokens, n_in)
                    cases.append(matmul_case(name, quant, share, tokens, raw, values, x))
    for quant in ("Q4_0", "Q4_1", "Q8_0"):
        name = f"matmul-{quant.lower()}-adversarial"
        r = rng(name)
        raw, values = adversarial(quant, r, 16, 64)
        x = r.standard_normal((2, 64)).astype(np.float32)
        cases.append(matmul_case(name, quant, "alone", 4, raw, values, x))
    # a slab in the middle of a matrix writes its own rows only; rows that alternate write one of two results
    name = "matmul-slab"
    r = rng(name)
    raw, values = quantised("Q4_1", r.standard_normal((6, 64)))
    cases.append(matmul_case(name, "Q4_1", "alone", 4, raw, values, spiky(r, 2, 64), row0=32, y_stride=64))
    for phase in (0, 1):
        name = f"matmul-phase{phase}"
        x = spiky(r, 2, 64)
        cases.append(matmul_case(name, "Q4_1", "quad", 4, raw, values, x, step=2, phase=phase))
    return cases


def adversarial(quant: str, r: np.random.Generator, n_rows: int, n_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks with zero, tiny (subnormal), negative and extreme scales, all-zero and all-one bits."""
    kind = gguf.GGMLQuantizationType[quant]
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    n = n_rows * n_in // 32
    blocks = r.integers(0, 256, (n, block_bytes), dtype=np.uint8)
    scales = np.array([0.0, -0.0, 6e-8, -6e-5, 1.0, -1.0, 1000.0, -60000.0], np.float16)
    halves = 2 if quant == "Q4_1" else 1
    for h in range(halves):
        blocks[:, 2 * h : 2 * h + 2] = r.choice(scales, n).view(np.uint8).reshape(n, 2)
    blocks[1, 2 * halves :] = 0
    blocks[2, 2 * halves :] = 255
    data = blocks.reshape(n_rows, -1)
    raw = np.frombuffer(data.tobytes() + bytes(-data.nbytes % 4), np.uint32)
    return raw, f64(gguf.quants.dequantize(data, kind)).reshape(n_rows, n_in)


def matmul_case(
    name: str,
    quant: str,
    share: str,
    tokens: int,
    raw: np.ndarray,
    w: np.ndarray,
    x: np.ndarray,
    row0: int = 0,
    y_stride: int | None = None,
    step: int = 1,
    phase: int = 0,
) -> KernelCase:
    (n_rows, n_in), n_tokens = w.shape, x.shape[0]
    y_stride = y_stride or n_rows + 3
    before = np.full((n_tokens, y_stride), -9, np.float32)
    expect = f64(before)
    magnitude = np.zeros_like(expect)
    done, n_out = n_tokens, n_rows // step
    expect[:done, row0 : row0 + n_out] = (f64(x) @ w.T)[:done, phase::step]
    size = np.abs(f64(x)) @ spread(quant, raw, w).T
    magnitude[:done, row0 : row0 + n_out] = size[:done, phase::step]
    q, s = tiled(quant, raw, n_rows, n_in)
    op = Op(
        "matmul",
        Variant("matmul", quant, share, (("P", PAIRS), ("T", tokens))),
        ("q", "s", "x", "state", "y"),
        {
            "N_BLOCKS": padded(n_in) // 32,
            "N_ROWS": n_rows,
            "ROW0": row0,
            "STEP": step,
            "PHASE": phase,
            "X_STRIDE": padded(n_in),
            "Y_STRIDE": y_stride,
        },
        invocations=padded(n_rows) // (2 * PAIRS),
    )
    inputs = {"q": q, "s": s, "x": rows(x, padded(n_in)), "state": state(4, n_tokens), "y": before}
    return KernelCase(
        name,
        op,
        inputs,
        "y",
        expect,
        1.2e-7 * (n_in**0.5 + 8) * magnitude + 1e-30,
        "1.2e-7 * (sqrt(N_IN) + 8) * sum spread |x|",
        n_tokens,
    )


def rms_norm_cases() -> list[KernelCase]:
    cases = []
    for n in (1, 63, 64, 65, 576, 1000):
        name = f"rms_norm-{n}"
        r = rng(name)
        stride = padded(n)
        x = spiky(r, 3, n)
        x[1] = 0
        w = (1 + 0.1 * r.standard_normal(n)).astype(np.float32)
        eps = 1e-5
        expect = np.zeros((3, stride))
        expect[:, :n] = f64(x) / np.sqrt((f64(x) ** 2).mean(1, keepdims=True) + np.float32(eps)) * w
        op = Op(
            "n",
            Variant("rms_norm"),
            ("x", "w", "state", "y"),
            {"N_EMBD": n, "STRIDE": stride, "EPS": eps},
            workgroups=1,
        )
        inputs = {"x": rows(x, stride), "w": w, "state": state(0, 3), "y": np.zeros((3, stride), np.float32)}
        # with one invocation the sum of squares is a plain running sum: up to n / 2 roundings
        cases.append(
            KernelCase(
                name,
                op,
                inputs,
                "y",
                expect,
                (4e-6 + 3e-8 * n**0.5) * np.abs(expect) + 1e-30,
                "relative 4e-6, + 3e-8 sqrt(n) for one running sum at WG = 1",
                3,
            )
        )
    return cases


def rope_cases() -> list[KernelCase]:
    cases = []
    for n_head, n_rot in ((1, 2), (3, 64), (9, 64), (5, 24)):
        name = f"rope-{n_head}x{n_rot}"
        r = rng(name)
        n_tokens, n_past, n = 3, 5, n_head * n_rot
        stride = padded(n)
        x = spiky(r, n_tokens, n)
        theta = np.arange(16)[:, None] * 10000.0 ** (-2 * np.arange(n_rot // 2) / n_rot)
        angles = np.stack([np.cos(theta), np.sin(theta)], -1).astype(np.float32)
        pairs = f64(x).reshape(n_tokens, n_head, n_rot // 2, 2)
        c, s = (f64(angles[n_past : n_past + n_tokens, None, :, i]) for i in (0, 1))
        turned = np.stack([pairs[..., 0] * c - pairs[..., 1] * s, pairs[..., 0] * s + pairs[..., 1] * c], -1)
        expect = np.zeros((n_tokens, stride))
        expect[:, :n] = turned.reshape(n_tokens, n)
        size = np.zeros_like(expect)
        size[:, :n] = np.repeat(np.abs(pairs).sum(-1).reshape(n_tokens, n // 2), 2, axis=1)
        op = Op(
            "r",
            Variant("rope"),
            ("angles", "state", "x"),
            {"N_HEAD": n_head, "N_ROT": n_rot, "STRIDE": stride},
            invocations=n // 2,
        )
        inputs = {"angles": angles, "state": state(n_past, n_tokens), "x": rows(x, stride)}
        cases.append(
            KernelCase(name, op, inputs, "x", expect, 3e-7 * size, "two products and a sum", n_tokens)
        )
    return cases


def kv_store_cases() -> list[KernelCase]:
    cases = []
    for output in ("k_cache", "v_cache"):
        r = rng("kv_store" + output)
        n, n_ctx, n_tokens, n_past = 65, 8, 3, 6  # the third token is past the context: not stored
        new = {name: rows(spiky(r, n_tokens, n), 96) for name in ("k", "v")}
        cache = {name: spiky(r, n_ctx, n) for name in ("k_cache", "v_cache")}
        expect = f64(cache[output])
        expect[6:8] = new[output[0]][:2, :n]
        op = Op(
            "kv",
            Variant("kv_store"),
            ("k", "v", "state", "k_cache", "v_cache"),
            {"N_EMBD_KV": n, "STRIDE": 96, "N_CTX": n_ctx},
            invocations=n,
        )
        inputs = {**new, "state": state(n_past, n_tokens), **cache}
        cases.append(KernelCase(f"kv_store-{output}", op, inputs, output, expect, 0.0, "a copy", n_tokens))
    return cases


def attention_cases() -> list[KernelCase]:
    cases = []
    for n_head, n_group, hd, n_past, n_tokens in (
        (1, 1, 4, 0, 1),
        (4, 2, 64, 61, 5),
        (9, 3, 64, 0, 4),
        (6, 6, 32, 130, 2),
    ):
        shape = f"{n_head}/{n_group}x{hd}-past{n_past}+{n_tokens}"
        r = rng("attention" + shape)
        n_ctx, n_kv = 160, n_past + n_tokens
        n_embd_kv, stride = n_head // n_group * hd, padded(n_head * hd)
        q = r.standard_normal((n_tokens, n_head * hd)).astype(np.float32)
        cache = spiky(r, n_ctx, n_embd_kv)
        by_head = np.repeat(f64(cache).reshape(n_ctx, -1, hd), n_group, axis=1)  # (n_ctx, n_head, hd)
        scale = hd**-0.5
        before = np.full((n_tokens, n_head, n_ctx), -7, np.float32)
        heads = {
            "N_HEAD": n_head,
            "N_GROUP": n_group,
            "N_EMBD_HEAD": hd,
            "N_EMBD_KV": n_embd_kv,
            "N_CTX": n_ctx,
        }
        queries = f64(q).reshape(n_tokens, n_head, hd)
        visible = np.arange(n_ctx)[None, None] <= n_past + np.arange(n_tokens)[:, None, None]

        expect = np.where(visible, np.einsum("thd,phd->thp", queries, by_head) * scale, before)
        size = np.where(visible, np.einsum("thd,phd->thp", np.abs(queries), np.abs(by_head)) * scale, 0)
        op = Op(
            "s",
            Variant("attn_scores"),
            ("q", "k_cache", "state", "s"),
            {**heads, "Q_STRIDE": stride, "SCALE": scale},
            invocations=1,
            per_position=1,
            per_token=n_head,
        )
        inputs = {"q": rows(q, stride), "k_cache": cache, "state": state(n_past, n_tokens), "s": before}
        cases.append(
            KernelCase(
                f"attn_scores-{shape}",
                op,
                inputs,
                "s",
                expect,
                1.2e-7 * hd**0.5 * size + 1e-30,
                "1.2e-7 * sqrt(N_EMBD_HEAD) * sum |q k|",
                n_tokens,
                n_kv,
            )
        )

        scores = (6 * r.standard_normal((n_tokens, n_head, n_ctx))).astype(np.float32)
        scores[0, 0, 0] = 80  # an outlier takes nearly all the weight
        masked = np.where(visible, f64(scores), -np.inf)
        e = np.exp(masked - masked.max(-1, keepdims=True))
        share = e / e.sum(-1, keepdims=True)
        expect = np.where(visible, share, f64(scores))
        # below 2^-126 a device may flush to zero
        allowed = np.where(
            visible, (4e-6 + 2e-6 * (masked.max(-1, keepdims=True) - f64(scores))) * share + 1.2e-38, 0
        )
        op = Op(
            "m",
            Variant("softmax"),
            ("state", "s"),
            {"N_HEAD": n_head, "N_CTX": n_ctx},
            workgroups=1,
            per_token=n_head,
        )
        inputs = {"state": state(n_past, n_tokens), "s": scores}
        cases.append(
            KernelCase(f"softmax-{shape}", op, inputs, "s", expect, allowed, "exp: 3 + 2|x| ulp", n_tokens)
        )

        share32 = np.where(visible, share, 9).astype(np.float32)  # what lies past the mask must not be read
        weights = np.where(visible, f64(share32), 0)
        expect = np.zeros((n_tokens, stride))
        expect[:, : n_head * hd] = np.einsum("thp,phd->thd", weights, by_head).reshape(n_tokens, -1)
        size = np.zeros_like(expect)
        size[:, : n_head * hd] = np.einsum("thp,phd->thd", weights, np.abs(by_head)).reshape(n_tokens, -1)
        op = Op(
            "v",
            Variant("attn_values"),
            ("s", "v_cache", "state", "y"),
            {**heads, "Y_STRIDE": stride},
            invocations=n_head * hd // 4,
        )
        inputs = {
            "s": share32,
            "v_cache": cache,
            "state": state(n_past, n_tokens),
            "y": np.zeros((n_tokens, stride), np.float32),
        }
        cases.append(
            KernelCase(
                f"attn_values-{shape}",
                op,
                inputs,
                "y",
                expect,
                1.2e-7 * (n_kv**0.5 + 1) * size + 1e-30,
                "1.2e-7 * sqrt(n) * sum |s v|",
                n_tokens,
            )
        )
    return cases


def elementwise_cases() -> list[KernelCase]:
    cases = []
    for n in (32, 96, 1024):
        r = rng(f"elementwise{n}")
        x, y = spiky(r, 3, n), spiky(r, 3, n)
        op = Op("a", Variant("add"), ("y", "state", "x"), {"STRIDE": n}, invocations=n // 4)
        expect = (x + y).astype(np.float64)
        expect[2] = x[2]  # n_tokens is 2: the third row is left alone
        inputs = {"y": y, "state": state(0, 2), "x": x}
        cases.append(KernelCase(f"add-{n}", op, inputs, "x", expect, 0.0, "one IEEE addition", 3))

        gate = (4 * r.standard_normal((2, n))).astype(np.float32)
        gate[0, :6] = [0, -0.0, 88, -88, -200, 3e4]
        up = spiky(r, 2, n)
        e = np.exp(-f64(gate))
        expect = f64(gate) / (1 + e) * up
        allowed = (6e-7 + 1.2e-7 * (4 + 2 * np.abs(np.minimum(f64(gate), 80)))) * np.abs(expect) + 1e-30
        op = Op("g", Variant("swiglu"), ("gate", "up", "state", "y"), {"STRIDE": n}, invocations=n // 4)
        inputs = {"gate": gate, "up": up, "state": state(0, 2), "y": np.zeros((2, n), np.float32)}
        cases.append(
            KernelCase(f"swiglu-{n}", op, inputs, "y", expect, allowed, "exp: 3 + 2|x| ulp; division", 2)
        )

        op = Op("l", Variant("last_row"), ("x", "state", "y"), {"STRIDE": n}, invocations=n, per_token=0)
        inputs = {"x": x, "state": state(9, 2), "y": np.zeros((1, n), np.float32)}
        cases.append(KernelCase(f"last_row-{n}", op, inputs, "y", f64(x[1:2]), 0.0, "a copy", 3))
    return cases


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
            with np.errstate(invalid="ignore"):
                best = [first_max(x[g * span : (g + 1) * span], g * span) for g in range(parts)]
            partial = np.array([[float_key(x, i), i] for i in best], np.uint32)
            whole = first_max(x, 0)
            after = np.array([11, 1, whole, 8, whole, 8], np.uint32)
            op = Op("a", Variant("argmax"), ("x", "state"), {"N_PART": parts}, workgroups=1, per_token=0)
            inputs = {"x": partial, "state": np.array([9, 2, 5, 0, 7, 8], np.uint32)}
            cases.append(KernelCase(f"argmax-{name}-{parts}", op, inputs, "state", after, 0.0, "exact"))
    return cases


def first_max(x: np.ndarray, start: int) -> int:
    """Index of the largest value, the lowest on ties, NaN never; 0xffffffff when all are NaN."""
    usable = np.where(np.isnan(x), -np.inf, x)
    if np.isnan(x).all():
        return 0xFFFFFFFF
    candidates = np.flatnonzero((usable == usable.max()) & ~np.isnan(x))
    return start + int(candidates[0])


def float_key(x: np.ndarray, i: int) -> int:
    """The order-preserving integer of x[i]: 2^31 + bits from 0 up, 2^31 - magnitude below 0, NaN 0."""
    if i == 0xFFFFFFFF:
        return 0
    bits = int(np.float32(x[i]).view(np.uint32))
    return 0x80000000 + (bits & 0x7FFFFFFF) if bits <= 0x80000000 else 0x80000000 - (bits & 0x7FFFFFFF)


CASES: list[KernelCase] = [
    *embed_cases(),
    *matmul_cases(),
    *rms_norm_cases(),
    *rope_cases(),
    *kv_store_cases(),
    *attention_cases(),
    *elementwise_cases(),
    *argmax_cases(),
]
