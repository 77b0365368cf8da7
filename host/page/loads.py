"""Times loading inside the page, from a server and from the origin's private file system."""

from typing import Any

import js

import pagelm
from pagelm.device.default import open_gpu

STORED = "pagelm-loads.gguf"


async def store(url: str) -> Any:
    """Put the file at `url` into the private file system. Returns its handle."""
    folder = await js.navigator.storage.getDirectory()
    handle = await folder.getFileHandle(STORED, create=True)
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
            "weights_bytes": first.gguf.size - first.gguf.data_offset,
            "load_s": first.timing.load_s,
            "weights_s": first.timing.weights_s,
            "compile_s": first.timing.compile_s,
            "alone_s": second.timing.weights_s,
            "alone_compile_s": second.timing.compile_s,
        }
    finally:
        gpu.close()
