"""pagelm: GGUF language models on WebGPU, in Python, in the browser page and natively.

`load` gives a `Model`; `Model.generate` streams text. Everything else (parser, tokenizer, kernels,
engine, devices) is importable by module name. Standard library only: the package installs in a page.
"""

if __name__ != "pagelm":
    raise ImportError("this folder is the package 'pagelm'; run: pip install -e .")

from collections.abc import Callable, Sequence
from typing import Any

from . import shaders as _sources  # noqa: F401  imported first: the name belongs to the function below
from .cancel import Cancel
from .device import Gpu, Limits, Source
from .engine import Model
from .errors import PagelmError
from .generation import Generation
from .kernels import shaders
from .kv_cache import check_cache_type
from .loading import load_model
from .metrics import Progress
from .prompt import is_integer
from .split import SplitSource
from .tune import Tuner

__version__ = "0.1.0"
__all__ = ["Cancel", "Generation", "Limits", "Model", "PagelmError", "Progress", "load", "shaders"]


async def load(
    source: str | bytes | Source | Any | Sequence[Any],
    *,
    gpu: Gpu | None = None,
    n_ctx: int | None = None,
    memory_budget: int | None = None,
    cache_type: str = "f32",
    tune: str = "cached",
    on_progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Model:
    """Load a GGUF model onto the GPU.

    `source`: a URL or a path, the file's bytes, a `File`, `Blob` or `FileSystemFileHandle`, or any `Source`.
    Of a split model (NAME-00001-of-00003.gguf): the URL or path of any part, beside which the others are
    found, or a list of all parts in any order and of any of these kinds.
    `gpu`: the device to use; by default the page's WebGPU in Pyodide, wgpu-py elsewhere.
    `n_ctx`: tokens of context; by default the model's own, at most 2048.
    `memory_budget`: bytes of GPU memory the model may take; refused before the first upload if it needs more.
    A `gpu` that is given has its own.
    `cache_type`: how keys and values are kept: "f32", or "f16", in half the memory and to three digits, on
    adapters that have the feature shader-f16.
    `tune`: how kernels are chosen: "cached" measures what runs fastest here, for about a second at most, the
    first time that such a model meets this adapter; "force" measures again; "off" goes by the adapter's name.
    `Model.tuning` says what was chosen and why.
    `on_progress` is called with a `Progress` as bytes arrive and kernels compile.

    Raises: PagelmError subclasses that name what was found and what to do.
    """
    from .device.default import open_gpu, open_sources, open_store

    if memory_budget is not None:
        if not is_integer(memory_budget) or memory_budget < 1:
            raise PagelmError(f"memory_budget is {memory_budget!r}; allowed: an integer from 1, in bytes")
        if gpu is not None:
            raise PagelmError(
                "memory_budget and gpu exclude each other: give the budget to the device's open()"
            )
    check_cache_type(cache_type)
    tuner = Tuner(tune, open_store(), version=__version__)
    opened = SplitSource(await open_sources(source))
    try:
        device = gpu if gpu is not None else await open_gpu(memory_budget=memory_budget)
        try:
            model = await load_model(
                device,
                opened,
                n_ctx=n_ctx,
                cache_type=cache_type,
                on_progress=on_progress,
                cancel=cancel,
                tuner=tuner,
            )
            model.owns_gpu = gpu is None
            return model
        except BaseException:
            if gpu is None:
                device.close()
            raise
    finally:
        opened.close()
