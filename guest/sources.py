"""Byte sources that need no browser: memory, a local file, HTTP with Range. See `device.Source`.

Every read gives exactly the bytes asked for or raises SourceError; a source never pads or shortens.
"""

import asyncio
import io
import os
import re
import stat
import threading
from typing import Any

from .errors import SourceError

TIMEOUT_S = 30.0
MAX_RESUMES = 3  # new requests in one read after answers that broke off
MAX_SKIP = 64 << 20  # bytes read and thrown away to reach a position on a server without Range


def check_range(name: str, size: int, at: int, nbytes: int) -> None:
    """Raise SourceError unless `nbytes` bytes from `at` lie inside a source of `size` bytes."""
    if at < 0 or nbytes < 0 or at + nbytes > size:
        raise SourceError(f"{name}: bytes {at} to {at + nbytes} were asked for; it has {size}")


class MemorySource:
    """Bytes that are in memory already."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "memory") -> None:
        self._data = memoryview(data).cast("B")
        self.name = name
        self.size = len(self._data)

    async def read(self, at: int, nbytes: int) -> bytes:
        check_range(self.name, self.size, at, nbytes)
        return bytes(self._data[at : at + nbytes])

    def close(self) -> None:
        pass


class FileSource:
    """A local file. It must not shrink while it is read; that is noticed and raised."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        try:
            # Unbuffered: reads are large, and one that is short must be seen here.
            self._file: io.FileIO = open(path, "rb", buffering=0)
            info = os.fstat(self._file.fileno())
        except OSError as e:
            raise SourceError(f"{self.name}: {_reason(e)}") from None
        except ValueError as e:  # a NUL in the path
            raise SourceError(f"{self.name!r}: {e}") from None
        if not stat.S_ISREG(info.st_mode):
            self._file.close()
            raise SourceError(f"{self.name}: not a regular file")
        self.size = info.st_size

    async def read(self, at: int, nbytes: int) -> bytes:
        check_range(self.name, self.size, at, nbytes)
        if self._file.closed:
            raise SourceError(f"{self.name}: already closed")
        try:
            self._file.seek(at)
            data = self._file.read(nbytes)
            while len(data) < nbytes:  # a signal, or the system's 2 GiB limit of one read
                more = self._file.read(nbytes - len(data))
                if not more:
                    raise SourceError(
                        f"{self.name}: {len(data)} of {nbytes} bytes from {at} could be read; "
                        f"the file had {self.size} bytes when it was opened and is shorter now"
                    )
                data += more
        except OSError as e:
            raise SourceError(f"{self.name}: {_reason(e)}") from None
        return data

    async def another(self, name: str) -> "FileSource":
        return FileSource(name)

    def close(self) -> None:
        self._file.close()


def _reason(e: OSError) -> str:
    return (e.strerror or str(e) or type(e).__name__).lower()


