"""Cases of rope, the cache and attention, plain and in stretches."""

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.data import SHARERS, angles, f64, filled, padded, rng, rows, spiky, state

from pagelm.kernels import Variant
from pagelm.program import Op

ULP = 1.2e-7
CAPPED = 5e-7  # relative: what capping leaves (shaders/lib/cap.wgsl)
LOWEST = float(np.finfo(np.float32).min)


def pairs_of(n_rot: int, neox: bool) -> tuple[np.ndarray, np.ndarray]:
    """The elements of a head that rope turns with each other: the first and the second of each pair."""
    j = np.arange(n_rot // 2)
    return (j, j + n_rot // 2) if neox else (2 * j, 2 * j + 1)


def rotated(heads: np.ndarray, turns: np.ndarray, neox: bool) -> np.ndarray:
    """heads (tokens, heads, elements), their first pairs turned: turns (tokens, n_rot / 2, 2)."""
    a, b = pairs_of(2 * turns.shape[1], neox)
    c, s = (f64(turns[:, None, :, i]) for i in (0, 1))
    out = heads.copy()
    out[..., a] = heads[..., a] * c - heads[..., b] * s
    out[..., b] = heads[..., a] * s + heads[..., b] * c
    return out


def pair_sums(size: np.ndarray, n_rot: int, neox: bool) -> np.ndarray:
    """For each element that is turned the sum over its pair, for others nothing."""
    a, b = pairs_of(n_rot, neox)
    out = np.zeros_like(size)
    out[..., a] = out[..., b] = size[..., a] + size[..., b]
    return out


def rope_cases() -> list[KernelCase]:
    cases = []
    for n_head, d, n_rot, neox in (
        (1, 2, 2, False),
        (3, 64, 64, False),
        (9, 64, 64, False),
        (5, 24, 24, False),
        (5, 24, 24, True),
        (3, 32, 12, True),
        (2, 20, 4, False),
        (1, 8, 2, True),
    ):
        name = f"rope-{n_head}x{d}" + f"-{n_rot}" * (n_rot < d) + "-neox" * neox
        n_tokens, n_past, n = 3, 5, n_head * d
        stride = padded(n)
        x, turns = spiky(rng(name), n_tokens, n), angles(16, n_rot)
        expect, size = np.zeros((2, n_tokens, stride))
        heads = f64(x).reshape(n_tokens, n_head, d)
        expect[:, :n] = rotated(heads, turns[n_past : n_past + n_tokens], neox).reshape(n_tokens, n)
        size[:, :n] = pair_sums(np.abs(heads), n_rot, neox).reshape(n_tokens, n)
        inputs = {"angles": turns, "state": state(n_past, n_tokens), "x": rows(x, stride)}
        overrides = {"N_HEAD": n_head, "N_EMBD_HEAD": d, "N_ROT": n_rot, "STRIDE": stride, "NEOX": int(neox)}
        op = Op("rope", Variant("rope"), tuple(inputs), overrides, invocations=n_head * n_rot // 2)
        outputs = {"x": Expect(expect, 3e-7 * size, "two products and a sum")}
        cases.append(KernelCase(name, op, inputs, outputs, n_tokens))
    return cases


def half_cases() -> list[KernelCase]:
    """Those of kernels with an f16 cache: its numbers are rounded first, then all is as with f32."""
    cases = [kv_store_f16_case()]
    for share in SHARERS:
        for tokens in (1, 2):
            cases.append(stretch_case(share, tokens, 9, 3, 64, 126, 5, 64, cache="f16"))
    cases.append(stretch_case("quad", 2, 6, 3, 20, 27, 3, 12, cache="f16"))
    cases += (c for c in baseline_case(4, 2, 64, 61, 5, cache="f16") if c.op.variant.kernel != "softmax")
    return cases


def kv_store_f16_case() -> KernelCase:
    """Exact where f16 has the number, or either neighbour; the largest number for all that are past it."""
    n, n_past = 64, 1
    r = rng("kv_store-f16")
    new = {name: rows(spiky(r, 2, n), 96) for name in "kv"}
    new["k"][0, :8] = 65504, -65504, 65519, 65520, -7e4, 1e38, -3.4028234e38, 2049
    new["v"][1, :8] = 2**-14, -(2**-14), 2**-15, 2**-24, 1e-5, 1e-9, 0, -1 / 3
    cache = {f"{name}_cache": spiky(r, 4, n).astype(np.float16) for name in "kv"}
    outputs = {}
    for name, before in cache.items():
        expect, allowed = f64(before), np.zeros(before.shape)
        expect[1:3] = np.clip(f64(new[name[0]][:, :n]), -65504, 65504)
        allowed[1:3] = rounded_to_f16(expect[1:3])
        outputs[name] = Expect(expect, allowed, "either neighbour; subnormals may be flushed")
    inputs = {**new, "state": state(n_past, 2), **cache}
    overrides = {"N_EMBD_KV": n, "STRIDE": 96, "N_CTX": 4}
    op = Op("kv_store", Variant("kv_store", cache="f16"), tuple(inputs), overrides, invocations=n)
    return KernelCase("kv_store-f16", op, inputs, outputs, 2)


def rounded_to_f16(x: np.ndarray) -> np.ndarray:
    """How far f16 may be from each element of `x`, float64 of at most 65504: 0 where it has the number."""
    below = np.maximum(np.abs(x), 2.0**-14)
    step = 2.0 ** (np.floor(np.log2(below)) - 10)
    down = np.floor(np.abs(x) / step) * step
    off = np.where(down == np.abs(x), 0, np.maximum(np.abs(x) - down, down + step - np.abs(x)))
    return np.where(np.abs(x) < 2.0**-14, np.maximum(off, np.abs(x)), off)


def kv_store_cases() -> list[KernelCase]:
    n, n_ctx, n_tokens, n_past = 65, 8, 3, 6  # the third token is past the context: not stored
    r = rng("kv_store")
    new = {name: rows(spiky(r, n_tokens, n), 96) for name in "kv"}
    cache = {f"{name}_cache": spiky(r, n_ctx, n) for name in "kv"}
    outputs = {}
    for name, before in cache.items():
        expect = f64(before)
        expect[6:8] = new[name[0]][:2, :n]
        outputs[name] = Expect(expect, 0.0, "a copy")
    inputs = {**new, "state": state(n_past, n_tokens), **cache}
    overrides = {"N_EMBD_KV": n, "STRIDE": 96, "N_CTX": n_ctx}
    op = Op("kv_store", Variant("kv_store"), tuple(inputs), overrides, invocations=n)
    return [KernelCase("kv_store", op, inputs, outputs, n_tokens)]


class Heads:
    """Queries, a cache, and in float64 what attention makes of them; `visible` is the causal mask."""

    def __init__(
        self,
        name: str,
        n_head: int,
        n_group: int,
        n_rot: int,
        n_past: int,
        n_tokens: int,
        n_ctx: int = 160,
        rising: bool = False,
        cache: str = "f32",
        window: int = 0,
        cap: float = 0.0,
    ) -> None:
        r = rng("attention" + name)
        self.n_past, self.n_tokens, self.n_ctx = n_past, n_tokens, n_ctx
        self.n_head, self.n_group, self.n_rot = n_head, n_group, n_rot
        n_kv = n_head // n_group * n_rot
        self.q = r.standard_normal((n_tokens, n_head * n_rot)).astype(np.float32)
        self.k, self.v = r.standard_normal((n_ctx, n_kv)).astype(np.float32), spiky(r, n_ctx, n_kv)
        self.k.flat[r.integers(0, self.k.size, 5)] *= np.float32(20)
        if rising:
            self.q, self.k = np.abs(self.q), np.repeat(np.linspace(0, 1, n_ctx, dtype=np.float32), n_kv)
            self.k = self.k.reshape(n_ctx, n_kv)
        if cache == "f16":
            with np.errstate(under="ignore"):
                self.k, self.v = self.k.astype(np.float16), self.v.astype(np.float16)
        self.k[n_past + n_tokens :] = self.v[n_past + n_tokens :] = np.nan  # must not be read
        position, at = np.arange(n_ctx)[None, None], n_past + np.arange(n_tokens)[:, None, None]
        self.before = position <= at
        self.visible = self.before & (position > at - (window or n_ctx))
        self.scale = float(np.float32(n_rot**-0.5))
        queries = f64(self.q).reshape(n_tokens, n_head, n_rot)
        keys = self.by_head(self.k)
        self.scores = np.einsum("thd,phd->thp", queries, keys) * self.scale
        self.size = np.einsum("thd,phd->thp", np.abs(queries), np.abs(keys)) * self.scale
        if cap:
            self.scores = cap * np.tanh(self.scores / cap)
        self.overrides = {"N_HEAD": n_head, "N_EMBD_HEAD": n_rot, "N_EMBD_KV": n_kv}
        self.stride = padded(n_head * n_rot)

    def by_head(self, cache: np.ndarray) -> np.ndarray:
        """(n_ctx, n_head, n_rot), NaN as zero."""
        heads = np.nan_to_num(f64(cache)).reshape(self.n_ctx, -1, self.n_rot)
        return np.repeat(heads, self.n_group, axis=1)

    def weighted(self, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(n_tokens, stride): for each query head the sum of values; weights (n_tokens, n_head, n_ctx)."""
        sums = np.einsum("thp,phd->thd", weights, values).reshape(self.n_tokens, -1)
        return np.pad(sums, ((0, 0), (0, self.stride - sums.shape[1])))


def baseline_cases() -> list[KernelCase]:
    shapes = (
        (1, 1, 4, 0, 1, 0, 0.0),
        (4, 2, 64, 61, 5, 0, 0.0),
        (9, 3, 64, 0, 4, 0, 0.0),
        (6, 6, 32, 130, 2, 0, 0.0),
        (4, 2, 16, 90, 3, 70, 2.0),
        (2, 1, 20, 0, 4, 2, 0.5),
        (3, 3, 8, 20, 2, 1, 0.0),
    )
    return [case for shape in shapes for case in baseline_case(*shape)]


def baseline_case(
    n_head: int,
    n_group: int,
    n_rot: int,
    n_past: int,
    n_tokens: int,
    window: int = 0,
    cap: float = 0.0,
    cache: str = "f32",
) -> list[KernelCase]:
    """Attention in three kernels, each on what float64 makes of the ones before."""
    cases = []
    shape = f"{n_head}/{n_group}x{n_rot}-past{n_past}+{n_tokens}" + f"-window{window}" * bool(window)
    shape += "-f16" * (cache == "f16")
    of = Heads(shape, n_head, n_group, n_rot, n_past, n_tokens, cache=cache, window=window, cap=cap)
    n_ctx, n_kv, now = of.n_ctx, n_past + n_tokens, state(n_past, n_tokens)
    heads = {**of.overrides, "N_GROUP": n_group, "N_CTX": n_ctx}

    before = filled(-7, n_tokens, n_head, n_ctx)
    inputs = {"q": rows(of.q, of.stride), "k_cache": of.k, "state": now, "s": before}
    op = Op(
        "attn_scores",
        Variant("attn_scores", cache=cache),
        tuple(inputs),
        {**heads, "Q_STRIDE": of.stride, "SCALE": of.scale, "CAP": cap},
        invocations=1,
        per_position=1,
        per_token=n_head,
    )
    allowed = np.where(
        of.before, ULP * n_rot**0.5 * of.size + CAPPED * np.abs(of.scores) * (cap > 0) + 1e-30, 0
    )
    why = "1.2e-7 sqrt(N_EMBD_HEAD) sum |q k| + 5e-7 |s|, with a cap"
    expect = Expect(np.where(of.before, of.scores, before), allowed, why)
    cases.append(KernelCase(f"attn_scores-{shape}", op, inputs, {"s": expect}, n_tokens, n_kv))

    r = rng("softmax" + shape)
    scores = (6 * r.standard_normal((n_tokens, n_head, n_ctx))).astype(np.float32)
    scores[0, 0, of.visible[0, 0].argmax()] = 80  # an outlier takes nearly all the weight
    sinks = (6 * r.standard_normal(n_head)).astype(np.float32)
    below = np.where(of.visible, f64(scores), -np.inf)
    top = below.max(-1, keepdims=True)
    if window:  # all that have one have sinks here
        top = np.maximum(top, f64(sinks)[:, None])
    below -= top
    total = np.exp(below).sum(-1, keepdims=True) + (np.exp(f64(sinks)[:, None] - top) if window else 0)
    weights = np.exp(below) / total
    # below 2^-126 a device may flush to zero
    allowed = np.where(of.visible, (4e-6 - 2e-6 * np.maximum(below, -1e3)) * weights + 1.2e-38, 0)
    inputs = {"state": now, "sinks": sinks, "s": scores}
    overrides = {"N_HEAD": n_head, "N_CTX": n_ctx, "WINDOW": window, "SINKS": int(window > 0)}
    op = Op("softmax", Variant("softmax"), tuple(inputs), overrides, workgroups=1, per_token=n_head)
    expect = Expect(np.where(of.visible, weights, scores), allowed, "exp: 3 + 2|x| ulp")
    cases.append(KernelCase(f"softmax-{shape}", op, inputs, {"s": expect}, n_tokens))

    # what lies past the mask must not be read
    given = np.where(of.visible, weights, 9).astype(np.float32)
    weights, values = np.where(of.visible, f64(given), 0), of.by_head(of.v)
    inputs = {"s": given, "v_cache": of.v, "state": now, "y": filled(0, n_tokens, of.stride)}
    overrides = {**heads, "Y_STRIDE": of.stride, "WINDOW": window}
    variant = Variant("attn_values", cache=cache)
    op = Op("attn_values", variant, tuple(inputs), overrides, invocations=n_head * n_rot // 4)
    allowed = ULP * (n_kv**0.5 + 1) * of.weighted(weights, np.abs(values)) + 1e-30
    expect = Expect(of.weighted(weights, values), allowed, "1.2e-7 sqrt(n) sum |s v|")
    cases.append(KernelCase(f"attn_values-{shape}", op, inputs, {"y": expect}, n_tokens))
    return cases


def stretch_cases() -> list[KernelCase]:
    cases = []
    for share in SHARERS:
        for tokens in (1, 2):
            for n_head, n_group, n_rot, n_past, n_tokens, split in (
                (9, 3, 64, 126, 5, 64),  # tokens of one tile on both sides of a stretch's end
                (3, 3, 20, 0, 3, 64),
                (5, 1, 4, 11, 9, 8),
                (2, 1, 20, 0, 1, 4),
                (6, 3, 20, 27, 3, 12),
            ):
                cases.append(stretch_case(share, tokens, n_head, n_group, n_rot, n_past, n_tokens, split))
            cases.append(stretch_case(share, tokens, 4, 2, 16, 60, 4, 64, rising=True))
            cases.append(stretch_case(share, tokens, 9, 3, 64, 126, 5, 256, whole=True))
            cases.append(stretch_case(share, tokens, 6, 3, 20, 0, 3, 64, whole=True))
            # a window shorter than a stretch, over the end of one; longer than some; of one token
            cases.append(stretch_case(share, tokens, 9, 3, 64, 126, 5, 64, window=10, cap=50.0))
            cases.append(stretch_case(share, tokens, 6, 3, 20, 45, 3, 12, window=30))
            cases.append(stretch_case(share, tokens, 2, 1, 20, 0, 5, 4, window=1, cap=0.5))
            cases.append(stretch_case(share, tokens, 6, 3, 20, 40, 3, 64, whole=True, window=7))
    return cases


def stretch_case(
    share: str,
    tokens: int,
    n_head: int,
    n_group: int,
    n_rot: int,
    n_past: int,
    n_tokens: int,
    split: int,
    rising: bool = False,
    whole: bool = False,
    cache: str = "f32",
    window: int = 0,
    cap: float = 0.0,
) -> KernelCase:
    """`rising`: every position's score is above all before it, so that the sums are rescaled at each step.

    `whole`: the context is one stretch, and what comes out is divided by the sum of weights.
    """
    n_ctx, spare = split if whole else n_past + n_tokens + 2 * split - 1, 4
    name = f"attention-{share}-t{tokens}-{n_head}/{n_group}x{n_rot}-past{n_past}+{n_tokens}by{split}"
    name += "-rising" * rising + "-whole" * whole + f"-window{window}" * bool(window)
    name += "-f16" * (cache == "f16")
    of = Heads(name, n_head, n_group, n_rot, n_past, n_tokens, n_ctx, rising, cache, window, cap)
    values, d_scores = (
        of.by_head(of.v),
        ULP * (n_rot**0.5 + 1) * of.size + CAPPED * np.abs(of.scores) * (cap > 0),
    )
    n_split, width = -(-n_ctx // split), n_head * n_rot
    before = {
        "ml": filled(-9, n_tokens + spare, n_split, n_head, 2),
        "o": filled(-9, n_tokens + spare, n_split, of.stride),
    }
    expect = {out: f64(value) for out, value in before.items()}
    allowed = {out: np.zeros(value.shape) for out, value in before.items()}
    for t, j in np.ndindex(n_tokens, n_split):
        start, end = j * split, min((j + 1) * split, n_past + t + 1)
        if window:
            start = max(start, n_past + t + 1 - window)
        if start >= end:  # written for the other tokens of the tile, if at all; attention_combine looks away
            if j * split < n_past + min(t // tokens * tokens + tokens, n_tokens):
                allowed["o"][t, j, :width] = allowed["ml"][t, j] = np.inf
            continue
        s, v, d = of.scores[t, :, start:end], values[start:end], d_scores[t, :, start:end]
        m, d_m = s.max(1, keepdims=True), d.max(1, keepdims=True)
        e = np.exp(s - m)
        slack = (
            e * (ULP * (split**0.5 + 4 + 4 * rescalings(s, start % 4) + 2 * (m - s)) + np.expm1(d + d_m))
            + 1e-37
        )
        o, d_o = np.einsum("hp,phd->hd", e, v), np.einsum("hp,phd->hd", slack, np.abs(v))
        if whole:
            total, d_total = e.sum(1, keepdims=True), slack.sum(1, keepdims=True)
            o = o / total
            d_o = (d_o + np.abs(o) * d_total) / (total - d_total) + ULP * np.abs(o)
        expect["o"][t, j, :width], allowed["o"][t, j, :width] = o.ravel(), d_o.ravel()
        expect["ml"][t, j] = np.stack([m[:, 0], e.sum(1)], -1)
        allowed["ml"][t, j] = np.stack([d_m[:, 0], slack.sum(1)], -1)
    inputs = {"q": rows(of.q, of.stride), "k_cache": of.k, "v_cache": of.v, "now": state(n_past, n_tokens)}
    inputs |= before
    vectors = -(-n_rot // 4 // SHARERS[share])
    heads = 1 if share == "alone" and tokens > 1 else n_group  # as the default model's program asks for
    op = Op(
        "attention",
        Variant("attention", share=share, tile=(("G", heads), ("T", tokens), ("D", vectors)), cache=cache),
        tuple(inputs),
        {
            **of.overrides,
            "N_GROUP": n_group,
            "Q_STRIDE": of.stride,
            "SPLIT": split,
            "N_SPLIT": n_split,
            "SCALE": of.scale,
            "WHOLE": int(whole),
            "WINDOW": window,
            "CAP": cap,
        },
        invocations=SHARERS[share] * n_head // heads,
        per_position=split,
    )
    why = "relative 1.2e-7 (sqrt(SPLIT) + 4 + 4 r + 2 (m - s)), and what the scores are off by"
    outputs = {out: Expect(expect[out], allowed[out], why) for out in before}
    return KernelCase(name, op, inputs, outputs, n_tokens + spare, n_ctx)


def rescalings(s: np.ndarray, first: int) -> np.ndarray:
    """(n_head, n): after each position, how many fours of positions have a score above all before.

    `first`: place of the first position in its four.
    """
    s = np.pad(s, ((0, 0), (first, 0)), mode="edge")
    fours = np.pad(s, ((0, 0), (0, -s.shape[1] % 4)), mode="edge").reshape(len(s), -1, 4).max(2)
    largest = np.maximum.accumulate(fours, 1)
    higher = np.diff(largest, append=largest[:, -1:]) > 0
    return np.repeat(higher[:, ::-1].cumsum(1)[:, ::-1], 4, axis=1)[:, first : s.shape[1]]


def combine_cases() -> list[KernelCase]:
    cases = []
    for n_head, n_rot, n_past, n_tokens, split, n_split, window in (
        (1, 4, 0, 1, 64, 1, 0),
        (9, 64, 126, 5, 64, 3, 0),  # the third token is the first to see the third stretch
        (3, 20, 57, 6, 8, 8, 0),
        (2, 64, 31, 1, 4, 32, 0),
        (3, 20, 57, 6, 8, 8, 20),  # the third token is the first that does not see the fifth stretch
        (2, 8, 14, 4, 8, 3, 1),
        (2, 8, 0, 3, 8, 3, 9),
    ):
        name = f"attention_combine-{n_head}x{n_rot}-past{n_past}+{n_tokens}by{split}"
        name += f"-window{window}" * bool(window)
        r = rng(name)
        stride, width = padded(n_head * n_rot), n_head * n_rot
        o = spiky(r, n_tokens, n_split, stride)
        ml = np.empty((n_tokens, n_split, n_head, 2), np.float32)
        ml[..., 0] = 3 * r.standard_normal(ml.shape[:-1])
        ml[..., 1] = 1 + (split - 1) * r.random(ml.shape[:-1])
        sinks = (3 * r.standard_normal(n_head)).astype(np.float32)
        ml[-1, (n_past + n_tokens - 1) // split, -1, 0] = 80  # an outlier takes nearly all the weight
        before = filled(-9, n_tokens + 1, stride)
        expect, allowed = f64(before), np.zeros(before.shape)
        for t in range(n_tokens):
            n = (n_past + t) // split + 1
            first = max(0, n_past + t + 1 - window) // split if window else 0
            o[t, n:] = ml[t, n:] = np.nan  # stretches that this token does not see
            o[t, :first] = ml[t, :first] = np.nan
            m, sums = f64(ml[t, first:n, :, :1]), f64(ml[t, first:n, :, 1:])
            top = np.maximum(m.max(0), f64(sinks)[:, None]) if window else m.max(0)
            weight = np.exp(m - top)
            parts = f64(o[t, first:n, :width]).reshape(n - first, n_head, n_rot)
            total = (weight * sums).sum(0)
            if window:  # all that have one have sinks here
                total += np.exp(f64(sinks)[:, None] - top)
            expect[t, :width] = ((weight * parts).sum(0) / total).ravel()
            allowed[t, :width] = ULP * (n_split + 4) * (np.abs(parts).sum(0) / total).ravel()
        inputs = {"o": o, "ml": ml, "sinks": sinks, "now": state(n_past, n_tokens), "y": before}
        op = Op(
            "combine",
            Variant("attention_combine"),
            tuple(inputs),
            {
                "N_HEAD": n_head,
                "N_EMBD_HEAD": n_rot,
                "Q_STRIDE": stride,
                "SPLIT": split,
                "N_SPLIT": n_split,
                "WINDOW": window,
                "SINKS": int(window > 0),
            },
            invocations=width // 4,
        )
        outputs = {"y": Expect(expect, allowed, "1.2e-7 (N_SPLIT + 4) sum |o_i| / l")}
        cases.append(KernelCase(name, op, inputs, outputs, n_tokens + 1))
    return cases
