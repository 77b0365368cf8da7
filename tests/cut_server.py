"""An ASGI application that serves a folder and hangs up in the middle of every answer without an end."""

import asyncio
import re
from pathlib import Path
from typing import Any

PAUSE_S = 0.2


class CutServer:
    """Requests for all from a byte on get `nbytes` bytes of what is promised, those for a range get all.

    `cuts` has the name of the file of each answer that was cut.
    """

    def __init__(self, folder: Path, nbytes: int) -> None:
        self._folder = folder
        self._nbytes = nbytes
        self.cuts: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"].strip("/")
        data = (self._folder / name).read_bytes()
        asked = re.fullmatch(rb"bytes=(\d+)-(\d*)", dict(scope["headers"])[b"range"])
        assert asked
        first = int(asked[1])
        body = data[first : int(asked[2]) + 1 if asked[2] else len(data)]
        headers = {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": "Content-Range",
            "content-length": str(len(body)),
            "content-range": f"bytes {first}-{first + len(body) - 1}/{len(data)}",
        }
        raw = [(key.encode(), value.encode()) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": 206, "headers": raw})
        if not asked[2] and len(body) > self._nbytes:
            self.cuts.append(name)
            await send({"type": "http.response.body", "body": body[: self._nbytes], "more_body": True})
            await asyncio.sleep(PAUSE_S)  # or a browser never sees the bytes that it got
            return  # which uvicorn takes for a failure: it closes the connection
        await send({"type": "http.response.body", "body": body})
