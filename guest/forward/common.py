"""What both descriptions of the pass are made of: sizes of what it writes, and the ops that they share."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from ..adapt import MAX_PAIRS, Choice
from ..hparams import HParams
from ..kernels import Variant
from ..program import Op
from ..weights import Matrices, Matrix, padded

TOKEN_TILE = 8  # pieces of a prompt are as many tokens at least; per invocation of the unfused kernels
PACKED_TILE = (("P", 4), ("T", 8), ("U", 4))  # of the kernels that multiply with activations of 8 bits
GUESS_TILE = 4  # tokens per invocation of the kernels that verify guesses
STATE_WORDS = 4  # n_past, n_tokens, next, fed; then the token ids
STATE_NEXT = 8  # byte offset of `next`
STATE_TOKENS = 16  # byte offset of the token ids
STATE_VERDICT = STATE_TOKENS + 4  # byte offset of what `accept` says: right << VERDICT_BITS | next
VERDICT_BITS = 28
MIN_SPLIT, MAX_SPLITS = 64, 32  # attention: positions of a stretch, at least; stretches, at most
UNUSED = "state"  # bound where a kernel has a buffer that it will not read


def split_of(n_ctx: int, least: int = MIN_SPLIT) -> int:
    """Positions of a stretch of attention, for at most MAX_SPLITS stretches: `least`, or twice, …"""
    split = least
    while split * MAX_SPLITS < n_ctx:
        split *= 2
    return split


def qkv_stride(hp: HParams) -> int:
    """Elements of a row of queries, keys and values, each from a multiple of 32 on."""
    return padded(hp.n_embd_q) + 2 * padded(hp.n_embd_kv)


def hidden_stride(hp: HParams) -> int:
    """Elements of a token's row of what is inside a feed-forward block: of each expert that it uses."""
    return max(1, hp.n_expert_used) * padded(hp.n_ff)


def angles_name(rope: int | None) -> str:
    """Buffer name of the cosines and sines of one of the model's ropes."""
    return UNUSED if rope is None else f"angles.{rope}"


def activation_sizes(hp: HParams, n_ctx: int, n_batch: int) -> dict[str, int]:
    """Buffer name -> bytes of everything a pass over `n_batch` tokens writes."""
    rows = {
        "x": hp.n_embd,
        "h": hp.n_embd,
        "q": hp.n_embd_q,
        "k": hp.n_embd_kv,
        "v": hp.n_embd_kv,
        "qkv": qkv_stride(hp),
        "att": hp.n_embd_q,
        "o": hp.n_embd,
        "gate": hidden_stride(hp),
        "up": hidden_stride(hp),
        "act": hidden_stride(hp),
        "router": hp.n_expert,
        "chosen": hp.n_expert_used,
        "shares": hp.n_expert_used,
        "expert": hp.n_expert_used * padded(hp.n_embd),
        "partials": hp.n_embd,
        "normed": hp.n_embd,
        "q_raw": hp.n_embd_q,
        "k_raw": hp.n_embd_kv,
    }
    n_split = math.ceil(n_ctx / split_of(n_ctx))
    sizes = {name: 4 * n_batch * padded(n) for name, n in rows.items() if n}
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


def packed_size(hp: HParams, n_batch: int) -> int:
    """Bytes of the buffer that `pack` rounds the activations of `n_batch` tokens into."""
    most = max(hp.n_embd, hp.n_embd_q, hp.n_ff)
    return 16 * 9 * padded(most) // 32 * math.ceil(n_batch / 2)


def shape_of(matrix: Matrix) -> dict[str, float]:
    """Overrides of every kernel that multiplies with this matrix."""
    return {"N_BLOCKS": matrix.n_blocks, "X_STRIDE": padded(matrix.n_in)}


def product_variant(kernel: str, matrix: Matrix, choice: Choice, pairs: int, tokens: int) -> Variant:
    """A kernel that multiplies with this matrix.

    Two blocks at a time always pay for one token; for more tokens they double the time to compile, and pay
    for the matrices that have many rows.
    """
    rows, tile = choice.rows, {"P": pairs, "T": tokens}
    if rows == "loop":
        tile["C"] = 2 if (tokens == 1 or pairs == MAX_PAIRS) and matrix.n_blocks % 2 == 0 else 1
        rows = "loop" if tokens == 1 else "loop_tokens"
    return Variant(kernel, matrix.quant.name, choice.share, rows, tuple(tile.items()), matrix.scales)


