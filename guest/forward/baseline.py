"""The pass an operation a dispatch, for looking inside."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..adapt import Choice
from ..hparams import HParams
from ..kernels import Variant
from ..kv_cache import cache_name
from ..program import Op
from ..weights import Matrices, padded
from .common import (
    TOKEN_TILE,
    UNUSED,
    activation_label,
    add,
    angles_name,
    embed,
    experts,
    gated,
    matmul,
    norm,
)

BASELINE = Choice("alone", "registers", 0)


def baseline(
    hp: HParams, matrices: Matrices, vectors: Collection[str], *, n_ctx: int, cache_type: str = "f32"
) -> list[Op]:
    """The pass over a piece of a prompt up to the last norm. `vectors`: names of their buffers."""
    return list(_Baseline(hp, matrices, vectors, n_ctx, cache_type).ops())


class _Baseline:
    def __init__(
        self, hp: HParams, matrices: Matrices, vectors: Collection[str], n_ctx: int, cache_type: str
    ) -> None:
        self.hp, self.matrices, self.vectors = hp, matrices, vectors
        self.n_ctx, self.cache_type = n_ctx, cache_type

    def ops(self) -> Iterator[Op]:
        hp = self.hp
        yield from embed(hp, self.matrices, padded(hp.n_embd) // 32)
        for layer in range(hp.n_layer):
            yield from self.attention(layer)
            yield from self.feed_forward(layer)
        shape = {"STRIDE": padded(hp.n_embd)}
        buffers = ("x", "state", "last")
        yield Op("last_row", Variant("last_row"), buffers, shape, invocations=padded(hp.n_embd), per_token=0)
        yield norm(hp, "output_norm", "last", "h", "output_norm.bias" in self.vectors, per_token=0)

    def norm(self, label: str, x: str, y: str) -> Op:
        return norm(self.hp, label, x, y, f"{label}.bias" in self.vectors)

    def linear(self, layer: int, name: str, group: str, x: str, y: str) -> Iterator[Op]:
        """y = x W^T, and the bias, if any."""
        blk = f"blk.{layer}."
        group_matrices = self.matrices[blk + group]
        yield from matmul(group_matrices, f"{blk}{name}.weight", x, y, BASELINE, TOKEN_TILE)
        (at, section) = next(
            (matrix.row0 + section.start, section)
            for matrix in group_matrices
            for section in matrix.sections
            if section.operand == f"{blk}{name}.weight"
        )
        alone = f"{blk}{name}.bias" in self.vectors
        if alone or f"{blk}{group}.bias" in self.vectors:
            bias = f"{blk}{name}.bias" if alone else f"{blk}{group}.bias"
            n = section.n_rows
            shape = {"N": n, "FIRST": 0 if alone else at, "STRIDE": padded(n)}
            yield Op(f"{blk}{name}_bias", Variant("bias"), (bias, "state", y), shape, invocations=n)

    def head_norm(self, label: str, x: str, y: str, n_head: int) -> Op:
        """The norm of queries or keys before rope."""
        hp = self.hp
        row = hp.arch.qk_norm == "row"
        shape = {
            "N_EMBD": n_head * hp.n_embd_head if row else hp.n_embd_head,
            "ROWS": 1 if row else n_head,
            "STRIDE": padded(n_head * hp.n_embd_head),
            "EPS": hp.norm_eps,
            "MEAN": int(hp.arch.norm == "layer"),
            "OWN": int(not hp.arch.qk_norm),
        }
        buffers = (x, f"{label}.weight", UNUSED, "state", y)
        return Op(label, Variant("norm"), buffers, shape, workgroups=1, per_token=1 if row else n_head)

    def rope(self, label: str, x: str, n_head: int, rope: int) -> Op:
        hp = self.hp
        shape = {
            "N_HEAD": n_head,
            "N_EMBD_HEAD": hp.n_embd_head,
            "N_ROT": hp.n_rot,
            "STRIDE": padded(n_head * hp.n_embd_head),
            "NEOX": int(hp.arch.rope == "neox"),
        }
        buffers = (angles_name(rope), "state", x)
        return Op(label, Variant("rope"), buffers, shape, invocations=n_head * hp.n_rot // 2)

    def attention(self, layer: int) -> Iterator[Op]:
        hp, n_ctx, blk = self.hp, self.n_ctx, f"blk.{layer}."
        k_cache, v_cache = cache_name("k", layer), cache_name("v", layer)
        heads = {"N_HEAD": hp.n_head, "N_GROUP": hp.n_head // hp.n_head_kv, "N_EMBD_HEAD": hp.n_embd_head}
        cache = {"N_EMBD_KV": hp.n_embd_kv, "N_CTX": n_ctx}
        window = hp.layers[layer].window
        x = "x"
        if hp.arch.pre_norm:
            yield self.norm(blk + "attn_norm", "x", "h")
            x = "h"
        normed = f"{blk}attn_q_norm.weight" in self.vectors
        for name in ("q", "k", "v"):
            y = f"{name}_raw" if normed and name != "v" else name
            yield from self.linear(layer, f"attn_{name}", "attn_qkv", x, y)
        for name, n_head in (("q", hp.n_head), ("k", hp.n_head_kv)) if normed else ():
            yield self.head_norm(f"{blk}attn_{name}_norm", f"{name}_raw", name, n_head)
        if (rope := hp.layers[layer].rope) is not None:
            yield self.rope(blk + "rope_q", "q", hp.n_head, rope)
            yield self.rope(blk + "rope_k", "k", hp.n_head_kv, rope)
        yield Op(
            blk + "kv_store",
            Variant("kv_store", cache=self.cache_type),
            ("k", "v", "state", k_cache, v_cache),
            {**cache, "STRIDE": padded(hp.n_embd_kv)},
            invocations=hp.n_embd_kv,
        )
        yield Op(
            blk + "attn_scores",
            Variant("attn_scores", cache=self.cache_type),
            ("q", k_cache, "state", "scores"),
            {
                **heads,
                **cache,
                "Q_STRIDE": padded(hp.n_embd_q),
                "SCALE": hp.attention_scale,
                "CAP": hp.attention_cap,
            },
            invocations=1,
            per_position=1,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_softmax",
            Variant("softmax"),
            ("state", f"{blk}attn_sinks.weight" if hp.arch.sinks else UNUSED, "scores"),
            {"N_HEAD": hp.n_head, "N_CTX": n_ctx, "WINDOW": window, "SINKS": int(hp.arch.sinks)},
            workgroups=1,
            per_token=hp.n_head,
        )
        yield Op(
            blk + "attn_values",
            Variant("attn_values", cache=self.cache_type),
            ("scores", v_cache, "state", "att"),
            {**heads, **cache, "Y_STRIDE": padded(hp.n_embd_q), "WINDOW": window},
            invocations=hp.n_embd_q // 4,
        )
        yield from self.linear(layer, "attn_output", "attn_output", "att", "o")
        yield from self.residual(blk + "post_attention_norm", blk + "attn_residual")

    def residual(self, post_norm: str, label: str) -> Iterator[Op]:
        """What a block adds to x, from o."""
        if self.hp.arch.post_norm:
            yield self.norm(post_norm, "o", "normed")
        yield add(self.hp, label, "normed" if self.hp.arch.post_norm else "o")

    def feed_forward(self, layer: int) -> Iterator[Op]:
        hp, blk, label = self.hp, f"blk.{layer}.", f"blk.{layer}.{activation_label(self.hp)}"
        x = "h" if hp.arch.pre_norm else "x"
        norm = blk + hp.arch.ffn_norm
        if f"{norm}.weight" in self.vectors:  # else h still is what attention was given
            yield replace(self.norm(norm, "x", "h"), label=blk + "ffn_norm")
        if hp.n_expert:
            yield from self.linear(layer, "ffn_gate_inp", "ffn_gate_inp", x, "router")
            yield from experts(hp, self.matrices, self.vectors, layer, BASELINE, {"NORMED": 1})
            yield from self.residual(blk + "post_ffw_norm", blk + "ffn_residual")
            return
        for y in ("gate", "up") if hp.arch.gated else ("up",):
            yield from self.linear(layer, f"ffn_{y}", "ffn_gate_up", x, y)
        if hp.arch.gated:
            yield gated(hp, label)
        else:
            n, gelu = padded(hp.n_ff), int(hp.arch.activation == "gelu")
            shape = {"STRIDE": n, "GELU": gelu}
            yield Op(label, Variant("activate"), ("up", "state", "act"), shape, invocations=n)
        yield from self.linear(layer, "ffn_down", "ffn_down", "act", "o")
        yield from self.residual(blk + "post_ffw_norm", blk + "ffn_residual")
