"""What an arithmetic of the forward pass has to offer, and the plain one: float32 throughout."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pagelm.host.oracle import ops, rope
from pagelm.host.oracle.half import F32
from pagelm.host.oracle.ops import Scoring
from pagelm.host.oracle.weights import Weights
from pagelm.hparams import Rope

Trace = dict[str, F32]


class Arithmetic(Protocol):
    """What differs between the oracle's modes. Shapes as in ops.py; operands have the names of `Weights`.

    `cos_sin` (each (n_tokens, n_rot / 2)) is made once per pass for every rope of the model and handed to
    `rope`. `attention` notes `{at}.attn_scores` and `{at}.attn_softmax` of the last token when it gets a
    trace. `cut_matters`: a token's result depends on how many come with it in a pass, beyond the last bits.
    """

    cache_dtype: type[np.floating[Any]]
    cut_matters: bool

    def __init__(self, weights: Weights) -> None: ...
    def rows(self, name: str, ids: Sequence[int]) -> F32: ...
    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32: ...
    def layer_norm(self, x: F32, weight: F32, bias: F32 | None, eps: float) -> F32: ...
    def cos_sin(self, positions: NDArray[np.int64], how: Rope, factors: F32 | None) -> tuple[F32, F32]: ...
    def rope(self, x: F32, cos: F32, sin: F32, halves: bool) -> F32: ...
    def matmul(self, name: str, x: F32) -> F32: ...
    def attention(
        self,
        q: F32,
        k: NDArray[Any],
        v: NDArray[Any],
        n_past: int,
        scoring: Scoring,
        trace: Trace | None,
        at: str,
    ) -> F32: ...
    def swiglu(self, gate: F32, up: F32) -> F32: ...
    def clamped_swiglu(self, gate: F32, up: F32) -> F32: ...
    def geglu(self, gate: F32, up: F32) -> F32: ...
    def gelu(self, x: F32) -> F32: ...


class Float32:
    """float32 activations on dequantised weights, a float32 cache, rope angles in float64."""

    cache_dtype: type[np.floating[Any]] = np.float32
    cut_matters = False

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def rows(self, name: str, ids: Sequence[int]) -> F32:
        return self.weights.rows(name, ids)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return ops.rms_norm(x, weight, eps)

    def layer_norm(self, x: F32, weight: F32, bias: F32 | None, eps: float) -> F32:
        return ops.layer_norm(x, weight, bias, eps)

    def cos_sin(self, positions: NDArray[np.int64], how: Rope, factors: F32 | None) -> tuple[F32, F32]:
        return rope.cos_sin(positions, how, self.weights.hparams.n_rot, factors)

    def rope(self, x: F32, cos: F32, sin: F32, halves: bool) -> F32:
        return ops.rope(x, cos, sin, halves)

    def matmul(self, name: str, x: F32) -> F32:
        return ops.matmul(x, self.weights.tensor(name))

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
        scores = ops.attention_scores(q, k, n_past, scoring)
        weights = ops.softmax(scores, scoring.sinks)
        if trace is not None:
            trace[f"{at}.attn_scores"] = scores[:, -1].copy()
            trace[f"{at}.attn_softmax"] = weights[:, -1].copy()
        return ops.attention_values(weights, v)

    def swiglu(self, gate: F32, up: F32) -> F32:
        return ops.swiglu(gate, up)

    def clamped_swiglu(self, gate: F32, up: F32) -> F32:
        return ops.clamped_swiglu(gate, up)

    def geglu(self, gate: F32, up: F32) -> F32:
        return ops.geglu(gate, up)

    def gelu(self, x: F32) -> F32:
        return ops.gelu(x)
