"""The forward pass on the CPU: the reference that every other device is held to.

What the pass consists of is read from the model's spec and hyper-parameters, never from its name. Two
arithmetics run the same pass: `Float32` (float32 activations on dequantised weights, float32 cache), which
pagelm's GPU engine must match, and `GgmlExact` (exact.py): what llama.cpp's CPU backend computes, rounding
for rounding.
"""

import os
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from pagelm.device import Source
from pagelm.errors import ArchError, ContextFull, LimitError, PagelmError, TokenizerError
from pagelm.host.oracle import ops
from pagelm.host.oracle.arithmetic import Arithmetic, Float32, Trace
from pagelm.host.oracle.exact import GgmlExact
from pagelm.host.oracle.half import F32
from pagelm.host.oracle.labels import activation, labels
from pagelm.host.oracle.ops import Scoring
from pagelm.host.oracle.weights import Weights
from pagelm.hparams import Rope

N_CTX = 2048  # tokens of context where nothing else is asked for
BATCH = 256  # rows per pass: bounds the memory of long prompts

# What is too small for float32 is 0, and what is not finite shows in the result, as on every device.
AS_DEVICES_DO: Any = {"under": "ignore", "over": "ignore", "invalid": "ignore"}

CosSin = tuple[F32, F32]


class Oracle:
    """One model with its cache.

    `position` counts the tokens in the cache, which holds `n_ctx` (N_CTX, or as many as the model has learned
    positions, where it is None). Rows are tokens; all results are float32.
    Weights are decoded on first use and kept, which takes 4 bytes an element.
    Raises: SourceError, GgufError, ArchError for a file that cannot be computed; LimitError for a context
    that the machine has no memory for.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Source, exact: bool = False, n_ctx: int | None = None
    ) -> None:
        if n_ctx is not None and n_ctx < 1:
            raise PagelmError(f"a context of {n_ctx} tokens was asked for; allowed: 1 and more")
        self.weights = Weights(model)
        self.hparams = hp = self.weights.hparams
        if n_ctx is None:
            n_ctx = min(N_CTX, hp.n_ctx_train) if hp.arch.positions else N_CTX
        if hp.arch.positions and n_ctx > hp.n_ctx_train:
            raise LimitError(
                f"{self.weights.gguf.name} has vectors for {hp.n_ctx_train} positions; "
                f"a context of {n_ctx} tokens was asked for; ask for a smaller context",
                needed=n_ctx,
                available=hp.n_ctx_train,
            )
        self.exact = exact
        self.n_ctx = n_ctx
        self.n_vocab = hp.n_vocab
        self.position = 0
        self._math: Arithmetic = GgmlExact(self.weights) if exact else Float32(self.weights)
        shape = (hp.n_layer, hp.n_head_kv, n_ctx, hp.n_embd_head)
        try:
            self._k = np.zeros(shape, self._math.cache_dtype)
            self._v = np.zeros(shape, self._math.cache_dtype)
        except (MemoryError, ValueError) as e:  # numpy's ValueError: more bytes than an address can count
            needed = 2 * prod(shape) * np.dtype(self._math.cache_dtype).itemsize
            raise LimitError(
                f"a context of {n_ctx} tokens needs {needed:,} bytes of memory, which this machine does not "
                "give; ask for a smaller context",
                needed=needed,
            ) from e
        self._output = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        self._factors = [self._factors_of(rope) for rope in hp.ropes]
        self._activation = activation(hp.arch)
        activate = "clamped_swiglu" if hp.arch.activation == "clamped" else self._activation
        self._activate: Callable[..., F32] = getattr(self._math, activate)

    @property
    def cut_matters(self) -> bool:
        """Whether logits depend on how tokens are cut into passes, beyond the last bits."""
        return self._math.cut_matters

    def labels(self) -> list[str]:
        """The keys that `forward` puts into a trace, in order."""
        return labels(self.hparams, self.weights.operands)

    def _factors_of(self, rope: Rope) -> F32 | None:
        """What divides the frequencies, by the context's capacity; None for nothing."""
        if rope.factors is None:
            return None
        name = rope.factors[self.n_ctx > rope.n_ctx_orig]
        factors = self.weights.tensor(name)
        if np.isnan(factors).any() or not factors.all():
            raise ArchError(
                f"{self.weights.gguf.name}: {name} has zeros or NaN; allowed: numbers other than 0"
            )
        return factors

    def reset(self) -> None:
        """Forget every token."""
        self.position = 0

    def forward(self, ids: Sequence[int], n_layers: int | None = None, trace: Trace | None = None) -> F32:
        """Append `ids` to the cache; logits (n_vocab,) of the last of them.

        With `n_layers` the pass stops after that many layers (0: embeddings) and returns the residual stream
        (n_tokens, n_embd) instead; such a pass leaves `position` where it was.
        `trace` gets every activation of the last token under the names of `labels()`: rows as flat arrays,
        attn_scores (scaled, capped) and attn_softmax as (n_head, n_keys), kv_store as its k row then its v
        row.
        Raises: ContextFull before anything is computed, TokenizerError for an id outside the vocabulary.
        """
        rows = self._rows(ids, n_layers, trace, last=n_layers is None)
        return rows if n_layers is not None else self._logits(rows[-1:], trace)[0]

    def forward_all(self, ids: Sequence[int], first: int = 0) -> F32:
        """As `forward`, but the logits of every row from `first` on: (n_tokens - first, n_vocab)."""
        return self._logits(self._rows(ids, None, None)[first:], None)

    @np.errstate(**AS_DEVICES_DO)
    def _logits(self, x: F32, trace: Trace | None) -> F32:
        hp = self.hparams
        normed = self._norm("output_norm", x)
        logits = self._math.matmul(self._output, normed)
        if (bias := self.weights.vector("output.bias")) is not None:
            logits = logits + bias
        logits = ops.capped(scaled(logits, hp.logit_scale), hp.logit_cap)
        if trace is not None:
            trace["output_norm"] = normed[-1].copy()
            trace["output"] = logits[-1].copy()
            trace["argmax"] = np.array([ops.argmax(logits[-1])], np.float32)
        return logits

    def _rows(self, ids: Sequence[int], n_layers: int | None, trace: Trace | None, last: bool = False) -> F32:
        """The residual stream after `n_layers` layers (None: all), BATCH ids at a time.

        For every id, or with `last` for the last one of each batch alone.
        """
        ids = [int(i) for i in ids]
        self._check(ids, n_layers)
        depth = self.hparams.n_layer if n_layers is None else n_layers
        start, parts = self.position, []
        for at in range(0, len(ids), BATCH):
            batch = ids[at : at + BATCH]
            noted = trace if at + BATCH >= len(ids) else None
            parts.append(self._batch(batch, start + at, depth, noted, last))
        if n_layers is None:
            self.position = start + len(ids)
        return np.concatenate(parts)

    def _check(self, ids: list[int], n_layers: int | None) -> None:
        if not ids:
            raise PagelmError("the oracle was given no tokens; a forward pass needs at least one")
        for i, token in enumerate(ids):
            if not 0 <= token < self.n_vocab:
                allowed = f"allowed: 0..{self.n_vocab - 1}"
                raise TokenizerError(f"token {token} at index {i} is not in the vocabulary; {allowed}")
        if n_layers is not None and not 0 <= n_layers <= self.hparams.n_layer:
            raise PagelmError(f"cannot stop after {n_layers} layers; allowed: 0..{self.hparams.n_layer}")
        if self.position + len(ids) > self.n_ctx:
            raise ContextFull(
                f"{len(ids)} tokens do not fit: {self.position} of {self.n_ctx} context positions are taken; "
                "use a larger n_ctx or reset",
                n_ctx=self.n_ctx,
            )

    @np.errstate(**AS_DEVICES_DO)
    def _batch(self, ids: list[int], n_past: int, depth: int, trace: Trace | None, last: bool) -> F32:
        hp, math = self.hparams, self._math
        positions = np.arange(n_past, n_past + len(ids))
        x = scaled(math.rows("token_embd.weight", ids), hp.embedding_scale)
        if trace is not None:
            trace["embed"] = x[-1].copy()
        if hp.arch.positions:
            x = x + math.rows("position_embd.weight", positions.tolist())
            if trace is not None:
                trace["embed_positions"] = x[-1].copy()
        turns = [math.cos_sin(positions, *how) for how in zip(hp.ropes, self._factors, strict=True)]
        for layer in range(depth):
            x = self._layer(layer, x, n_past, turns, trace, last and layer == depth - 1)
        return x

    def _layer(
        self, layer: int, x: F32, n_past: int, turns: Sequence[CosSin], trace: Trace | None, last: bool
    ) -> F32:
        """What the layer makes of the rows x; with `last` its second block sees the last of them alone."""
        hp, math, at = self.hparams, self._math, f"blk.{layer}"
        n_tokens, n_keys = len(x), n_past + len(x)
        rope, window = hp.layers[layer].rope, hp.layers[layer].window

        def note(op: str, value: F32) -> F32:
            if trace is not None:
                trace[f"{at}.{op}"] = value[-1].reshape(-1).copy()
            return value

        def norm(op: str, value: F32) -> F32:
            """`value` normed, or as it is where the model has no such norm."""
            name = f"{at}.{op}"
            return note(op, self._norm(name, value)) if f"{name}.weight" in self.weights else value

        def linear(op: str, value: F32) -> F32:
            product = note(op, math.matmul(f"{at}.{op}.weight", value))
            bias = self.weights.vector(f"{at}.{op}.bias")
            return product if bias is None else note(f"{op}_bias", product + bias)

        def heads(value: F32) -> F32:
            return value.reshape(n_tokens, -1, hp.n_embd_head)

        def normed_heads(op: str, value: F32) -> F32:
            whole = hp.arch.qk_norm == "row"
            return heads(norm(op, value)) if whole else norm(op, heads(value))

        def turned(op: str, value: F32) -> F32:
            if rope is None:
                return value
            return note(op, math.rope(value, *turns[rope], halves=hp.arch.rope == "neox"))

        def add(op: str, value: F32, block: F32) -> F32:
            return note(op, value + scaled(block, hp.residual_scale))

        attn_in = norm("attn_norm", x)
        q, k, v = (linear(op, attn_in) for op in ("attn_q", "attn_k", "attn_v"))
        q, k = normed_heads("attn_q_norm", q), normed_heads("attn_k_norm", k)
        q, k = turned("rope_q", q), turned("rope_k", k)
        keys, values = self._k[layer, :, :n_keys], self._v[layer, :, :n_keys]
        keys[:, n_past:] = k.transpose(1, 0, 2)
        values[:, n_past:] = heads(v).transpose(1, 0, 2)
        if trace is not None:
            stored = np.concatenate([keys[:, -1].ravel(), values[:, -1].ravel()])
            trace[f"{at}.kv_store"] = stored.astype(np.float32)
        sinks = self.weights.vector(f"{at}.attn_sinks.weight")
        scoring = Scoring(hp.attention_scale, hp.attention_cap, window, sinks)
        att = note("attn_values", math.attention(q, keys, values, n_past, scoring, trace, at))
        att = linear("attn_output", att)
        if hp.arch.post_norm:
            att = norm("post_attention_norm", att)
        x = add("attn_residual", x, att)
        if last:
            x, attn_in = x[-1:], attn_in[-1:]

        ffn_norm = f"{at}.{hp.arch.ffn_norm}"
        parallel = hp.arch.parallel and f"{ffn_norm}.weight" not in self.weights
        ffn_in = attn_in if parallel else x
        if f"{ffn_norm}.weight" in self.weights:
            ffn_in = note("ffn_norm", self._norm(ffn_norm, x))
        if hp.n_expert:
            return add("ffn_residual", x, self._experts(at, ffn_in, linear("ffn_gate_inp", ffn_in), note))
        parts = ("ffn_gate", "ffn_up") if hp.arch.gated else ("ffn_up",)
        act = note(self._activation, self._activate(*(linear(op, ffn_in) for op in parts)))
        return add("ffn_residual", x, norm("post_ffw_norm", linear("ffn_down", act)))

    def _experts(self, at: str, x: F32, logits: F32, note: Callable[[str, F32], F32]) -> F32:
        """What each token's experts make of its row of x, by the weights that the router gives them."""
        hp = self.hparams
        assert hp.arch.experts is not None
        chosen, shares = ops.top_experts(logits, hp.n_expert_used, hp.arch.experts.over_all)
        shares = shares * np.float32(hp.expert_scale)

        def products(op: str, rows: F32) -> F32:
            """rows (n_tokens, n_used, n_in), each by its expert's matrix -> (n_tokens, n_used, n_out)."""
            tensor = self.weights.tensor(f"{at}.{op}.weight")
            matrices = tensor.reshape(hp.n_expert, -1, tensor.shape[-1])
            out = np.empty((*chosen.shape, matrices.shape[1]), np.float32)
            for expert in np.unique(chosen):
                out[chosen == expert] = ops.matmul(rows[chosen == expert], matrices[expert])
            bias = self.weights.vector(f"{at}.{op}.bias")
            return note(op, out if bias is None else out + bias.reshape(hp.n_expert, -1)[chosen])

        rows = np.repeat(x[:, None], hp.n_expert_used, axis=1)
        gate, up = products("ffn_gate_exps", rows), products("ffn_up_exps", rows)
        act = note(self._activation, self._activate(gate, up))
        down = products("ffn_down_exps", act)
        return note("ffn_moe_out", np.sum(down * shares[..., None], axis=1, dtype=np.float32))

    def _norm(self, name: str, x: F32) -> F32:
        """Rows or heads of x by a vector of as many elements, or by one that has them for each head."""
        weight = self.weights.tensor(f"{name}.weight").reshape(-1, x.shape[-1])
        if self.hparams.arch.norm == "rms":
            return self._math.rms_norm(x, weight, self.hparams.norm_eps)
        bias = self.weights.vector(f"{name}.bias")
        return self._math.layer_norm(x, weight, bias, self.hparams.norm_eps)


def scaled(x: F32, scale: float) -> F32:
    """x * scale in float32; x itself where the scale is 1."""
    return x if scale == 1 else x * np.float32(scale)
