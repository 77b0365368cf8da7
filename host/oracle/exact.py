"""The oracle's ggml-exact mode: the pass of llama.cpp's CPU backend, on the operations of ggml.py.

On the reference files every step has the same best token and the same logits as llama.cpp, bit for bit, when
the tokens come as they came there: the prompt in one pass, then one by one. (Only Q4_K makes a difference.)
Not followed are cases that those files do not reach: prompts of 64 tokens and more, which ggml attends to in
tiles; 512 cells and more on several threads; and products with F16 and F32 weights, which are summed in
BLAS's order here.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelm.errors import ArchError
from pagelm.host.oracle import ggml, ops
from pagelm.host.oracle.arithmetic import Float32, Trace
from pagelm.host.oracle.dequant import BLOCK, q4_0_parts, q4_1_parts, q5_0_parts, q5_1_parts, q8_0_parts
from pagelm.host.oracle.ggml_k import Q4K, Q6K, rounded_q8_k
from pagelm.host.oracle.half import F32, round_bf16, round_f16
from pagelm.host.oracle.ops import Scoring
from pagelm.host.oracle.weights import Weights
from pagelm.hparams import Rope

# Architectures, and whether llama.cpp scales their queries before it rounds them to half floats.
FOLLOWED = dict.fromkeys(("exaone", "granite", "llama", "olmo2", "qwen2", "qwen3", "smollm3"), False)
FOLLOWED |= dict.fromkeys(("gemma", "gemma3", "phi3"), True)
# Types whose products are ggml's, bit for bit; of F16 and F32 as far as BLAS's order allows.
BIT_FOR_BIT = ("F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q6_K")
# Types whose products are ggml's but for the order of sums, and how ggml rounds what they are multiplied with.
TO_A_TOLERANCE: Mapping[str, Callable[[F32], F32]] = {
    "IQ4_NL": ggml.rounded_q8_0,
    "MXFP4": ggml.rounded_q8_0,
    "Q2_K": rounded_q8_k,
    "Q3_K": rounded_q8_k,
    "Q5_K": rounded_q8_k,
    "IQ4_XS": rounded_q8_k,
    "BF16": round_bf16,
}
TYPES = (*BIT_FOR_BIT, *TO_A_TOLERANCE)
K_TYPES: Mapping[str, type[Q4K] | type[Q6K]] = {"Q4_K": Q4K, "Q6_K": Q6K}


class GgmlExact(Float32):
    """The `Arithmetic` that follows ggml's CPU backend.

    Operations that no architecture in FOLLOWED has are those of `Float32`. Raises: ArchError for a model of
    another architecture, or with an option or a type of tensor that is not followed.
    """

    cache_dtype: type[np.floating[Any]] = np.float16

    def __init__(self, weights: Weights) -> None:
        if unknown := _not_followed(weights):
            raise ArchError(
                f"{weights.gguf.name}: ggml-exact mode does not follow {unknown}; float32 mode computes it"
            )
        super().__init__(weights)
        self._packed: dict[str, tuple[F32, F32 | None]] = {}
        self._k: dict[str, Q4K | Q6K] = {}
        self.cut_matters = any(weights.quant(name) == "Q4_K" for name in weights.operands)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return ggml.rms_norm(x, weight, eps)

    def cos_sin(self, positions: NDArray[np.int64], how: Rope, factors: F32 | None) -> tuple[F32, F32]:
        n_rot = self.weights.hparams.n_rot
        return ggml.rope_cos_sin(positions, n_rot, how.freq_base, how.scale, factors)

    def rope(self, x: F32, cos: F32, sin: F32, halves: bool) -> F32:
        return ggml.rope(x, cos, sin, halves)

    def matmul(self, name: str, x: F32) -> F32:
        kind = self.weights.quant(name)
        if kind in ("F16", "F32"):
            return ops.matmul(round_f16(x) if kind == "F16" else x, self.weights.tensor(name))
        if kind in K_TYPES:
            if name not in self._k:
                self._k[name] = K_TYPES[kind].pack(self.weights.raw(name), self.weights.shape(name)[0])
            return self._k[name].matmul(x)
        if kind in TO_A_TOLERANCE:
            rounded = TO_A_TOLERANCE[kind](x)
            return np.matmul(rounded.astype(np.float64), self.weights.tensor(name).T).astype(np.float32)
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
        """Quants times scale (n_blocks, lanes, n, n_rows) and, of Q4_1 and Q5_1, minima (n_rows, n_blocks): exact."""
        if name not in self._packed:
            n_rows, n_columns = self.weights.shape(name)
            raw, minima = self.weights.raw(name), None
            if kind in ("Q4_1", "Q5_1"):
                d, m, q = (q4_1_parts if kind == "Q4_1" else q5_1_parts)(raw)
                minima = m.reshape(n_rows, -1)
            else:
                d, q = {"Q4_0": q4_0_parts, "Q5_0": q5_0_parts, "Q8_0": q8_0_parts}[kind](raw)
            # ggml interleaves eight rows of Q4_0 (repack.cpp) and then adds a block's whole product at once.
            lanes = 1 if kind == "Q4_0" and n_rows % 8 == 0 else ggml.LANES
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
    odd = [name for name, op in weights.operands.items() if weights.quant(name) == "Q4_K" and op.n_rows % 8]
    if odd:  # ggml multiplies these in another order
        return f"{odd[0]} in Q4_K with {weights.shape(odd[0])[0]} rows, only whole eights"
    kinds = sorted({weights.quant(name) for name in weights.operands} - set(TYPES))
    return f"tensors of type {', '.join(kinds)}, only {', '.join(TYPES)}" if kinds else ""
