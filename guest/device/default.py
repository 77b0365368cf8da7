"""The device and the sources of the place pagelm runs in. The only file that looks at sys.platform."""

import os
import sys
from typing import Any, cast

from . import Gpu, Source, Store

_IN_BROWSER = sys.platform == "emscripten"


async def open_gpu(**options: Any) -> Gpu:
    """The browser's WebGPU in Pyodide, wgpu-py elsewhere. `options`: those of the device's `open`.

    Raises DeviceError when there is no adapter, saying what to do.
    """
    if _IN_BROWSER:
        from .browser import BrowserGpu

        return await BrowserGpu.open(**options)
    from .native import NativeGpu

    return await NativeGpu.open(**options)


def open_store() -> Store:
    """Kept from run to run: the browser's Cache API in Pyodide, a file in the cache folder elsewhere."""
    if _IN_BROWSER:
        from .browser_store import BrowserStore

        return BrowserStore()
    from .file_store import FileStore, cache_dir

    return FileStore(cache_dir() / "tuning.json")


async def open_source(spec: str | bytes | object) -> Source:
    """A byte source for a URL, a path (not in the browser), bytes; in a page a File, Blob or file handle.

    What already is a source is given back as it is. Raises SourceError when it cannot be opened.
    """
    from ..sources import FileSource, HttpSource, MemorySource

    if isinstance(spec, bytes | bytearray | memoryview):
        return MemorySource(spec)
    if not isinstance(spec, str | os.PathLike):
        if hasattr(spec, "read") and hasattr(spec, "size") and hasattr(spec, "name"):
            return cast(Source, spec)
        if _IN_BROWSER and hasattr(spec, "slice") and hasattr(spec, "stream"):
            from .browser_sources import BlobSource

            return BlobSource(spec)
        if _IN_BROWSER and hasattr(spec, "getFile"):
            from .browser_sources import HandleSource

            return await HandleSource.open(spec)
        raise TypeError(f"a model is a URL, a path, bytes or a File, not {type(spec).__name__}")
    place: Any = os.fspath(spec)
    if _IN_BROWSER and isinstance(spec, str):
        from .browser_sources import UrlSource

        return await UrlSource.open(place)
    if "://" in place:
        return await HttpSource.open(place)
    return FileSource(place)
