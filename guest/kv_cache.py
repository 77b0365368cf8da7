"""The key-value cache: one buffer of keys and one of values per layer, f32 or f16, (n_ctx, n_embd_kv)."""

from reprlib import repr as shown

from .device import Gpu
from .errors import DeviceError, PagelmError
from .hparams import HParams

CACHE_BYTES = {"f32": 4, "f16": 2}  # cache type -> bytes of an element


def cache_name(kind: str, layer: int) -> str:
    """Buffer name; `kind` is "k" or "v"."""
    return f"{kind}_cache.{layer}"


def cache_sizes(hp: HParams, n_ctx: int, cache_type: str = "f32") -> dict[str, int]:
    """Buffer name -> bytes for a context of `n_ctx` tokens."""
    nbytes = CACHE_BYTES[cache_type] * n_ctx * hp.n_embd_kv
    return {cache_name(kind, layer): nbytes for layer in range(hp.n_layer) for kind in "kv"}


def check_cache_type(cache_type: str) -> None:
    """Raises: PagelmError for a type that there is not."""
    if cache_type not in CACHE_BYTES:
        raise PagelmError(f"cache_type is {shown(cache_type)}; allowed: {', '.join(CACHE_BYTES)}")


def check_cache_support(cache_type: str, gpu: Gpu) -> None:
    """Raises: PagelmError for a type that there is not, DeviceError for one that the adapter cannot run."""
    check_cache_type(cache_type)
    if cache_type == "f16" and not gpu.shader_f16:
        raise DeviceError(
            f"cache_type is 'f16', but the adapter {gpu.adapter.name} ({gpu.adapter.backend}) has no f16 in"
            " shaders (WebGPU's feature shader-f16); allowed here: f32"
        )
