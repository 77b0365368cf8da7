"""The oracle's ggml-exact mode: the pass of llama.cpp's CPU backend, on the operations of ggml.py.

On the reference files every step has the same best token and the same logits as llama.cpp, bit for bit.
Not followed are cases that those files do not reach: prompts of 64 tokens and more, which ggml attends to in
tiles; 512 cells and more on several threads; and products with F16 and F32 weights, which are summed in
BLAS's order here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelm.errors import ArchError
from pagelm.host.oracle import ggml, ops
from pagelm.host.oracle.arithmetic import Trace
from pagelm.host.oracle.dequant import BLOCK, q4_0_parts, q4_1_parts, q8_0_parts
from pagelm.host.oracle.half import F32, round_f16
from pagelm.host.oracle.weights import Weights

FOLLOWED = ("F32", "F16", "Q4_0", "Q4_1", "Q8_0")  # tensor types whose products are those of ggml here


class GgmlExact:
    """The `Arithmetic` that follows ggml's CPU backend. Raises: ArchError for types not FOLLOWED."""

    cache_dtype: type[np.floating[Any]] = np.float16

    def __init__(self, weights: Weights) -> None:
        for name, shape in weights.shapes.items():
            if len(shape) == 2 and (kind := weights.quant(name)) not in FOLLOWED:
                raise ArchError(
                    f"{weights.gguf.name}: {name} has type {kind}; the ggml-exact mode follows the products"
                    f" of {', '.join(FOLLOWED)}; use the float32 mode (without --exact)"
                )
        self.weights = weights
        self._packed: dict[str, tuple[F32, F32 | None]] = {}

    def embed(self, ids: Sequence[int]) -> F32:
        return self.weights.rows("token_embd.weight", ids)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return ggml.rms_norm(x, weight, eps)

    def cos_sin(self, positions: NDArray[np.int64]) -> tuple[F32, F32]:
        return ggml.rope_cos_sin(positions, self.weights.hparams.n_rot, self.weights.hparams.rope_freq_base)

    def rope(self, x: F32, cos: F32, sin: F32) -> F32:
        return ggml.rope(x, cos, sin)

    def matmul(self, name: str, x: F32) -> F32:
        kind = self.weights.quant(name)
        if kind in ("F16", "F32"):
            return ops.matmul(round_f16(x) if kind == "F16" else x, self.weights.tensor(name))
        packed, minima = self._pack(name, kind)
        d, quants, sums = ggml.quantize_q8(x)
        n_tokens, n_blocks, _ = quants.shape
        lanes, n = packed.shape[1:3]
        scaled = np.multiply(d, quants, dtype=np.float64).reshape(n_tokens, n_blocks, lanes, n)
        y = ggml.dot_lanes(packed, np.ascontiguousarray(scaled.transpose(1, 2, 0, 3)))
        return y if minima is None else y + ggml.chain(sums, minima)

    def attention(
        self, q: F32, k: NDArray[Any], v: NDArray[Any], n_past: int, trace: Trace | None, at: str
    ) -> F32:
        k, v = k.astype(np.float32), v.astype(np.float32)
        if trace is not None:  # ggml never has these; here they are in plain float32
            scores = ops.attention_scores(round_f16(q[-1:]), k, n_past + len(q) - 1)
            trace[f"{at}.attn_scores"] = scores[:, 0]
            trace[f"{at}.attn_softmax"] = ops.softmax(scores)[:, 0]
        return ggml.flash_attention(q, k, v, n_past)

    def swiglu(self, gate: F32, up: F32) -> F32:
        return ggml.swiglu(gate, up)

    def _pack(self, name: str, kind: str) -> tuple[F32, F32 | None]:
        """Quants times scale (n_blocks, lanes, n, n_rows) and, of Q4_1, minima (n_rows, n_blocks): exact."""
        if name not in self._packed:
            n_rows, n_columns = self.weights.shapes[name]
            raw, minima = self.weights.raw(name), None
            if kind == "Q4_1":
                d, m, q = q4_1_parts(raw)
                minima = m.reshape(n_rows, -1)
            else:
                d, q = {"Q4_0": q4_0_parts, "Q8_0": q8_0_parts}[kind](raw)
            # ggml interleaves eight rows of Q4_0 (repack.cpp) and then adds a block's whole product at once.
            lanes = 1 if kind == "Q4_0" and n_rows % 8 == 0 else ggml.LANES
            packed = (d * q).reshape(n_rows, n_columns // BLOCK, lanes, BLOCK // lanes)
            self._packed[name] = np.ascontiguousarray(packed.transpose(1, 2, 3, 0)), minima
        return self._packed[name]