class HttpSource:
    """A file on an HTTP server, over urllib in a thread. Made by `await HttpSource.open(url)`.

    One request ("from here to the end") stays open and serves reads as long as they follow each other; a
    read elsewhere makes a new request. A server that ignores Range can still be read forward: bytes up
    to MAX_SKIP are skipped to reach a position.
    """

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        if not re.match(r"https?://", url, re.IGNORECASE):
            raise SourceError(f"{url}: not an http:// or https:// address")
        self.name = url
        self.size = -1  # known once the server has answered
        self.requests = 0
        self._timeout_s = timeout_s
        self._tag: str | None = None  # ETag of the first answer
        self._response: Any = None
        self._pos = 0  # file position of the response's next byte
        self._begin = 0  # file position of the first byte that this response gave to a reader
        self._end = 0  # file position where the response's body ends
        self._lock = threading.Lock()  # one reader at a time; a cancelled one may still be at work
        self._closed = False

    @classmethod
    async def open(cls, url: str, *, timeout_s: float = TIMEOUT_S) -> "HttpSource":
        """Ask the server for the file and its size. Raises SourceError."""
        source = cls(url, timeout_s=timeout_s)
        await asyncio.to_thread(source._locked, source._request, 0)
        return source

    async def read(self, at: int, nbytes: int) -> bytes:
        check_range(self.name, self.size, at, nbytes)
        if self._closed:
            raise SourceError(f"{self.name}: already closed")
        return await asyncio.to_thread(self._locked, self._read, at, nbytes)

    async def another(self, name: str) -> "HttpSource":
        return await HttpSource.open(name, timeout_s=self._timeout_s)

    def close(self) -> None:
        self._closed = True
        self.rest()

    def rest(self) -> None:
        if self._lock.acquire(blocking=False):  # else the reader at work closes it
            try:
                self._drop()
            finally:
                self._lock.release()

    def _locked(self, call: Any, *args: int) -> Any:
        import http.client

        with self._lock:
            done = False
            try:
                result = call(*args)
                done = True
                return result
            except TimeoutError:
                raise SourceError(f"{self.name}: no answer within {self._timeout_s:g} s") from None
            except http.client.HTTPException as e:
                raise SourceError(f"{self.name}: the answer is not proper HTTP: {e!r}") from None
            except OSError as e:
                raise SourceError(f"{self.name}: {_reason(e)}") from None
            finally:
                if self._closed or not done:
                    self._drop()

    def _drop(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None

    def _read(self, at: int, nbytes: int) -> bytes:
        parts = []
        resumes = 0
        while nbytes:
            if self._response is None or self._pos != at:
                self._request(at)
            part, why = self._next_part(min(nbytes, self._end - at))
            if part:
                parts.append(part)
                at += len(part)
                nbytes -= len(part)
                self._pos = at
                if at == self._end:  # a server may answer a part of the range at a time
                    self._drop()
            elif self._pos > self._begin and resumes < MAX_RESUMES:
                # Cut off after it had begun to send: a server tires of a reader that pauses. Go on from here.
                resumes += 1
                self._drop()
            else:
                raise SourceError(
                    f"{self.name}: the answer ended at byte {at}{why}; {nbytes} more were asked for and "
                    f"the server had promised up to {self._end} of {self.size}"
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _next_part(self, nbytes: int) -> tuple[bytes, str]:
        """At most `nbytes` bytes of the answer; none and the reason, if there is one, where it breaks off."""
        try:
            return self._response.read(nbytes), ""
        except ConnectionError as e:
            return b"", f" ({_reason(e)})"

    def _request(self, at: int) -> None:
        """Open a response whose next byte is `at`, and check everything it says about itself."""
        import urllib.error
        import urllib.parse
        import urllib.request

        self._drop()
        headers = {"Range": f"bytes={at}-", "Accept-Encoding": "identity"}
        address = urllib.parse.quote(
            self.name, safe="%/:=&?~#+!$,;'@()*[]"
        )  # spaces and letters outside ASCII
        self.requests += 1
        try:
            request = urllib.request.Request(address, headers=headers)
            self._response = _opener().open(request, timeout=self._timeout_s)
        except urllib.error.HTTPError as e:
            e.close()
            hint = "; check the address" if e.code in (404, 410) else ""
            raise SourceError(f"{self.name}: the server answers {e.code} {e.reason}{hint}") from None
        except urllib.error.URLError as e:
            reason = e.reason
            if isinstance(reason, TimeoutError):
                raise reason from None
            raise SourceError(
                f"{self.name}: {_reason(reason) if isinstance(reason, OSError) else reason}"
            ) from None
        except ValueError as e:
            raise SourceError(f"{self.name}: {e}") from None
        said = self._response.headers
        if "html" in said.get("Content-Type", "").lower():
            raise SourceError(
                f"{self.name}: the server sends a web page, not a model file; use the "
                "address of the file itself"
            )
        if said.get("Content-Encoding", "identity").lower() != "identity":
            raise SourceError(f"{self.name}: the server sends it as {said['Content-Encoding']}")
        self._pos, self._end, size = self._promised(at)
        self._begin = max(self._pos, at)
        if self.size < 0:
            self.size, self._tag = size, said.get("ETag")
        elif size != self.size or said.get("ETag") != self._tag:
            raise SourceError(f"{self.name}: the file has changed on the server; load it again")
        if self._pos != at:
            self._skip_to(at)

    def _promised(self, at: int) -> tuple[int, int, int]:
        """First byte, end and file size that the answer's headers promise."""
        status, headers = self._response.status, self._response.headers
        if status == 206:
            said = headers.get("Content-Range", "")
            m = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", said.strip())
            if not m:
                raise SourceError(f"{self.name}: Content-Range is {said!r}; bytes {at}- were asked for")
            first, last, size = (int(g) for g in m.groups())
            if first != at or last < first or last >= size:
                raise SourceError(f"{self.name}: bytes {at}- were asked for, the server sends {said!r}")
            return first, last + 1, size
        if status == 200:  # the whole file: the server ignores Range
            said = headers.get("Content-Length", "")
            if not re.fullmatch(r"\d{1,19}", said):
                raise SourceError(f"{self.name}: the server does not say how long the file is")
            return 0, int(said), int(said)
        raise SourceError(f"{self.name}: the server answers {status}; 206 (part of the file) is needed")

    def _skip_to(self, at: int) -> None:
        if at > MAX_SKIP:
            raise SourceError(
                f"{self.name}: the server ignores Range requests and sends the file from its beginning; "
                f"byte {at} cannot be reached. Use a server that supports Range"
            )
        while self._pos < at:
            n = len(self._response.read(min(at - self._pos, 1 << 20)))
            if not n:
                raise SourceError(f"{self.name}: the answer ended at byte {self._pos} of {self._end}")
            self._pos += n


def _opener() -> Any:
    """urllib's opener for http and https alone: a redirect must not reach file: or ftp:."""
    # Imported here because a page never needs it and it costs time there.
    import urllib.request as u

    opener = u.OpenerDirector()
    handlers = [u.ProxyHandler(), u.UnknownHandler(), u.HTTPHandler(), u.HTTPDefaultErrorHandler()]
    handlers += [u.HTTPRedirectHandler(), u.HTTPErrorProcessor()]
    if hasattr(u, "HTTPSHandler"):
        handlers.append(u.HTTPSHandler())
    for handler in handlers:
        opener.add_handler(handler)
    return opener
