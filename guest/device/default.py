"""The device and the sources of the place pagelm runs in. The only file that looks at sys.platform."""

import os
import sys
from collections.abc import Iterable
from typing import Any, cast

from ..errors import SourceError
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


async def open_sources(spec: object) -> list[Source]:
    """A byte source for each file: `spec` is what `open_source` takes, or a list of it (in a page also a
    JavaScript array or a FileList): the parts of a split model.

    Raises: SourceError when one cannot be opened, or none is given.
    """
    in_javascript = _IN_BROWSER and hasattr(spec, "length") and not hasattr(spec, "byteLength")
    if not isinstance(spec, list | tuple) and (not in_javascript or isinstance(spec, str)):
        return [await open_source(spec)]
    opened: list[Source] = []
    try:
        for each in cast(Iterable[object], spec):
            opened.append(await open_source(each))
        if not opened:
            raise SourceError("an empty list of files was given; a model has one file, a split one several")
    except BaseException:
        for source in opened:
            source.close()
        raise
    return opened


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
