"""The forward pass: hyper-parameters and matrices in, a list of dispatches out.

Two descriptions of the same pass read the architecture's spec and never its name. `fused` is what runs: few,
big dispatches. `baseline` has one operation a dispatch and a buffer for every intermediate result; it is what
`peek`, `stop` and the bisection of `pagelm check` look into where fusion hides a result. Labels name every
operation for people; one that does several has the label of the last.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from .adapt import MAX_PAIRS, Choice
from .hparams import HParams
from .kernels import PACKED, Variant
from .kv_cache import cache_name
from .program import Op
from .weights import Matrices, Matrix, padded

TOKEN_TILE = 8  # pieces of a prompt are as many tokens at least; per invocation of the unfused kernels
PACKED_TILE = (("P", 4), ("T", 8), ("U", 4))  # of the kernels that multiply with activations of 8 bits
GUESS_TILE = 4  # tokens per invocation of the kernels that verify guesses
BASELINE = Choice("alone", "registers", 0)
STATE_WORDS = 4  # n_past, n_tokens, next, fed; then the token ids
STATE_NEXT = 8  # byte offset of `next`
STATE_TOKENS = 16  # byte offset of the token ids
STATE_VERDICT = STATE_TOKENS + 4  # byte offset of what `accept` says: right << VERDICT_BITS | next
VERDICT_BITS = 28
MAX_VECTORS = 48  # attention: sums of 4 elements in an invocation, beyond which it handles fewer heads
MIN_SPLIT, MAX_SPLITS = 64, 32  # attention: positions of a stretch, at least; stretches, at most


def split_of(n_ctx: int, least: int = MIN_SPLIT) -> int:
    """Positions of a stretch of attention, for at most MAX_SPLITS stretches: `least`, or twice, …"""
    split = least
    while split * MAX_SPLITS < n_ctx:
        split *= 2
    return split


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
        "partials": hp.n_embd,
    }
    n_split = math.ceil(n_ctx / split_of(n_ctx))
    sizes = {name: 4 * n_batch * padded(n) for name, n in rows.items()}
    sizes["scores"] = 4 * n_batch * hp.n_head * n_ctx
    sizes["stretches"] = 4 * n_batch * n_split * padded(hp.n_embd_q)
    sizes["stretch_sums"] = 8 * n_batch * n_split * hp.n_head
    sizes["last"] = 4 * padded(hp.n_embd)
    sizes["logits"] = 4 * hp.n_vocab * GUESS_TILE
    sizes["best"] = (
        8 * padded(hp.n_vocab) // 2
    )  # an invocation has a pair of rows at least, or PAIRS of each guess
    sizes["state"] = 4 * (STATE_WORDS + n_batch)
    return sizes


def _shape(matrix: Matrix) -> dict[str, float]:
    return {"N_BLOCKS": matrix.n_blocks, "X_STRIDE": padded(matrix.n_in)}


def _rows(kernel: str, matrix: Matrix, choice: Choice, pairs: int, tokens: int) -> Variant:
    """A kernel that multiplies with this matrix.

    Two blocks at a time always pay for one token; for more tokens they double the time to compile, and pay
    for the matrices that have many rows.
    """
    rows, tile = choice.rows, {"P": pairs, "T": tokens}
    if rows == "loop":
        tile["C"] = 2 if (tokens == 1 or pairs == MAX_PAIRS) and matrix.n_blocks % 2 == 0 else 1
        rows = "loop" if tokens == 1 else "loop_tokens"
    return Variant(kernel, matrix.quant.name, choice.share, rows, tuple(tile.items()), matrix.scales)


def _invocations(n_rows: int, pairs: int) -> int:
    """Whole quads for all rows, in groups of 8 * `pairs`."""
    return 4 * math.ceil(padded(n_rows) / (8 * pairs))


def _pairs(choice: Choice, group: Sequence[Matrix], tokens: int) -> int:
    """Pairs of rows per invocation in all matrices of a group, whose slabs must be whole groups of rows."""
    pairs = choice.pairs_of(sum(slab.n_rows for matrix in group for slab in matrix.slabs), tokens)
    while any((matrix.row0 + slab.row0) % (8 * pairs) for matrix in group for slab in matrix.slabs):
        pairs //= 2
    return pairs


def _embed(hp: HParams, matrices: Matrices, n_partials: int) -> Iterator[Op]:
    for matrix in matrices["token_embd"]:
        for slab in matrix.slabs:
            yield Op(
                "embed",
                Variant("embed", matrix.quant.name, scales=matrix.scales),
                (slab.name, slab.scales, "blk.0.attn_norm.weight", "state", "h", "partials", "x"),
                {
                    "N_EMBD": hp.n_embd,
                    "N_ROWS": slab.n_rows,
                    "ROW0": slab.row0,
                    "STRIDE": padded(hp.n_embd),
                    "N_PARTIALS": n_partials,
                },
                invocations=padded(hp.n_embd) // 32,
                scratch=("h", "partials"),
            )


def _argmax(n_parts: int) -> Op:
    return Op("argmax", Variant("argmax"), ("best", "state"), {"N_PART": n_parts}, workgroups=1, per_token=0)


def _accept(n_parts: int) -> Op:
    variant = Variant("accept", tile=(("T", GUESS_TILE),))
    return Op("accept", variant, ("best", "state"), {"N_PART": n_parts}, workgroups=1, per_token=0)


def _rms_norm(hp: HParams, label: str, x: str, per_token: int = 1) -> Op:
    shape = {"N_EMBD": hp.n_embd, "STRIDE": padded(hp.n_embd), "EPS": hp.norm_rms_eps}
    buffers = (x, f"{label}.weight", "state", "h")
    return Op(label, Variant("rms_norm"), buffers, shape, workgroups=1, per_token=per_token)


def _swiglu(hp: HParams, label: str) -> Op:
    n = padded(hp.n_ff)
    buffers = ("gate", "up", "state", "act")
    return Op(label, Variant("swiglu"), buffers, {"STRIDE": n}, invocations=n // 4)


def _matmul(
    group: Sequence[Matrix], tensor: str, x: str, y: str, choice: Choice, tokens: int
) -> Iterator[Op]:
    """The rows of one tensor times x: y = x W^T."""
    for matrix in group:
        for section in matrix.sections:
            if section.tensor != tensor:
                continue
            first, end = section.start, section.start + section.step * (section.n_rows - 1) + 1
            first -= first % section.step  # sections that alternate share their tiles
            for slab in matrix.slabs:
                a, b = max(first, slab.row0), min(end, slab.row0 + slab.n_rows)
                if a >= b:
                    continue
                shape = {
                    **_shape(matrix),
                    "FIRST": a - slab.row0,
                    "N_ROWS": b - a,
                    "ROW0": a - first,
                    "STEP": section.step,
                    "PHASE": section.start % section.step,
                    "Y_STRIDE": padded(section.n_rows),
                }
                pairs = choice.pairs_of(b - a, tokens)
                yield Op(
                    tensor.removesuffix(".weight"),
                    _rows("matmul", matrix, choice, pairs, tokens),
                    (slab.name, slab.scales, x, "state", y),
                    shape,
                    invocations=_invocations(b - a, pairs),
                )


def _pack(label: str, matrix: Matrix, x: str) -> Op:
    """`x` rounded to 8 bits for a product with this matrix."""
    return Op(
        label,
        Variant("pack", tile=(("T", 2),)),
        (x, "state", "packed"),
        {"X_STRIDE": padded(matrix.n_in)},
        invocations=matrix.n_blocks,
    )


def plain_product(matrix: Matrix, choice: Choice) -> Op:
    """y = x W^T for one token, W of a single tensor and slab: the least that shows what a choice is worth."""
    return next(_matmul((matrix,), matrix.sections[0].tensor, "x", "y", choice, 1))


def fused(hp: HParams, matrices: Matrices, *, n_ctx: int, choice: Choice, prompt: bool) -> list[Op]:
    """The pass in few dispatches, up to six a layer: over a piece of a prompt, or over one token (decode)."""
    return list(_fused(hp, matrices, n_ctx, choice, choice.tokens if prompt else 1))


def packed(hp: HParams, matrices: Matrices, *, n_ctx: int, choice: Choice) -> list[Op]:
    """The pass over a piece of a prompt with activations rounded to 8 bits, wherever the weights have 4.

    Each product has a dispatch before it that rounds: up to ten a layer.
    """
    return list(_fused(hp, matrices, n_ctx, choice, choice.tokens, pack=True))


def packed_size(hp: HParams, n_batch: int) -> int:
    """Bytes of the buffer that `pack` rounds the activations of `n_batch` tokens into."""
    most = max(hp.n_embd, hp.n_embd_q, hp.n_ff)
    return 16 * 9 * padded(most) // 32 * math.ceil(n_batch / 2)


def verifying(hp: HParams, matrices: Matrices, *, n_ctx: int, choice: Choice) -> list[Op]:
    """The same over a token and up to GUESS_TILE - 1 guesses of what follows it, each with its logits.

    `accept` keeps those that are right. What is computed of a token does not depend on how many there are.
    """
    return list(_fused(hp, matrices, n_ctx, choice, GUESS_TILE, verify=True))


def _fused(
    hp: HParams,
    matrices: Matrices,
    n_ctx: int,
    choice: Choice,
    tokens: int,
    verify: bool = False,
    pack: bool = False,
) -> Iterator[Op]:
    share = choice.share
    sharers = 4 if share == "quad" else 1
    # All passes lay partial sums out alike. So they share the kernels that only read or start them, and a row
    # has the same bits however many are computed with it.
    part_pairs = choice.pairs_of(hp.n_embd, most=4)
    n_partials = padded(hp.n_embd) // (2 * part_pairs * sharers)
    norm = {"N_EMBD": hp.n_embd, "N_PARTIALS": n_partials, "EPS": hp.norm_rms_eps}
    n_group, split = hp.n_head // hp.n_head_kv, split_of(n_ctx, choice.stretch)
    n_split = math.ceil(n_ctx / split)
    queries, vectors = min(tokens, 2), math.ceil(hp.n_embd_head / 4 / sharers)
    # heads that share what is loaded of the cache: as many as leave an invocation MAX_VECTORS sums at most
    heads = max(
        g
        for g in range(1, n_group + 1)
        if n_group % g == 0 and (g == 1 or g * queries * vectors <= MAX_VECTORS)
    )
    stretches = {
        "N_HEAD": hp.n_head,
        "N_EMBD_HEAD": hp.n_embd_head,
        "Q_STRIDE": padded(hp.n_embd_q),
        "SPLIT": split,
        "N_SPLIT": n_split,
    }

    def product(
        label: str,
        kernel: str,
        group: str,
        buffers: tuple[str, ...],
        overrides: Mapping[str, float],
        per_token: int = 1,
    ) -> Iterator[Op]:
        t = tokens if per_token else 1
        pairs = _pairs(choice, matrices[group], t)
        if kernel == "project":
            pairs = part_pairs if t == 1 else max(part_pairs, pairs)
        rounded = [m for m in matrices[group] if pack and per_token and m.quant.name in PACKED]
        if rounded:
            yield _pack(f"{label}_packed", rounded[0], buffers[0])
        for matrix in matrices[group]:
            variant, used, n = _rows(kernel, matrix, choice, pairs, t), buffers, pairs
            if matrix in rounded:
                variant = replace(variant, rows="packed", tile=PACKED_TILE)
                used, n = ("packed", *buffers[1:]), dict(PACKED_TILE)["P"]
            for slab in matrix.slabs:
                rows = {"N_ROWS": slab.n_rows, "ROW0": matrix.row0 + slab.row0}
                yield Op(
                    label,
                    variant,
                    (slab.name, slab.scales, *used),
                    {**_shape(matrix), **rows, **overrides},
                    invocations=_invocations(slab.n_rows, n),
                    per_token=per_token,
                    scratch=("h", "partials") if kernel == "project" else (),
                )

    def project(label: str, group: str, y: str, next_norm: str) -> Iterator[Op]:
        buffers = (y, f"{next_norm}.weight", "state", "h", "partials", "x")
        shape = {"STRIDE": padded(hp.n_embd), "N_PARTIALS": n_partials, "PART_PAIRS": part_pairs}
        return product(label, "project", group, buffers, shape)

    yield from _embed(hp, matrices, n_partials)
    for layer in range(hp.n_layer):
        blk = f"blk.{layer}."
        k_cache, v_cache = cache_name("k", layer), cache_name("v", layer)
        yield from product(
            blk + "attn_qkv",
            "qkv",
            blk + "attn_qkv",
            ("h", "partials", "angles", "state", "q", k_cache, v_cache),
            {
                **norm,
                "N_EMBD_Q": hp.n_embd_q,
                "N_EMBD_KV": hp.n_embd_kv,
                "Q_STRIDE": padded(hp.n_embd_q),
                "N_ROT": hp.n_rot,
                "N_CTX": n_ctx,
            },
        )
        yield Op(
            blk + ("attn_values" if n_split == 1 else "attn_stretches"),
            Variant("attention", share=share, tile=(("G", heads), ("T", queries), ("D", vectors))),
            ("q", k_cache, v_cache, "state", "stretch_sums", "att" if n_split == 1 else "stretches"),
            {
                **stretches,
                "N_GROUP": n_group,
                "N_EMBD_KV": hp.n_embd_kv,
                "SCALE": 1 / math.sqrt(hp.n_embd_head),
            },
            invocations=sharers * hp.n_head // heads,
            per_position=split,
        )
        if n_split > 1:
            yield Op(
                blk + "attn_values",
                Variant("attention_combine"),
                ("stretches", "stretch_sums", "state", "att"),
                stretches,
                invocations=hp.n_embd_q // 4,
            )
        yield from project(blk + "attn_residual", blk + "attn_output", "att", blk + "ffn_norm")
        if len(matrices[blk + "ffn_gate_up"]) == 1:
            yield from product(
                blk + "swiglu",
                "gate_up",
                blk + "ffn_gate_up",
                ("h", "partials", "state", "act"),
                {**norm, "Y_STRIDE": padded(hp.n_ff)},
            )
        else:  # two types: no invocation has both
            yield _rms_norm(hp, blk + "ffn_norm", "x")
            for name in ("gate", "up"):
                tensor = f"{blk}ffn_{name}.weight"
                yield from _matmul(matrices[blk + "ffn_gate_up"], tensor, "h", name, choice, tokens)
            yield _swiglu(hp, blk + "swiglu")
        next_norm = f"blk.{layer + 1}.attn_norm" if layer + 1 < hp.n_layer else "output_norm"
        yield from project(blk + "ffn_residual", blk + "ffn_down", "act", next_norm)
    output = "output" if "output" in matrices else "token_embd"  # tied
    n_parts = _invocations(hp.n_vocab, _pairs(choice, matrices[output], tokens if verify else 1))
    shape = {**norm, "Y_STRIDE": hp.n_vocab, "N_PARTS": n_parts} if verify else norm
    buffers = ("h", "partials", "state", "best", "logits")
    yield from product("output", "logits", output, buffers, shape, per_token=int(verify))
    yield _accept(n_parts) if verify else _argmax(n_parts)


def baseline(hp: HParams, matrices: Matrices, *, n_ctx: int) -> list[Op]:
    """The pass over a piece of a prompt up to the last norm, an operation a dispatch, for looking inside."""
    return list(_baseline(hp, matrices, n_ctx))


def _baseline(hp: HParams, matrices: Matrices, n_ctx: int) -> Iterator[Op]:
    heads = {"N_HEAD": hp.n_head, "N_GROUP": hp.n_head // hp.n_head_kv, "N_EMBD_HEAD": hp.n_embd_head}
    cache = {"N_EMBD_KV": hp.n_embd_kv, "N_CTX": n_ctx}

    def matmul(tensor: str, group: str, x: str, y: str) -> Iterator[Op]:
        return _matmul(matrices[group], f"{tensor}.weight", x, y, BASELINE, TOKEN_TILE)

    def rope(label: str, x: str, n_head: int) -> Op:
        shape = {"N_HEAD": n_head, "N_ROT": hp.n_rot, "STRIDE": padded(n_head * hp.n_embd_head)}
        return Op(label, Variant("rope"), ("angles", "state", x), shape, invocations=n_head * hp.n_rot // 2)

    def add(label: str) -> Op:
        n = padded(hp.n_embd)
        return Op(label, Variant("add"), ("o", "state", "x"), {"STRIDE": n}, invocations=n // 4)

    yield from _embed(hp, matrices, padded(hp.n_embd) // 32)
    for layer in range(hp.n_layer):
        blk = f"blk.{layer}."
        k_cache, v_cache = cache_name("k", layer), cache_name("v", layer)
        yield _rms_norm(hp, blk + "attn_norm", "x")
        for y in ("q", "k", "v"):
            yield from matmul(f"{blk}attn_{y}", blk + "attn_qkv", "h", y)
        yield rope(blk + "rope_q", "q", hp.n_head)
        yield rope(blk + "rope_k", "k", hp.n_head_kv)
        yield Op(
            blk + "kv_store",
            Variant("kv_store"),
            ("k", "v", "state", k_cache, v_cache),
            {**cache, "STRIDE": padded(hp.n_embd_kv)},
            invocations=hp.n_embd_kv,
        )
        yield Op(
            blk + "attn_scores",
            Variant("attn_scores"),
            ("q", k_cache, "state", "scores"),
            {**heads, **cache, "Q_STRIDE": padded(hp.n_embd_q), "SCALE": 1 / math.sqrt(hp.n_embd_head)},
            invocations=1,
            per_position=1,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_softmax",
            Variant("softmax"),
            ("state", "scores"),
            {"N_HEAD": hp.n_head, "N_CTX": n_ctx},
            workgroups=1,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_values",
            Variant("attn_values"),
            ("scores", v_cache, "state", "att"),
            {**heads, **cache, "Y_STRIDE": padded(hp.n_embd_q)},
            invocations=hp.n_embd_q // 4,
        )
        yield from matmul(blk + "attn_output", blk + "attn_output", "att", "o")
        yield add(blk + "attn_residual")
        yield _rms_norm(hp, blk + "ffn_norm", "x")
        for y in ("gate", "up"):
            yield from matmul(f"{blk}ffn_{y}", blk + "ffn_gate_up", "h", y)
        yield _swiglu(hp, blk + "swiglu")
        yield from matmul(blk + "ffn_down", blk + "ffn_down", "act", "o")
        yield add(blk + "ffn_residual")

    shape = {"STRIDE": padded(hp.n_embd)}
    buffers = ("x", "state", "last")
    yield Op("last_row", Variant("last_row"), buffers, shape, invocations=padded(hp.n_embd), per_token=0)
    yield _rms_norm(hp, "output_norm", "last", per_token=0)
