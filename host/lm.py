"""`Lm`: what the commands need of a loaded model, wherever it computes. `open_lm` makes one.

Three classes implement it: `NativeLm` (wgpu-py), `BrowserLm` (the page's engine in headless Chromium) and
`CpuLm` (the numpy oracle). All results are greedy.
"""

import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from pagelm.errors import DeviceError, PagelmError
from pagelm.metrics import Progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    F32 = NDArray[np.float32]
else:
    F32 = Any  # generating text needs no numpy

Emit = Callable[[str], object]
OnProgress = Callable[[Progress], None]


class Lm(Protocol):
    """A model that is loaded and answers one call at a time."""

    device: str  # "browser", "native" or "cpu"
    adapter: dict[str, str]  # vendor, architecture, device, description, backend
    tuning: dict[str, Any] | None  # which kernels, and why (`Tuning.as_dict`); None without a GPU

    async def encode(self, text: str) -> list[int]:
        """Ids of a prompt as `generate` would take them: special tokens parsed, BOS by metadata."""
        ...

    async def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        ignore_eos: bool,
        emit: Emit | None = None,
        guess: bool = True,
    ) -> dict[str, Any]:
        """Generate from an empty cache; `emit` gets the text as it comes and stops it by returning False.
        `guess` is that of `Model.generate`; a device without a GPU ignores it.

        Returns prompt_ids, ids, text, stop_reason, n_past (tokens in the cache), timing (of this call, keys
        of `Timing`) and stats (counts since loading, keys of `Stats`): on every device the same keys.
        """
        ...

    def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, F32]]:
        """`n` steps from an empty cache: (argmax, logits (n_vocab,)) of each.

        `forced` gives the ids to go on with instead of the chosen ones.
        """
        ...

    async def values(self, prompt_ids: Sequence[int], stop: str) -> F32:
        """What the step `stop` made of the prompt's last token."""
        ...

    async def labels(self) -> list[str]:
        """Names of the steps of a pass, in order."""
        ...

    async def profile(self, prompt_ids: Sequence[int], tokens: int) -> dict[str, Any]:
        """GPU time of every dispatch of a piece of the prompt and of `tokens` tokens after it.

        See `pagelm.profile.profile`. Raises: DeviceError where nothing can be timed so.
        """
        ...

    async def heap_bytes(self) -> int | None:
        """The most memory that the guest's Python has had; None where it shares the host's."""
        ...

    async def close(self) -> None: ...


def kernels_of(lm: Lm) -> dict[str, str | None]:
    """For reports: the kernels that a device runs, and where the choice came from; Nones without a GPU."""
    found = lm.tuning or {}
    return {name: found.get(name) for name in ("name", "source")}


# device -> module, class, the package it cannot do without, and the extra that brings it
_DEVICES = {
    "browser": ("pagelm.host.browser_lm", "BrowserLm", "playwright", "browser"),
    "native": ("pagelm.host.native_lm", "NativeLm", "wgpu", "native"),
    "cpu": ("pagelm.host.cpu_lm", "CpuLm", "numpy", "oracle"),
}
DEVICES = tuple(_DEVICES)


async def open_lm(
    device: str,
    model: str,
    *,
    n_ctx: int | None = None,
    memory_budget: int | None = None,
    on_progress: OnProgress | None = None,
    exact: bool = False,
    tune: str = "cached",
    cache_type: str = "f32",
    activations: str = "f32",
) -> Lm:
    """Load `model` (a URL or a path) on a device. `n_ctx` in tokens, `memory_budget` in bytes of GPU memory.

    `exact`, on the device "cpu" alone: compute as llama.cpp's CPU backend does. `tune`, `cache_type` and
    `activations` are those of `pagelm.load`; the device "cpu" has no kernels to choose.

    Raises: DeviceError when the device's Python package is not installed, or for "int8" on the device "cpu";
    PagelmError for a cache of f16 on it; what loading raises.
    """
    module, name, package, extra = _DEVICES[device]
    options: dict[str, Any] = {"exact": True} if exact else {}
    if device != "cpu":
        options |= {"tune": tune, "cache_type": cache_type, "activations": activations}
    elif cache_type != "f32":
        raise PagelmError(
            f"cache_type is {cache_type!r}, but the device cpu, the oracle, has f32 (f16 with --exact);"
            " leave --cache-type out, or choose another device"
        )
    elif activations != "f32":
        raise DeviceError(
            f"the device cpu computes with f32 activations only, not {activations};"
            " --activations int8 goes with --device browser or native"
        )
    with needing(package, extra, f"--device {device}"):
        kind = getattr(importlib.import_module(module), name)
        lm: Lm = await kind.open(
            model, n_ctx=n_ctx, memory_budget=memory_budget, on_progress=on_progress, **options
        )
    return lm


@contextmanager
def needing(package: str, extra: str, wanted_by: str) -> Iterator[None]:
    """Turns the absence of an optional package into the error that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as e:
        if e.name != package:
            raise
        raise DeviceError(
            f"{wanted_by} needs the package {package}; run: pip install 'pagelm[{extra}]'"
        ) from e
