"""The llama forward pass on the CPU: the reference that every other device is held to.

Two arithmetics run the same pass: `Float32` (float32 activations on dequantised weights, float32 cache),
which pagelm's GPU engine must match, and `GgmlExact` (exact.py): what llama.cpp's CPU backend computes,
rounding for rounding.
"""

import os
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pagelm.device import Source
from pagelm.errors import ArchError, ContextFull, LimitError, PagelmError, TokenizerError
from pagelm.host.oracle import ops
from pagelm.host.oracle.arithmetic import Arithmetic, Float32, Trace
from pagelm.host.oracle.exact import GgmlExact
from pagelm.host.oracle.half import F32
from pagelm.host.oracle.weights import Weights

BATCH = 256  # rows per pass: bounds the memory of long prompts

# What is too small for float32 is 0, and what is not finite shows in the result, as on every device.
AS_DEVICES_DO: Any = {"under": "ignore", "over": "ignore", "invalid": "ignore"}

LAYER_LABELS = (
    "attn_norm attn_q attn_k attn_v rope_q rope_k kv_store attn_scores attn_softmax attn_values attn_output "
    "attn_residual ffn_norm ffn_gate ffn_up swiglu ffn_down ffn_residual"
).split()


def labels(n_layer: int) -> list[str]:
    """Every activation that a trace can hold, in the order of computation."""
    layers = [f"blk.{i}.{op}" for i in range(n_layer) for op in LAYER_LABELS]
    return ["embed", *layers, "output_norm", "output", "argmax"]


class Oracle:
    """One model with its cache.

    `position` counts the tokens in the cache, which holds `n_ctx`. Rows are tokens; all results are float32.
    Weights are decoded on first use and kept, which takes 4 bytes an element.
    Raises: SourceError, GgufError, ArchError for a file that cannot be computed; LimitError for a context
    that the machine has no memory for.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Source, exact: bool = False, n_ctx: int = 2048
    ) -> None:
        if n_ctx < 1:
            raise PagelmError(f"a context of {n_ctx} tokens was asked for; allowed: 1 and more")
        self.weights = Weights(model)
        self.hparams = hp = self.weights.hparams
        if hp.arch.rope != "norm":
            raise ArchError(
                f"{self.weights.gguf.name}: the oracle computes no rope of kind {hp.arch.rope!r};"
                " it has: norm"
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

    def labels(self) -> list[str]:
        """The keys that `forward` puts into a trace, in order."""
        return labels(self.hparams.n_layer)

    def reset(self) -> None:
        """Forget every token."""
        self.position = 0

    def forward(self, ids: Sequence[int], n_layers: int | None = None, trace: Trace | None = None) -> F32:
        """Append `ids` to the cache; logits (n_vocab,) of the last of them.

        With `n_layers` the pass stops after that many layers (0: embeddings) and returns the residual stream
        (n_tokens, n_embd) instead; such a pass leaves `position` where it was.
        `trace` gets every activation of the last token under the names of `labels()`: rows as flat arrays,
        attn_scores (scaled) and attn_softmax as (n_head, n_keys), kv_store as its k row then its v row.
        Raises: ContextFull before anything is computed, TokenizerError for an id outside the vocabulary.
        """
        rows = self._rows(ids, n_layers, trace)
        return rows if n_layers is not None else self._logits(rows[-1:], trace)[0]

    def forward_all(self, ids: Sequence[int], first: int = 0) -> F32:
        """As `forward`, but the logits of every row from `first` on: (n_tokens - first, n_vocab)."""
        return self._logits(self._rows(ids, None, None)[first:], None)

    @np.errstate(**AS_DEVICES_DO)
    def _logits(self, x: F32, trace: Trace | None) -> F32:
        normed = self._math.rms_norm(x, self.weights.tensor("output_norm.weight"), self.hparams.norm_rms_eps)
        logits = self._math.matmul(self._output, normed)
        if trace is not None:
            trace["output_norm"] = normed[-1].copy()
            trace["output"] = logits[-1].copy()
            trace["argmax"] = np.array([ops.argmax(logits[-1])], np.float32)
        return logits

    def _rows(self, ids: Sequence[int], n_layers: int | None, trace: Trace | None) -> F32:
        """The residual stream after `n_layers` layers (None: all) for every id, BATCH ids at a time."""
        ids = [int(i) for i in ids]
        self._check(ids, n_layers)
        depth = self.hparams.n_layer if n_layers is None else n_layers
        start, parts = self.position, []
        for at in range(0, len(ids), BATCH):
            batch = ids[at : at + BATCH]
            parts.append(self._batch(batch, start + at, depth, trace if at + BATCH >= len(ids) else None))
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
    def _batch(self, ids: list[int], n_past: int, depth: int, trace: Trace | None) -> F32:
        x = self._math.embed(ids)
        if trace is not None:
            trace["embed"] = x[-1].copy()
        cos_sin = self._math.cos_sin(np.arange(n_past, n_past + len(ids)))
        for layer in range(depth):
            x = self._layer(layer, x, n_past, cos_sin, trace)
        return x

    def _layer(self, layer: int, x: F32, n_past: int, cos_sin: tuple[F32, F32], trace: Trace | None) -> F32:
        hp, math, at = self.hparams, self._math, f"blk.{layer}"
        n_tokens = len(x)
        n_keys = n_past + n_tokens

        def note(op: str, value: F32) -> F32:
            if trace is not None:
                trace[f"{at}.{op}"] = value[-1].reshape(-1).copy()
            return value

        def norm(op: str, value: F32) -> F32:
            weight = self.weights.tensor(f"{at}.{op}.weight")
            return note(op, math.rms_norm(value, weight, hp.norm_rms_eps))

        def linear(op: str, value: F32) -> F32:
            return note(op, math.matmul(f"{at}.{op}.weight", value))

        def heads(value: F32) -> F32:
            return value.reshape(n_tokens, -1, hp.n_embd_head)

        h = norm("attn_norm", x)
        q, k, v = (heads(linear(op, h)) for op in ("attn_q", "attn_k", "attn_v"))
        q, k = note("rope_q", math.rope(q, *cos_sin)), note("rope_k", math.rope(k, *cos_sin))
        keys, values = self._k[layer, :, :n_keys], self._v[layer, :, :n_keys]
        keys[:, n_past:] = k.transpose(1, 0, 2)
        values[:, n_past:] = v.transpose(1, 0, 2)
        if trace is not None:
            stored = np.concatenate([keys[:, -1].ravel(), values[:, -1].ravel()])
            trace[f"{at}.kv_store"] = stored.astype(np.float32)
        att = note("attn_values", math.attention(q, keys, values, n_past, trace, at))
        x = note("attn_residual", x + linear("attn_output", att))
        h = norm("ffn_norm", x)
        act = note("swiglu", math.swiglu(linear("ffn_gate", h), linear("ffn_up", h)))
        return note("ffn_residual", x + linear("ffn_down", act))
