"""The forward pass as plain data: hyper-parameters and slabs in, a list of dispatches out.

`forward` is the one description of a pass; it reads the architecture's spec and never its name. `Program`
compiles what it lists and records it for a given number of tokens. Labels name every operation for people,
for `stop` and for the bisection of `pagelm check`.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .device import Bindings, Buffer, Gpu, Pipeline, Recording, Step
from .hparams import HParams
from .kernels import compose
from .kv_cache import cache_name
from .weights import Slab

TOKEN_TILE = 4  # tokens per invocation of the prompt's matmul
ROW_TILE = 4  # rows per invocation
ARGMAX_PARTS = 64  # workgroups that look for partial maxima
STATE_WORDS = 4  # n_past, n_tokens, next, unused; then the token ids
STATE_NEXT = 8  # byte offset of `next`
STATE_TOKENS = 16  # byte offset of the token ids
KV_STEP = 256  # grids over the context grow in powers of two from here

Slabs = Mapping[str, tuple[Slab, ...]]


def padded(n: int) -> int:
    """Row stride of an activation of `n` elements: whole groups of 32, so that matmul needs no tail."""
    return -(-n // 32) * 32


@dataclass(frozen=True, slots=True)
class Op:
    """One dispatch: a kernel, its buffers by name in binding order (the last is the output), its grid.

    The grid has `workgroups` in x, or else enough of them for `invocations` (times the positions in use when
    `each_position`), and in z `per_token` for each token (or tile of tokens), or 1 when `per_token` is 0.
    """

    label: str
    kernel: str
    buffers: tuple[str, ...]
    overrides: Mapping[str, float] = field(default_factory=dict)
    quant: str | None = None
    tile: tuple[int, int] | None = None
    workgroups: int = 0
    invocations: int = 0
    each_position: bool = False
    per_token: int = 1

    def grid(self, n_tokens: int, n_kv: int, wg: int, most: int) -> tuple[int, int, int]:
        """Workgroups in x, y, z for workgroups of `wg` and at most `most` in a dimension."""
        n = self.workgroups or math.ceil(self.invocations * (n_kv if self.each_position else 1) / wg)
        y = math.ceil(n / most)
        z = math.ceil(n_tokens / (self.tile[1] if self.tile else 1)) * self.per_token or 1
        return math.ceil(n / y), y, z


def activation_sizes(hp: HParams, n_ctx: int, n_batch: int) -> dict[str, int]:
    """Buffer name -> bytes of everything a pass over `n_batch` tokens writes."""
    rows = {
        "x": hp.n_embd,
        "h": hp.n_embd,
        "q": hp.n_embd_q,
        "k": hp.n_embd_kv,
        "v": hp.n_embd_kv,
        "att": hp.n_embd_q,
        "o": hp.n_embd,
        "gate": hp.n_ff,
        "up": hp.n_ff,
        "act": hp.n_ff,
    }
    sizes = {name: 4 * n_batch * padded(n) for name, n in rows.items()}
    sizes["scores"] = 4 * n_batch * hp.n_head * n_ctx
    sizes["last"] = 4 * padded(hp.n_embd)
    sizes["logits"] = 4 * hp.n_vocab
    sizes["partial"] = 8 * ARGMAX_PARTS
    sizes["state"] = 4 * (STATE_WORDS + n_batch)
    return sizes


def forward(hp: HParams, slabs: Slabs, *, n_ctx: int, prompt: bool) -> list[Op]:
    """One pass through the model: over a piece of a prompt, or over one token (decode)."""
    return list(_forward(hp, slabs, n_ctx, prompt))


def _forward(hp: HParams, slabs: Slabs, n_ctx: int, prompt: bool) -> Iterator[Op]:
    wide = (ROW_TILE, TOKEN_TILE if prompt else 1)
    heads = {"N_HEAD": hp.n_head, "N_GROUP": hp.n_head // hp.n_head_kv, "N_EMBD_HEAD": hp.n_embd_head}
    cache = {"N_EMBD_KV": hp.n_embd_kv, "N_CTX": n_ctx}

    def matmul(label: str, x: str, y: str, weight: str, tile: tuple[int, int], stride: int) -> Iterator[Op]:
        for slab in slabs[weight]:
            shape = {"N_IN": slab.n_in, "N_ROWS": slab.n_rows, "ROW0": slab.row0}
            yield Op(
                label,
                "matmul",
                (slab.name, x, "state", y),
                {**shape, "X_STRIDE": padded(slab.n_in), "Y_STRIDE": stride},
                quant=slab.quant,
                tile=tile,
                invocations=math.ceil(slab.n_rows / tile[0]),
            )

    def rms_norm(label: str, x: str, weight: str, per_token: int = 1) -> Op:
        shape = {"N_EMBD": hp.n_embd, "STRIDE": padded(hp.n_embd), "EPS": hp.norm_rms_eps}
        return Op(label, "rms_norm", (x, weight, "state", "h"), shape, workgroups=1, per_token=per_token)

    def rope(label: str, x: str, n_head: int) -> Op:
        shape = {"N_HEAD": n_head, "N_ROT": hp.n_rot, "STRIDE": padded(n_head * hp.n_embd_head)}
        return Op(label, "rope", ("angles", "state", x), shape, invocations=n_head * hp.n_rot // 2)

    def row_op(label: str, kernel: str, buffers: tuple[str, ...], n: int) -> Op:
        return Op(label, kernel, buffers, {"STRIDE": padded(n)}, invocations=padded(n) // 4)

    for slab in slabs["token_embd.weight"]:
        shape = {"N_IN": hp.n_embd, "N_ROWS": slab.n_rows, "ROW0": slab.row0, "Y_STRIDE": padded(hp.n_embd)}
        groups = padded(hp.n_embd) // 32
        yield Op("embed", "embed", (slab.name, "state", "x"), shape, quant=slab.quant, invocations=groups)

    for layer in range(hp.n_layer):
        blk = f"blk.{layer}."
        k_cache, v_cache = cache_name("k", layer), cache_name("v", layer)
        yield rms_norm(blk + "attn_norm", "x", blk + "attn_norm.weight")
        for y, n in (("q", hp.n_embd_q), ("k", hp.n_embd_kv), ("v", hp.n_embd_kv)):
            yield from matmul(f"{blk}attn_{y}", "h", y, f"{blk}attn_{y}.weight", wide, padded(n))
        yield rope(blk + "rope_q", "q", hp.n_head)
        yield rope(blk + "rope_k", "k", hp.n_head_kv)
        yield Op(
            blk + "kv_store",
            "kv_store",
            ("k", "v", "state", k_cache, v_cache),
            {**cache, "STRIDE": padded(hp.n_embd_kv)},
            invocations=hp.n_embd_kv,
        )
        yield Op(
            blk + "attn_scores",
            "attn_scores",
            ("q", k_cache, "state", "scores"),
            {**heads, **cache, "Q_STRIDE": padded(hp.n_embd_q), "SCALE": 1 / math.sqrt(hp.n_embd_head)},
            invocations=1,
            each_position=True,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_softmax",
            "softmax",
            ("state", "scores"),
            {"N_HEAD": hp.n_head, "N_CTX": n_ctx},
            workgroups=1,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_values",
            "attn_values",
            ("scores", v_cache, "state", "att"),
            {**heads, **cache, "Y_STRIDE": padded(hp.n_embd_q)},
            invocations=hp.n_embd_q // 4,
        )
        yield from matmul(
            blk + "attn_output", "att", "o", blk + "attn_output.weight", wide, padded(hp.n_embd)
        )
        yield row_op(blk + "attn_residual", "add", ("o", "state", "x"), hp.n_embd)
        yield rms_norm(blk + "ffn_norm", "x", blk + "ffn_norm.weight")
        for y in ("gate", "up"):
            yield from matmul(f"{blk}ffn_{y}", "h", y, f"{blk}ffn_{y}.weight", wide, padded(hp.n_ff))
        yield row_op(blk + "swiglu", "swiglu", ("gate", "up", "state", "act"), hp.n_ff)
        yield from matmul(blk + "ffn_down", "act", "o", blk + "ffn_down.weight", wide, padded(hp.n_embd))
        yield row_op(blk + "ffn_residual", "add", ("o", "state", "x"), hp.n_embd)

    last = "x"
    if prompt:
        last = "last"
        shape = {"STRIDE": padded(hp.n_embd)}
        yield Op(
            "last_row", "last_row", ("x", "state", last), shape, invocations=padded(hp.n_embd), per_token=0
        )
    yield rms_norm("output_norm", last, "output_norm.weight", per_token=0)
    output = "output.weight" if "output.weight" in slabs else "token_embd.weight"  # tied
    for op in matmul("output", "h", "logits", output, (ROW_TILE, 1), hp.n_vocab):
        yield Op(
            op.label, op.kernel, op.buffers, op.overrides, op.quant, op.tile, 0, op.invocations, False, 0
        )
    span = math.ceil(hp.n_vocab / ARGMAX_PARTS)
    parts = math.ceil(hp.n_vocab / span)
    yield Op(
        "argmax_partial",
        "argmax_partial",
        ("logits", "partial"),
        {"N_VOCAB": hp.n_vocab, "SPAN": span},
        workgroups=parts,
        per_token=0,
    )
    yield Op("argmax", "argmax", ("partial", "state"), {"N_PART": parts}, workgroups=1, per_token=0)


class Program:
    """The ops of one kind of pass, compiled and bound; recordings are made once per shape and kept."""

    def __init__(self, gpu: Gpu, ops: Sequence[Op]) -> None:
        self.ops = tuple(ops)
        self._gpu = gpu
        self._wg = gpu.limits.workgroup_size()
        self._bound: list[tuple[Pipeline, Bindings]] = []
        self._recordings: dict[tuple[int, int, str | None], Recording] = {}

    @property
    def keys(self) -> list[object]:
        """What tells the pipelines of the ops apart, an entry for each op."""
        return [(op.kernel, op.quant, op.tile, tuple(sorted(op.overrides.items()))) for op in self.ops]

    async def compile(
        self, buffers: Mapping[str, Buffer], pipelines: dict[object, Pipeline], compiled: Callable[[], None]
    ) -> None:
        """Add every pipeline that is not yet in `pipelines`, calling `compiled` after each; bind all buffers.

        Raises: ShaderError.
        """
        for key, op in zip(self.keys, self.ops, strict=True):
            if key not in pipelines:
                kernel = compose(op.kernel, {**op.overrides, "WG": self._wg}, quant=op.quant, tile=op.tile)
                pipelines[key] = await self._gpu.pipeline(kernel)
                compiled()
            bound = [buffers[name] for name in op.buffers]
            self._bound.append((pipelines[key], self._gpu.bind(pipelines[key], bound)))

    def until(self, stop: str | None) -> tuple[Op, ...]:
        """The ops up to the last one labelled `stop`, or all."""
        if stop is None:
            return self.ops
        last = max(i for i, op in enumerate(self.ops) if op.label == stop)
        return self.ops[: last + 1]

    def recording(self, n_tokens: int, n_kv: int, stop: str | None = None) -> Recording:
        """The pass for up to `n_tokens` tokens with up to `n_kv` positions in use after it."""
        key = (n_tokens, n_kv, stop)
        if key not in self._recordings:
            most = self._gpu.limits.max_compute_workgroups_per_dimension
            steps = [
                Step(pipeline, bindings, op.grid(n_tokens, n_kv, self._wg, most), op.label)
                for op, (pipeline, bindings) in zip(self.until(stop), self._bound, strict=False)
            ]
            self._recordings[key] = self._gpu.record(steps)
        return self._recordings[key]


def kv_bucket(n_kv: int, n_ctx: int) -> int:
    """The grid size that covers `n_kv` positions: a power of two times KV_STEP, at most `n_ctx`."""
    size = KV_STEP
    while size < n_kv:
        size *= 2
    return min(size, n_ctx)
