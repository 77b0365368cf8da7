"""Cases of norms: of whole rows, of parts of them, and of heads on their way into the cache."""

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.attention import pair_sums, rotated
from kernels.data import angles, f64, filled, padded, rng, rows, spiky, state

from pagelm.kernels import Variant
from pagelm.program import Op

EPS = 1e-5


def normed(x: np.ndarray, gain: np.ndarray, mean: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows of x in float64 normed and times the gain, and what each element may be off by.

    With one invocation a sum is a plain running sum: up to n / 2 roundings, and a mean is off by as much.
    """
    x, n = f64(x), x.shape[-1]
    centred = x - x.mean(-1, keepdims=True) if mean else x
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(EPS))
    y = centred / deviation * f64(gain)
    allowed = (4e-6 + 3e-8 * n**0.5) * np.abs(y) + 1e-30
    if mean:
        largest = np.abs(x).max(-1, keepdims=True)
        allowed = allowed + (4e-7 + 3e-8 * n**0.5) * largest / deviation * np.abs(f64(gain))
    return y, allowed


WHY = (
    "relative 4e-6 + 3e-8 sqrt(n); with a mean as 4e-7 + 3e-8 sqrt(n) of max |x| / deviation; 6e-8 for a bias"
)


def norm_cases() -> list[KernelCase]:
    return [
        *(norm_case(n) for n in (1, 63, 64, 65, 576, 1000)),
        norm_case(65, mean=True),
        norm_case(1000, mean=True, bias=True),
        norm_case(64, mean=True, bias=True, offset=100.0),
        norm_case(63, bias=True),
        norm_case(16, n_rows=5),
        norm_case(20, n_rows=3, own=True),
        norm_case(7, n_rows=9, own=True, mean=True),
        norm_case(1, n_rows=2, mean=True),
    ]


def norm_case(
    n: int,
    n_rows: int = 1,
    mean: bool = False,
    bias: bool = False,
    own: bool = False,
    offset: float = 0.0,
) -> KernelCase:
    """`n_rows` rows of `n` elements a token; `own`: each has its own gain; `offset` is added to all of x."""
    name = f"norm-{n}" + f"-{n_rows}rows" * (n_rows > 1) + "-mean" * mean + "-bias" * bias + "-own" * own
    name += f"-at{offset:.0f}" * bool(offset)
    r, n_tokens, stride = rng(name), 3, padded(n * n_rows)
    x = spiky(r, n_tokens, n_rows, n)
    if offset:
        x = (r.standard_normal(x.shape) + offset).astype(np.float32)
    x[1] = 0
    w = (1 + 0.1 * r.standard_normal((n_rows if own else 1, n))).astype(np.float32)
    b = r.standard_normal(n).astype(np.float32)
    values, off = normed(x, w, mean)
    if bias:
        values = values + f64(b)
        off = off + 6e-8 * np.abs(values)
    before = filled(-9, n_tokens + 1, stride)  # the last token is not one of this pass
    expect, allowed = f64(before), np.zeros(before.shape)
    expect[:n_tokens, : n * n_rows] = values.reshape(n_tokens, -1)
    allowed[:n_tokens, : n * n_rows] = off.reshape(n_tokens, -1)
    given = rows(x.reshape(n_tokens, -1), stride)
    given = np.vstack([given, np.full((1, stride), np.nan, np.float32)])
    inputs = {"x": given, "w": w, "b": b, "state": state(0, n_tokens), "y": before}
    overrides = {"N_EMBD": n, "STRIDE": stride, "EPS": EPS}
    overrides |= {"ROWS": n_rows, "MEAN": int(mean), "BIAS": int(bias), "OWN": int(own)}
    op = Op("norm", Variant("norm"), tuple(inputs), overrides, workgroups=1, per_token=n_rows)
    return KernelCase(name, op, inputs, {"y": Expect(expect, allowed, WHY)}, n_tokens + 1)


# ---- heads ----


def heads_cases() -> list[KernelCase]:
    return [
        heads_case((3, 1, 20), 0, False, ""),
        heads_case((3, 1, 20), 20, False, ""),
        heads_case((4, 2, 16), 16, True, "head"),
        heads_case((9, 3, 64), 64, True, "head"),
        heads_case((2, 1, 32), 8, True, "own", mean=True),
        heads_case((4, 4, 24), 12, True, "row"),
        heads_case((6, 2, 36), 36, False, "row", mean=True),
        heads_case((5, 1, 8), 0, False, "own"),
        heads_case((2, 2, 72), 4, False, "head", mean=True),
    ]


def heads_case(
    shape: tuple[int, int, int], n_rot: int, neox: bool, norm: str, mean: bool = False
) -> KernelCase:
    """`norm`: none, "head" with a gain for all, "own" with one for each, "row" over all heads together."""
    n_head, n_head_kv, d = shape
    name = f"heads-{n_head}/{n_head_kv}x{d}-rope{n_rot}" + "-neox" * neox
    name += f"-{norm}" * bool(norm) + "-mean" * mean
    r, n_tokens, n_past, n_ctx = rng(name), 5, 12, 16  # the last token is past the context: not stored
    n_stored = n_ctx - n_past
    counts = {"q": n_head, "k": n_head_kv, "v": n_head_kv}
    starts, stride = {}, 0
    for part, n in counts.items():
        starts[part], stride = stride, stride + padded(n * d)
    qkv = np.full((n_tokens, stride), np.nan, np.float32)  # between the parts nothing must be read
    turns = angles(n_ctx + 1, max(2, n_rot))
    gains = {
        part: (1 + 0.1 * r.standard_normal((1 if norm in ("", "head") else n, d))).astype(np.float32)
        for part, n in counts.items()
        if part != "v"
    }
    before = {
        "k_cache": spiky(r, n_ctx + 1, n_head_kv * d),
        "v_cache": spiky(r, n_ctx + 1, n_head_kv * d),
        "q": filled(-9, n_tokens, padded(n_head * d)),
    }
    outputs = {}
    for part, n in counts.items():
        x = spiky(r, n_tokens, n, d)
        qkv[:, starts[part] : starts[part] + n * d] = x.reshape(n_tokens, -1)
        y, off = f64(x), np.zeros(x.shape)
        if norm and part != "v":
            one = (n_tokens, -1) if norm == "row" else x.shape
            gain = gains[part].reshape(-1) if norm == "row" else gains[part]
            y, off = (of.reshape(x.shape) for of in normed(x.reshape(one), gain, mean))
        if n_rot and part != "v":
            size = 3e-7 * np.abs(y) + off
            off = off * (np.arange(d) >= n_rot) + pair_sums(size, n_rot, neox)
            y = rotated(y, turns[n_past : n_past + n_tokens], neox)
        out = "q" if part == "q" else f"{part}_cache"
        expect, allowed = f64(before[out]), np.zeros(before[out].shape)
        first = 0 if part == "q" else n_past
        there = slice(first, first + n_stored), slice(0, n * d)
        expect[there] = y[:n_stored].reshape(n_stored, -1)
        allowed[there] = off[:n_stored].reshape(n_stored, -1)
        outputs[out] = Expect(expect, allowed, WHY + "; rope 3e-7 (|a| + |b|); otherwise a copy")
    inputs = {
        "qkv": qkv,
        "angles": turns,
        "q_gain": gains["q"],
        "k_gain": gains["k"],
        "now": state(n_past, n_tokens),
        **before,
    }
    overrides = {
        "N_HEAD": n_head,
        "N_HEAD_KV": n_head_kv,
        "N_EMBD_HEAD": d,
        "STRIDE": stride,
        "Q_STRIDE": padded(n_head * d),
        "N_CTX": n_ctx,
        "N_ROT": n_rot,
        "NEOX": int(neox),
        "NORM": int(bool(norm)),
        "MEAN": int(mean),
        "OWN": int(norm in ("own", "row")),
        "ROW": int(norm == "row"),
        "EPS": EPS,
    }
    op = Op(
        "heads", Variant("heads"), tuple(inputs), overrides, workgroups=1, per_token=n_head + 2 * n_head_kv
    )
    outputs = {name: outputs[name] for name in before}
    return KernelCase(name, op, inputs, outputs, n_tokens)
