"""The key-value cache: one buffer of keys and one of values per layer, f32, (n_ctx, n_embd_kv)."""

from .hparams import HParams


def cache_name(kind: str, layer: int) -> str:
    """Buffer name; `kind` is "k" or "v"."""
    return f"{kind}_cache.{layer}"


def cache_sizes(hp: HParams, n_ctx: int) -> dict[str, int]:
    """Buffer name -> bytes for a context of `n_ctx` tokens."""
    nbytes = 4 * n_ctx * hp.n_embd_kv
    return {cache_name(kind, layer): nbytes for layer in range(hp.n_layer) for kind in "kv"}