def invocations_of(n_rows: int, pairs: int) -> int:
    """Whole quads for all rows, in groups of 8 * `pairs`."""
    return 4 * math.ceil(padded(n_rows) / (8 * pairs))


def group_pairs(choice: Choice, group: Sequence[Matrix], tokens: int) -> int:
    """Pairs of rows per invocation in all matrices of a group, whose slabs must be whole groups of rows."""
    pairs = choice.pairs_of(sum(slab.n_rows for matrix in group for slab in matrix.slabs), tokens)
    while any((matrix.row0 + slab.row0) % (8 * pairs) for matrix in group for slab in matrix.slabs):
        pairs //= 2
    return pairs


def embed(hp: HParams, matrices: Matrices, n_partials: int) -> Iterator[Op]:
    """x = the rows of the tokens, and of their positions where those are learned.

    Also h and partials, for a first norm by root mean squares.
    """
    gain = "blk.0.attn_norm.weight" if hp.arch.pre_norm else "output_norm.weight"  # the latter: of no use
    for table in ("token_embd", "position_embd") if hp.arch.positions else ("token_embd",):
        for matrix in matrices[table]:
            for slab in matrix.slabs:
                yield Op(
                    "embed" if table == "token_embd" else "embed_positions",
                    Variant("embed", matrix.quant.name, scales=matrix.scales),
                    (slab.name, slab.scales, gain, "state", "h", "partials", "x"),
                    {
                        "N_EMBD": hp.n_embd,
                        "N_ROWS": slab.n_rows,
                        "ROW0": slab.row0,
                        "STRIDE": padded(hp.n_embd),
                        "N_PARTIALS": n_partials,
                        "SCALE": hp.embedding_scale if table == "token_embd" else 1.0,
                        "POSITIONS": int(table == "position_embd"),
                    },
                    invocations=padded(hp.n_embd) // 32,
                    scratch=("h", "partials"),
                )


def argmax(n_parts: int) -> Op:
    """The token of the best logit, and the state moved on by it."""
    return Op("argmax", Variant("argmax"), ("best", "state"), {"N_PART": n_parts}, workgroups=1, per_token=0)


def accept(n_parts: int) -> Op:
    """Which guesses were right, and what comes after them."""
    variant = Variant("accept", tile=(("T", GUESS_TILE),))
    return Op("accept", variant, ("best", "state"), {"N_PART": n_parts}, workgroups=1, per_token=0)


def norm(hp: HParams, label: str, x: str, y: str, biased: bool, per_token: int = 1) -> Op:
    """y = the norm called `label` of rows x of n_embd elements."""
    shape = {
        "N_EMBD": hp.n_embd,
        "STRIDE": padded(hp.n_embd),
        "EPS": hp.norm_eps,
        "MEAN": int(hp.arch.norm == "layer"),
        "BIAS": int(biased),
    }
    buffers = (x, f"{label}.weight", f"{label}.bias" if biased else UNUSED, "state", y)
    return Op(label, Variant("norm"), buffers, shape, workgroups=1, per_token=per_token)


