"""Times loading inside the page, from a server and from the origin's private file system."""

from typing import Any

import js

import pagelm
from pagelm.device.default import open_gpu
from pagelm.split import part_names


async def store(url: str) -> list[Any]:
    """Put the file at `url`, or all parts of a split model, into the private file system; their handles."""
    names = part_names(url) or [url]
    return [await _stored(name, f"pagelm-loads-{i}.gguf") for i, name in enumerate(names)]


async def _stored(url: str, name: str) -> Any:
    folder = await js.navigator.storage.getDirectory()
    handle = await folder.getFileHandle(name, create=True)
    answer = await js.fetch(url)
    if not answer.ok:
        raise pagelm.errors.SourceError(f"{url}: the server answered {answer.status}")
    await answer.body.pipeTo(await handle.createWritable())
    return handle


async def time_load(source: Any, n_ctx: int | None) -> dict[str, float]:
    """Load twice on a new device, so that the GPU needs memory for two of the model.

    The second time the browser still has the kernels: bringing the weights in has the machine for itself.
    """
    gpu = await open_gpu()
    try:
        first = await pagelm.load(source, gpu=gpu, n_ctx=n_ctx)
        second = await pagelm.load(source, gpu=gpu, n_ctx=n_ctx)
        return {
            "weights_bytes": first.gguf.size - first.gguf.header_bytes,
            "load_s": first.timing.load_s,
            "weights_s": first.timing.weights_s,
            "compile_s": first.timing.compile_s,
            "alone_s": second.timing.weights_s,
            "alone_compile_s": second.timing.compile_s,
        }
    finally:
        gpu.close()
