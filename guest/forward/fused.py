"""The pass in few dispatches: what runs.

An architecture that is llama's in all but numbers has six a layer. Where a block's result is normed or a norm takes
the mean off, where heads are normed or projections have a bias, an operation more stands on its own.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..adapt import Choice
from ..hparams import HParams
from ..kernels import Variant
from ..kv_cache import cache_name
from ..program import Op
from ..weights import Matrices, Matrix, padded
from .common import (
    GUESS_TILE,
    UNUSED,
    accept,
    activation_label,
    angles_name,
    argmax,
    embed,
    experts,
    gated,
    group_pairs,
    invocations_of,
    norm,
    product_variant,
    qkv_stride,
    shape_of,
    split_of,
)

MAX_VECTORS = 48  # attention: sums of 4 elements in an invocation, beyond which it handles fewer heads


def fused(
    hp: HParams,
    matrices: Matrices,
    vectors: Collection[str],
    *,
    n_ctx: int,
    choice: Choice,
    prompt: bool,
    cache_type: str = "f32",
) -> list[Op]:
    """The pass over a piece of a prompt, or over one token (decode). `vectors`: names of their buffers."""
    tokens = choice.tokens if prompt else 1
    return list(_Fused(hp, matrices, vectors, n_ctx, choice, tokens, cache_type).ops())


def verifying(
    hp: HParams,
    matrices: Matrices,
    vectors: Collection[str],
    *,
    n_ctx: int,
    choice: Choice,
    cache_type: str = "f32",
) -> list[Op]:
    """The same over a token and up to GUESS_TILE - 1 guesses of what follows it, each with its logits.

    `accept` keeps those that are right. What is computed of a token does not depend on how many there are.
    """
    return list(_Fused(hp, matrices, vectors, n_ctx, choice, GUESS_TILE, cache_type).ops(verify=True))


class _Fused:
    def __init__(
        self,
        hp: HParams,
        matrices: Matrices,
        vectors: Collection[str],
        n_ctx: int,
        choice: Choice,
        tokens: int,
        cache_type: str,
    ) -> None:
        self.hp, self.matrices, self.vectors = hp, matrices, vectors
        self.n_ctx, self.choice, self.tokens, self.cache_type = n_ctx, choice, tokens, cache_type
        self.sharers = 4 if choice.share == "quad" else 1
        # All passes lay partial sums out alike. So they share the kernels that only read or start them, and a row
        # has the same bits however many are computed with it.
        self.part_pairs = choice.pairs_of(hp.n_embd, most=4)
        self.n_partials = padded(hp.n_embd) // (2 * self.part_pairs * self.sharers)
        # A norm by root mean squares is folded into what is around it: its gain into what comes before, which leaves
        # sums of squares too; the division by their root into the product after it. Else `norm` stands between.
        self.folds = hp.arch.norm == "rms" and hp.arch.pre_norm
        self.folded = self.folds  # whether h is still to be divided; so it is after the embedding

    def ops(self, verify: bool = False) -> Iterator[Op]:
        hp = self.hp
        yield from embed(hp, self.matrices, self.n_partials)
        if hp.arch.pre_norm and not self.folds:
            yield self.norm("blk.0.attn_norm", "x", "h")
        for layer in range(hp.n_layer):
            yield from self.attention(layer)
            yield from self.feed_forward(layer)
        output = "output" if "output" in self.matrices else "token_embd"  # tied
        tokens = self.tokens if verify else 1
        n_parts = invocations_of(hp.n_vocab, group_pairs(self.choice, self.matrices[output], tokens))
        shape = {**self.scaled(), "SCALE": hp.logit_scale, "CAP": hp.logit_cap}
        if verify:
            shape |= {"Y_STRIDE": hp.n_vocab, "N_PARTS": n_parts}
        buffers = ("h", "partials", "state", "best", "logits")
        yield from self.product("output", "logits", output, buffers, shape, per_token=int(verify))
        if verify:
            yield accept(n_parts)
        else:
            yield argmax(n_parts)

    # ---- parts ------------------------------------------------------------------------------------------

    def scaled(self) -> dict[str, float]:
        """Overrides of a product with what was normed: whether it has to divide by the root."""
        hp = self.hp
        norm = {"N_EMBD": hp.n_embd, "N_PARTIALS": self.n_partials, "EPS": hp.norm_eps}
        return norm if self.folded else {**norm, "NORMED": 1}

    def norm(self, label: str, x: str, y: str) -> Op:
        return norm(self.hp, label, x, y, f"{label}.bias" in self.vectors)

    def product(
        self,
        label: str,
        kernel: str,
        group: str | Sequence[Matrix],
        buffers: tuple[str, ...],
        overrides: Mapping[str, float],
        per_token: int = 1,
    ) -> Iterator[Op]:
        """A kernel over all rows of a group of matrices."""
        matrices = self.matrices[group] if isinstance(group, str) else group
        t = self.tokens if per_token else 1
        pairs = group_pairs(self.choice, matrices, t)
        if kernel == "project":
            pairs = self.part_pairs if t == 1 else max(self.part_pairs, pairs)
        for matrix in matrices:
            for slab in matrix.slabs:
                rows = {"N_ROWS": slab.n_rows, "ROW0": matrix.row0 + slab.row0}
                variant = product_variant(kernel, matrix, self.choice, pairs, t)
                yield Op(
                    label,
                    replace(variant, cache=self.cache_type) if kernel == "qkv" else variant,
                    (slab.name, slab.scales, *buffers),
                    {**shape_of(matrix), **rows, **overrides},
                    invocations=invocations_of(slab.n_rows, pairs),
                    per_token=per_token,
                    scratch=("h", "partials") if kernel == "project" else (),
                )

    def linear(
        self,
        label: str,
        group: str | Sequence[Matrix],
        x: str,
        y: str,
        stride: int,
        bias: str,
        overrides: Mapping[str, float] | None = None,
    ) -> Iterator[Op]:
        """y = x W^T, and the bias if there is a buffer of that name."""
        has = bias in self.vectors
        buffers = (x, "partials", bias if has else UNUSED, "state", y)
        shape = {"Y_STRIDE": stride, "BIAS": int(has), **(overrides or {"NORMED": 1})}
        return self.product(label, "linear", group, buffers, shape)

    def add_block(
        self, label: str, group: str, y: str, post_norm: str, next_norm: str | None
    ) -> Iterator[Op]:
        """x += the projection that ends a block, and the norm that the next one begins with."""
        hp, bias = self.hp, f"{group}.bias"
        self.folded = self.folds and not hp.arch.post_norm and bias not in self.vectors
        if self.folded and next_norm:
            buffers = (y, f"{next_norm}.weight", "state", "h", "partials", "x")
            shape = {
                "STRIDE": padded(hp.n_embd),
                "N_PARTIALS": self.n_partials,
                "PART_PAIRS": self.part_pairs,
                "SCALE": hp.residual_scale,
            }
            yield from self.product(label, "project", group, buffers, shape)
            return
        yield from self.linear(group, group, y, "o", padded(hp.n_embd), bias)
        yield self.add_norm(label, post_norm, next_norm)

    def add_norm(self, label: str, post_norm: str, next_norm: str | None) -> Op:
        """x += o, normed if the architecture does; h = the next norm of it, if there is one."""
        hp = self.hp
        next_bias = f"{next_norm}.bias"
        biased = next_bias in self.vectors
        shape = {
            "N_EMBD": hp.n_embd,
            "STRIDE": padded(hp.n_embd),
            "EPS": hp.norm_eps,
            "SCALE": hp.residual_scale,
            "POST": int(hp.arch.post_norm),
            "NEXT": int(next_norm is not None),
            "MEAN": int(hp.arch.norm == "layer"),
            "BIAS": int(biased),
        }
        buffers = (
            "o",
            f"{post_norm}.weight" if hp.arch.post_norm else UNUSED,
            f"{next_norm}.weight" if next_norm else UNUSED,
            next_bias if biased else UNUSED,
            "state",
            "h",
            "x",
        )
        return Op(label, Variant("add_norm"), buffers, shape, workgroups=1, scratch=("h",))

    # ---- blocks -----------------------------------------------------------------------------------------

    def attention(self, layer: int) -> Iterator[Op]:
        hp, n_ctx, blk = self.hp, self.n_ctx, f"blk.{layer}."
        k_cache, v_cache = cache_name("k", layer), cache_name("v", layer)
        q_stride = padded(hp.n_embd_q)
        h = "h" if hp.arch.pre_norm else "x"
        scaled = self.scaled()
        rope, window = hp.layers[layer].rope, hp.layers[layer].window
        normed = f"{blk}attn_q_norm.weight" in self.vectors
        whole = hp.arch.rope == "norm" and hp.n_rot == hp.n_embd_head
        if whole and not normed and f"{blk}attn_qkv.bias" not in self.vectors:
            yield from self.product(
                blk + "attn_qkv",
                "qkv",
                blk + "attn_qkv",
                (h, "partials", angles_name(rope), "state", "q", k_cache, v_cache),
                {
                    **scaled,
                    "N_EMBD_Q": hp.n_embd_q,
                    "N_EMBD_KV": hp.n_embd_kv,
                    "Q_STRIDE": q_stride,
                    "N_ROT": hp.n_rot,
                    "ROPE": int(rope is not None),
                    "N_CTX": n_ctx,
                },
            )
        else:
            name = blk + "attn_qkv"
            yield from self.linear(name, name, h, "qkv", qkv_stride(hp), f"{name}.bias", scaled)
            gains = (f"{blk}attn_q_norm.weight", f"{blk}attn_k_norm.weight") if normed else (UNUSED, UNUSED)
            yield Op(
                blk + "attn_heads",
                Variant("heads", cache=self.cache_type),
                ("qkv", angles_name(rope), *gains, "state", k_cache, v_cache, "q"),
                {
                    "N_HEAD": hp.n_head,
                    "N_HEAD_KV": hp.n_head_kv,
                    "N_EMBD_HEAD": hp.n_embd_head,
                    "STRIDE": qkv_stride(hp),
                    "Q_STRIDE": q_stride,
                    "N_CTX": n_ctx,
                    "N_ROT": 0 if rope is None else hp.n_rot,
                    "NEOX": int(hp.arch.rope == "neox"),
                    "NORM": int(normed),
                    "MEAN": int(hp.arch.norm == "layer"),
                    "OWN": int(hp.arch.qk_norm != "head"),
                    "ROW": int(hp.arch.qk_norm == "row"),
                    "EPS": hp.norm_eps,
                },
                workgroups=1,
                per_token=hp.n_head + 2 * hp.n_head_kv,
            )
        n_group, split = hp.n_head // hp.n_head_kv, split_of(n_ctx, self.choice.stretch)
        n_split = math.ceil(n_ctx / split)
        queries, vectors = min(self.tokens, 2), math.ceil(hp.n_embd_head / 4 / self.sharers)
        # heads that share what is loaded of the cache: as many as leave an invocation MAX_VECTORS sums at most
        heads = max(
            g
            for g in range(1, n_group + 1)
            if n_group % g == 0 and (g == 1 or g * queries * vectors <= MAX_VECTORS)
        )
        tile = (("G", heads), ("T", queries), ("D", vectors))
        stretches = {
            "N_HEAD": hp.n_head,
            "N_EMBD_HEAD": hp.n_embd_head,
            "Q_STRIDE": q_stride,
            "SPLIT": split,
            "N_SPLIT": n_split,
            "WINDOW": window,
        }
        whole = n_split == 1 and not hp.arch.sinks
        sinks = {"SINKS": int(hp.arch.sinks)}
        yield Op(
            blk + ("attn_values" if whole else "attn_stretches"),
            Variant("attention", share=self.choice.share, tile=tile, cache=self.cache_type),
            ("q", k_cache, v_cache, "state", "stretch_sums", "att" if whole else "stretches"),
            {
                **stretches,
                "WHOLE": int(whole),
                "N_GROUP": n_group,
                "N_EMBD_KV": hp.n_embd_kv,
                "SCALE": hp.attention_scale,
                "CAP": hp.attention_cap,
            },
            invocations=self.sharers * hp.n_head // heads,
            per_position=split,
        )
        if not whole:
            yield Op(
                blk + "attn_values",
                Variant("attention_combine"),
                (
                    "stretches",
                    "stretch_sums",
                    f"{blk}attn_sinks.weight" if hp.arch.sinks else UNUSED,
                    "state",
                    "att",
                ),
                stretches | sinks,
                invocations=hp.n_embd_q // 4,
            )
        next_norm = blk + hp.arch.ffn_norm if f"{blk}{hp.arch.ffn_norm}.weight" in self.vectors else None
        post_norm = blk + "post_attention_norm"
        yield from self.add_block(blk + "attn_residual", blk + "attn_output", "att", post_norm, next_norm)

    def feed_forward(self, layer: int) -> Iterator[Op]:
        hp, blk = self.hp, f"blk.{layer}."
        h = "h" if hp.arch.pre_norm else "x"
        last_layer = layer + 1 == hp.n_layer
        next_norm = "output_norm" if last_layer else f"blk.{layer + 1}.attn_norm"
        starts = next_norm if last_layer or hp.arch.pre_norm else None
        post_norm = blk + "post_ffw_norm"
        if hp.n_expert:
            router, scaled = blk + "ffn_gate_inp", self.scaled()
            yield from self.linear(router, router, h, "router", padded(hp.n_expert), f"{router}.bias", scaled)
            yield from experts(hp, self.matrices, self.vectors, layer, self.choice, scaled)
            self.folded = False
            yield self.add_norm(blk + "ffn_residual", post_norm, starts)
            return
        label, gelu = blk + activation_label(hp), int(hp.arch.activation == "gelu")
        group, n_ff = self.matrices[blk + "ffn_gate_up"], padded(hp.n_ff)
        scaled = self.scaled()
        if not hp.arch.gated:
            last = {**scaled, "ACTIVATE": 1, "GELU": gelu}
            yield from self.linear(label, group, h, "act", n_ff, f"{blk}ffn_up.bias", last)
        elif len(group) == 1:
            shape = {**scaled, "Y_STRIDE": n_ff, "GELU": gelu}
            yield from self.product(label, "gate_up", group, (h, "partials", "state", "act"), shape)
        else:  # two types, or biases: no invocation has both
            for matrix, y in zip(group, ("gate", "up"), strict=True):
                name = f"{blk}ffn_{y}"
                yield from self.linear(name, (matrix,), h, y, n_ff, f"{name}.bias", scaled)
            yield gated(hp, label)
        yield from self.add_block(blk + "ffn_residual", blk + "ffn_down", "act", post_norm, starts)