def add(hp: HParams, label: str, y: str) -> Op:
    """x += y, scaled as the model's residuals are."""
    n = padded(hp.n_embd)
    shape = {"STRIDE": n, "SCALE": hp.residual_scale}
    return Op(label, Variant("add"), (y, "state", "x"), shape, invocations=n // 4)


def gated(hp: HParams, label: str) -> Op:
    """act = activation of `gate`, times `up`."""
    n, kind = hidden_stride(hp), hp.arch.activation
    shape = {"STRIDE": n, "GELU": int(kind == "gelu"), "CLAMPED": int(kind == "clamped")}
    return Op(label, Variant("gated"), ("gate", "up", "state", "act"), shape, invocations=n)


def activation_label(hp: HParams) -> str:
    """What the activation of the feed-forward block is called."""
    if not hp.arch.gated:
        return hp.arch.activation
    return "geglu" if hp.arch.activation == "gelu" else "swiglu"


def matmul(
    group: Sequence[Matrix], operand: str, x: str, y: str, choice: Choice, tokens: int
) -> Iterator[Op]:
    """The rows of one operand times x: y = x W^T."""
    for matrix in group:
        for section in matrix.sections:
            if section.operand != operand:
                continue
            first, end = section.start, section.start + section.step * (section.n_rows - 1) + 1
            first -= first % section.step  # sections that alternate share their tiles
            for slab in matrix.slabs:
                a, b = max(first, slab.row0), min(end, slab.row0 + slab.n_rows)
                if a >= b:
                    continue
                shape = {
                    **shape_of(matrix),
                    "FIRST": a - slab.row0,
                    "N_ROWS": b - a,
                    "ROW0": a - first,
                    "STEP": section.step,
                    "PHASE": section.start % section.step,
                    "Y_STRIDE": padded(section.n_rows),
                }
                pairs = choice.pairs_of(b - a, tokens)
                yield Op(
                    operand.removesuffix(".weight"),
                    product_variant("matmul", matrix, choice, pairs, tokens),
                    (slab.name, slab.scales, x, "state", y),
                    shape,
                    invocations=invocations_of(b - a, pairs),
                )


def pack(label: str, matrix: Matrix, x: str) -> Op:
    """`x` rounded to 8 bits for a product with this matrix."""
    return Op(
        label,
        Variant("pack", tile=(("T", 2),)),
        (x, "state", "packed"),
        {"X_STRIDE": padded(matrix.n_in)},
        invocations=matrix.n_blocks,
    )


def plain_product(matrix: Matrix, choice: Choice) -> Op:
    """y = x W^T for one token, W of one operand and slab: the least that shows what a choice is worth."""
    return next(matmul((matrix,), matrix.sections[0].operand, "x", "y", choice, 1))


def experts(
    hp: HParams,
    matrices: Matrices,
    vectors: Collection[str],
    layer: int,
    choice: Choice,
    scaled: Mapping[str, float],
) -> Iterator[Op]:
    """o = what a token's experts make of h, from the router's logits on (`router`).

    `scaled`: overrides that say whether h is still to be divided by its root mean square.
    """
    blk, used = f"blk.{layer}.", hp.n_expert_used
    shape = {
        "N_EXPERT": hp.n_expert,
        "N_USED": used,
        "STRIDE": padded(hp.n_expert),
        "SCALE": hp.expert_scale,
        "OVER_ALL": int(hp.arch.experts is not None and hp.arch.experts.over_all),
    }
    buffers = ("router", "state", "chosen", "shares")
    yield Op(blk + "ffn_moe_topk", Variant("route"), buffers, shape, workgroups=1)

    def product(name: str, x: str, y: str, n_rows: int, overrides: Mapping[str, float]) -> Iterator[Op]:
        bias = f"{blk}{name}_exps.bias"
        has = bias in vectors
        (matrix,) = matrices[f"{blk}{name}_exps"]
        pairs = choice.pairs_of(n_rows)
        while n_rows % (8 * pairs):
            pairs //= 2
        for slab in matrix.slabs:
            yield Op(
                f"{blk}{name}_exps",
                product_variant("experts", matrix, choice, pairs, 1),
                (slab.name, slab.scales, x, "partials", bias if has else UNUSED, "chosen", "state", y),
                {
                    **shape_of(matrix),
                    "N_ROWS": n_rows,
                    "N_USED": used,
                    "EXPERT0": slab.row0 // n_rows,
                    "N_HERE": slab.n_rows // n_rows,
                    "BIAS": int(has),
                    "Y_STRIDE": padded(n_rows),
                    **overrides,
                },
                invocations=invocations_of(n_rows, pairs),
                per_token=used,
            )

    yield from product("ffn_gate", "h", "gate", hp.n_ff, scaled)
    yield from product("ffn_up", "h", "up", hp.n_ff, scaled)
    yield gated(hp, blk + activation_label(hp))
    yield from product("ffn_down", "act", "expert", hp.n_embd, {"OWN": 1, "NORMED": 1})
    shape = {"N_USED": used, "STRIDE": padded(hp.n_embd)}
    buffers = ("expert", "shares", "state", "o")
    yield Op(blk + "ffn_moe_out", Variant("expert_sum"), buffers, shape, invocations=padded(hp.n_embd))
