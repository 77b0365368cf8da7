"""What a dispatch has to do at least: bytes that it touches, operations that its formula has."""

import math
from collections.abc import Mapping

from .hparams import HParams
from .program import Op
from .weights import MemoryPlan, padded

WHOLE = ("best", "logits", "last")  # results that are of one row, whatever the number of tokens


def work_of(
    op: Op, nbytes: Mapping[str, int], hp: HParams, plan: MemoryPlan, n_past: int, n_tokens: int
) -> tuple[int, int]:
    """Bytes and floating-point operations of an op of `forward.fused` over `n_tokens` from position `n_past`.

    Every byte that it needs counts once, however often it is loaded: weights and their scales (of experts as many
    as tokens choose, at most all), the part of the cache that is seen, rows of activations. Operations are the multiplications and additions of matrix
    products (over whole groups of 32 columns) and of attention; of everything else they count 0.

    `nbytes`: sizes of all buffers by name.
    """
    tokens, n_kv = n_tokens if op.per_token else 1, n_past + n_tokens
    is_product = "N_BLOCKS" in op.overrides
    products = tokens * int(op.overrides.get("N_USED", 1))
    window = int(op.overrides.get("WINDOW", 0)) or n_kv
    total = 0
    for i, name in enumerate(op.buffers):
        size, kind = nbytes[name], name.partition(".")[0]
        if op.variant.quant and i < 2:  # weights, scales: all of them, or the rows that are looked up
            if op.variant.kernel == "experts":
                size = size * min(products, hp.n_expert) // hp.n_expert
            total += size if is_product else size * tokens // padded(int(op.overrides["N_ROWS"]))
        elif kind in ("k_cache", "v_cache"):
            seen = min(n_kv, window + n_tokens - 1)
            total += size // plan.n_ctx * (seen if op.per_position else tokens)
        elif kind in ("stretches", "stretch_sums"):
            row = 4 * op.overrides["Q_STRIDE"] if kind == "stretches" else 8 * op.overrides["N_HEAD"]
            total += math.ceil(n_kv / op.overrides["SPLIT"]) * int(row) * tokens
        elif kind == "angles":
            total += size // plan.n_ctx * tokens
        elif kind in WHOLE or name.endswith(".weight"):
            total += size
        elif kind != "state":
            total += size // plan.n_batch * tokens
    if is_product:
        return total, int(2 * op.overrides["N_ROWS"] * 32 * op.overrides["N_BLOCKS"]) * products
    # positions, of all tokens together
    scored = sum(min(n, window) for n in range(n_past + 1, n_kv + 1)) if op.per_position else 0
    return total, 4 * hp.n_embd_q * scored
