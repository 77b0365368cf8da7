"""Byte sources of the browser: a URL read with Range requests, a File or Blob, a file system's handle.

`read` is for the header. The weights go by `reader`, the JavaScript object of streams.js that
`BrowserGpu.upload` hands on to its own JavaScript half: those bytes never become Python objects.
"""

from typing import Any

from pyodide.ffi import JsException

from .browser import error_from, script


class _ReaderSource:
    """What both have in common. `reader`, `name` and `size`: see streams.js."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.name = str(reader.name)
        self.size = int(reader.size)

    async def read(self, at: int, nbytes: int) -> bytes:
        try:
            data: bytes = (await self.reader.read(at, nbytes)).to_bytes()
        except JsException as e:
            raise error_from(e) from None
        return data

    def rest(self) -> None:
        self.reader.rest()

    def close(self) -> None:
        self.reader.close()


class UrlSource(_ReaderSource):
    """A file on a server that answers Range requests. A relative URL is relative to the page or worker."""

    @classmethod
    async def open(cls, url: str) -> "UrlSource":
        """Ask for the size. Raises SourceError: no server, no CORS permission, no such file, no Range."""
        return cls(await _opened(script("streams.js").openUrl(url)))

    async def another(self, name: str) -> "UrlSource":
        return await UrlSource.open(name)


class BlobSource(_ReaderSource):
    """A JavaScript File or Blob, such as a file picker gives."""

    def __init__(self, blob: Any) -> None:
        super().__init__(script("streams.js").openBlob(blob))


class HandleSource(_ReaderSource):
    """A FileSystemFileHandle: of the origin's private file system (OPFS), or a file that the user picked."""

    @classmethod
    async def open(cls, handle: Any) -> "HandleSource":
        """In place where that may be: in a worker, of the private file system. Raises SourceError."""
        return cls(await _opened(script("streams.js").openHandle(handle)))


async def _opened(reader: Any) -> Any:
    """The reader that this promise of streams.js brings. Raises SourceError."""
    try:
        return await reader
    except JsException as e:
        raise error_from(e) from None
