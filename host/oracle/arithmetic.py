"""What an arithmetic of the forward pass has to offer, and the plain one: float32 throughout."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pagelm.host.oracle import ops
from pagelm.host.oracle.half import F32
from pagelm.host.oracle.weights import Weights

Trace = dict[str, F32]


class Arithmetic(Protocol):
    """What differs between the oracle's modes. Shapes as in ops.py; matrices are named as in the file.

    `cos_sin` (each (n_tokens, n_rot / 2)) is made once per pass and handed to `rope`. `attention` notes
    `{at}.attn_scores` and `{at}.attn_softmax` of the last token when it gets a trace.
    """

    cache_dtype: type[np.floating[Any]]

    def __init__(self, weights: Weights) -> None: ...
    def embed(self, ids: Sequence[int]) -> F32: ...
    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32: ...
    def cos_sin(self, positions: NDArray[np.int64]) -> tuple[F32, F32]: ...
    def rope(self, x: F32, cos: F32, sin: F32) -> F32: ...
    def matmul(self, name: str, x: F32) -> F32: ...
    def attention(
        self, q: F32, k: NDArray[Any], v: NDArray[Any], n_past: int, trace: Trace | None, at: str
    ) -> F32: ...
    def swiglu(self, gate: F32, up: F32) -> F32: ...


class Float32:
    """float32 activations on dequantised weights, a float32 cache, rope angles in float64."""

    cache_dtype: type[np.floating[Any]] = np.float32

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def embed(self, ids: Sequence[int]) -> F32:
        return self.weights.rows("token_embd.weight", ids)

    def rms_norm(self, x: F32, weight: F32, eps: float) -> F32:
        return ops.rms_norm(x, weight, eps)

    def cos_sin(self, positions: NDArray[np.int64]) -> tuple[F32, F32]:
        hp = self.weights.hparams
        angles = ops.rope_angles(positions, hp.n_rot, hp.rope_freq_base)
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def rope(self, x: F32, cos: F32, sin: F32) -> F32:
        return ops.rope(x, cos, sin)

    def matmul(self, name: str, x: F32) -> F32:
        return ops.matmul(x, self.weights.tensor(name))

    def attention(
        self, q: F32, k: NDArray[Any], v: NDArray[Any], n_past: int, trace: Trace | None, at: str
    ) -> F32:
        scores = ops.attention_scores(q, k, n_past)
        weights = ops.softmax(scores)
        if trace is not None:
            trace[f"{at}.attn_scores"] = scores[:, -1].copy()
            trace[f"{at}.attn_softmax"] = weights[:, -1].copy()
        return ops.attention_values(weights, v)

    def swiglu(self, gate: F32, up: F32) -> F32:
        return ops.swiglu(gate, up)
