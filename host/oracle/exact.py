"""The oracle's ggml-exact mode: the pass of llama.cpp's CPU backend, on the operations of ggml.py.

On the reference files every step has the same best token and the same logits as llama.cpp, bit for bit, when
the tokens come as they came there: the prompt in one pass, then one by one. (With Q2_K, Q4_K and IQ4_XS that
makes a difference.) So it is with every quantised type. Products with F32, F16 and BF16 weights are exact but
for the order of sums, which is BLAS's here: of tiny models in BF16, log-probabilities after the first token
are within 1e-6 of llama.cpp's, but soon a last bit makes another half float somewhere, and a difference of up
to 0.05, about half of what float32 mode has.
Not followed are cases that those files do not reach: prompts of 64 tokens and more, which ggml attends to in
tiles, and 512 cells and more on several threads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelm.errors import ArchError
from pagelm.host.oracle import ggml, ops
from pagelm.host.oracle.arithmetic import Float32, Trace
from pagelm.host.oracle.dequant import (
    BLOCK,
    Raw,
    iq4_nl_parts,
    mxfp4_parts,
    q4_0_parts,
    q4_1_parts,
    q5_0_parts,
    q5_1_parts,
    q8_0_parts,
)
from pagelm.host.oracle.ggml_k import ByLane, Interleaved
from pagelm.host.oracle.half import F32, round_bf16, round_f16
from pagelm.host.oracle.ops import Scoring
from pagelm.host.oracle.weights import Weights
from pagelm.hparams import Rope

# Architectures, and whether llama.cpp scales their queries before it rounds them to half floats.
FOLLOWED = dict.fromkeys(("exaone", "granite", "llama", "olmo2", "qwen2", "qwen3", "smollm3"), False)
FOLLOWED |= dict.fromkeys(("gemma", "gemma3", "phi3"), True)
# Of the types whose products are llama.cpp's, bit for bit: scales and whole numbers (and minima) of blocks of
# 32, and matrices of blocks of 256.
SCALED: Mapping[str, Callable[[Raw], tuple[F32, F32]]] = {
    "Q4_0": q4_0_parts,
    "Q5_0": q5_0_parts,
    "Q8_0": q8_0_parts,
    "IQ4_NL": iq4_nl_parts,
    "MXFP4": mxfp4_parts,
}
WITH_MINIMA: Mapping[str, Callable[[Raw], tuple[F32, F32, F32]]] = {"Q4_1": q4_1_parts, "Q5_1": q5_1_parts}
K_TYPES: Mapping[str, Callable[[Raw, int], Interleaved | ByLane]] = {
    "Q2_K": Interleaved.pack_q2_k,
    "Q3_K": ByLane.pack_q3_k,
    "Q4_K": Interleaved.pack_q4_k,
    "Q5_K": ByLane.pack_q5_k,
    "Q6_K": ByLane.pack_q6_k,
    "IQ4_XS": ByLane.pack_iq4_xs,
}
BIT_FOR_BIT = (*SCALED, *WITH_MINIMA, *K_TYPES)
# Those that are llama.cpp's but for the order of sums, and what rounds the activations.
BUT_FOR_ORDER: Mapping[str, Callable[[F32], F32]] = {
    "F32": lambda x: x,
    "F16": round_f16,
    "BF16": round_bf16,
}
# ggml interleaves eight rows of these (repack.cpp), and multiplies them in another order where it cannot.
IN_EIGHTS = ("Q2_K", "Q4_K", "IQ4_NL", "MXFP4")
OF_A_CUT = ("Q2_K", "Q4_K", "IQ4_XS")  # many tokens are multiplied in another order than one


class GgmlExact(Float32):
    """The `Arithmetic` that follows ggml's CPU backend.

    Operations that no architecture in FOLLOWED has are those of `Float32`. Raises: ArchError for a model of
    another architecture, or with an option or a shape that is not followed.
    """

    cache_dtype: type[np.floating[Any]] = np.float16

    def __init__(self, weights: Weights) -> None:
        if unknown := _not_followed(weights):
            raise ArchError(
                f"{weights.gguf.name}: ggml-exact mode does not follow {unknown}; float32 mode computes it"
            )
        super().__init__(weights)
        self._packed: dict[str, tuple[F32, F32 | None]] = {}
        self._k: dict[str, Interleaved | ByLane] = {}
        self.cut_matters = any(weights.quant(name) in OF_A_CUT for name in weights.operands)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return ggml.rms_norm(x, weight, eps)

    def cos_sin(self, positions: NDArray[np.int64], how: Rope, factors: F32 | None) -> tuple[F32, F32]:
        n_rot = self.weights.hparams.n_rot
        return ggml.rope_cos_sin(positions, n_rot, how.freq_base, how.scale, factors)

    def rope(self, x: F32, cos: F32, sin: F32, halves: bool) -> F32:
        return ggml.rope(x, cos, sin, halves)

    def matmul(self, name: str, x: F32) -> F32:
        kind = self.weights.quant(name)
        if kind in BUT_FOR_ORDER:
            return ops.matmul(BUT_FOR_ORDER[kind](x), self.weights.tensor(name))
        if kind in K_TYPES:
            if name not in self._k:
                self._k[name] = K_TYPES[kind](self.weights.raw(name), self.weights.shape(name)[0])
            return self._k[name].matmul(x)
        packed, minima = self._pack(name, kind)
        d, quants, sums = ggml.quantize_q8(x)
        n_tokens, n_blocks, _ = quants.shape
        lanes, n = packed.shape[1:3]
        scaled = np.multiply(d, quants, dtype=np.float64).reshape(n_tokens, n_blocks, lanes, n)
        y = ggml.dot_lanes(packed, np.ascontiguousarray(scaled.transpose(1, 2, 0, 3)))
        return y if minima is None else y + ggml.chain(sums, minima)

    def attention(
        self,
        q: F32,
        k: NDArray[Any],
        v: NDArray[Any],
        n_past: int,
        scoring: Scoring,
        trace: Trace | None,
        at: str,
    ) -> F32:
        k, v = k.astype(np.float32), v.astype(np.float32)
        if trace is not None:  # ggml never has these; here they are in plain float32
            scores = ops.attention_scores(round_f16(q[-1:]), k, n_past + len(q) - 1, scoring)
            trace[f"{at}.attn_scores"] = scores[:, 0]
            trace[f"{at}.attn_softmax"] = ops.softmax(scores)[:, 0]
        scale = _as_float32(scoring.scale)
        if FOLLOWED[self.weights.hparams.arch.name]:
            q, scale = q * scale, np.float32(1)
        return ggml.flash_attention(q, k, v, n_past, scale, scoring.window)

    def swiglu(self, gate: F32, up: F32) -> F32:
        return ggml.swiglu(gate, up)

    def geglu(self, gate: F32, up: F32) -> F32:
        return ggml.geglu(gate, up)

    def _pack(self, name: str, kind: str) -> tuple[F32, F32 | None]:
        """Quants times scale (n_blocks, lanes, n, n_rows); minima (n_rows, n_blocks) where there are any."""
        if name not in self._packed:
            n_rows, n_columns = self.weights.shape(name)
            raw, minima = self.weights.raw(name), None
            if kind in WITH_MINIMA:
                d, m, q = WITH_MINIMA[kind](raw)
                minima = m.reshape(n_rows, -1)
            else:
                d, q = SCALED[kind](raw)
            # Of eight interleaved rows a block's whole product is added at once.
            interleaved = kind in IN_EIGHTS or (kind == "Q4_0" and n_rows % 8 == 0)
            lanes = 1 if interleaved else ggml.LANES
            packed = (d * q).reshape(n_rows, n_columns // BLOCK, lanes, BLOCK // lanes)
            self._packed[name] = np.ascontiguousarray(packed.transpose(1, 2, 3, 0)), minima
        return self._packed[name]


def _as_float32(scale: float) -> np.float32:
    """The scale of scores: 1 / sqrtf(n) where it is one, as of a head of n elements; else as in the file."""
    n = round(scale**-2)
    if np.isclose(n**-0.5 if n else 0, scale, rtol=1e-12, atol=0):
        return np.float32(1) / np.sqrt(np.float32(n))
    return np.float32(scale)


def _not_followed(weights: Weights) -> str:
    """What of a model the exact mode does not compute as ggml does; empty for nothing."""
    hp = weights.hparams
    if hp.arch.name not in FOLLOWED:
        return f"architecture {hp.arch.name!r}, only {', '.join(FOLLOWED)}"
    if hp.n_expert:
        return "experts"
    if hp.arch.name == "llama" and any(layer.window for layer in hp.layers):
        return "a sliding window"  # llama.cpp ignores it
    if any(rope.yarn or rope.attn_factor != 1 for rope in hp.ropes):
        return "the scaling of rope"
    if hp.attention_cap or hp.logit_cap:
        return "caps of scores or logits"
    for name, op in weights.operands.items():
        if (kind := weights.quant(name)) in IN_EIGHTS and op.n_rows % 8:
            return f"{name} in {kind} with {op.n_rows} rows, only whole eights"
    return ""
