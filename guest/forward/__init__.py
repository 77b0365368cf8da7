"""The forward pass: hyper-parameters and matrices in, a list of dispatches out.

Two descriptions of the same pass read the architecture's spec and never its name. `fused` is what runs: few,
big dispatches. `baseline` has one operation a dispatch and a buffer for every intermediate result; it is what
`peek`, `stop` and the bisection of `pagelm check` look into where fusion hides a result. Labels name every
operation for people; one that does several has the label of the last.
"""

from .baseline import baseline
from .common import (
    GUESS_TILE,
    STATE_NEXT,
    STATE_TOKENS,
    STATE_VERDICT,
    STATE_WORDS,
    TOKEN_TILE,
    VERDICT_BITS,
    activation_sizes,
    angles_name,
    hidden_stride,
    packed_size,
    plain_product,
    split_of,
)
from .fused import fused, packed, verifying

__all__ = [
    "GUESS_TILE",
    "STATE_NEXT",
    "STATE_TOKENS",
    "STATE_VERDICT",
    "STATE_WORDS",
    "TOKEN_TILE",
    "VERDICT_BITS",
    "activation_sizes",
    "angles_name",
    "baseline",
    "fused",
    "hidden_stride",
    "packed",
    "packed_size",
    "plain_product",
    "split_of",
    "verifying",
]
