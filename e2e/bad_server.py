"""A web server that serves one file well or in one of the ways servers get it wrong: the path says which."""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CUT_BYTES = 5 << 20  # what "cut" sends before it hangs up
STALL_BYTES = 300_000  # what "stalls" sends before it falls silent
OPEN = {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Content-Range, ETag"}


class BadServer(ThreadingHTTPServer):
    """`url("cut")` is the file, badly served. `requests` holds (method, way, Range) of all that was asked."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.data = data
        self.requests: list[tuple[str, str, str]] = []
        self.ended = threading.Event()  # until then, a silent answer says nothing

    def url(self, way: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{way}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # browsers hang up in the middle; that is no error here


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: BadServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        way = self.path.strip("/")
        wanted = self.headers.get("Range") or ""
        self.server.requests.append((self.command, way, wanted))
        size = len(self.server.data)
        if way == "hidden-silent" and self.command == "HEAD":
            return self._fall_silent()
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted)
        if found is None or way == "no-range":
            return self._answer(200, 0, size)
        first, last = int(found[1]), int(found[2] or size - 1)
        header = not first and last == 0  # the first request: how large is it?
        if way == "silent" or (way == "falls-silent" and not header):
            return self._fall_silent()
        if way == "stalls-at-once":
            return self._answer(206, first, last + 1, sent=0)
        if way == "stalls" and not header:
            return self._answer(206, first, last + 1, sent=STALL_BYTES)
        if way == "web-page":
            return self._answer(200, 0, 100, kind="text/html; charset=utf-8")
        if way == "missing":
            return self._answer(404, 0, 10)
        if way == "other-range":
            return self._answer(206, first, last + 1, claimed=f"bytes {first + 1}-{last + 1}/{size}")
        if way == "nonsense-range":
            return self._answer(206, first, last + 1, claimed="all of it")
        if way == "unknown-size":
            return self._answer(206, first, last + 1, claimed=f"bytes {first}-{last}/*")
        if way == "grows" and not header:
            return self._answer(206, first, last + 1, claimed=f"bytes {first}-{last}/{size + 1}")
        if way == "changes":
            return self._answer(206, first, last + 1, tag=f'"{len(self.server.requests)}"')
        if way == "short" and not header:
            return self._answer(206, first, (first + last) // 2)
        if way == "breaks" and not header:
            return self._answer(503, 0, 10)
        if way == "hangs-up" and not header:
            return self._hang_up()
        if way == "cut" and not header:
            return self._answer(206, first, last + 1, sent=CUT_BYTES)
        return self._answer(206, first, last + 1)

    def _answer(
        self,
        status: int,
        first: int,
        end: int,
        *,
        kind: str = "application/octet-stream",
        claimed: str = "",
        tag: str = "",
        sent: int | None = None,
    ) -> None:
        way, size = self.path.strip("/"), len(self.server.data)
        headers = {} if way == "closed" else dict(OPEN)
        if way.startswith("hidden"):
            del headers["Access-Control-Expose-Headers"]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(end - first))
        if status == 206:
            self.send_header("Content-Range", claimed or f"bytes {first}-{end - 1}/{size}")
        if tag:
            self.send_header("ETag", tag)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = end if sent is None else min(end, first + sent)
        view = memoryview(self.server.data)
        for at in range(first, stop, 1 << 20):
            self.wfile.write(view[at : min(stop, at + (1 << 20))])
        if stop < end and way.startswith("stalls"):
            self._fall_silent()
        if stop < end:
            self._hang_up()

    def _fall_silent(self) -> None:
        self.server.ended.wait()
        self.close_connection = True

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def bad_server(data: bytes) -> Iterator[BadServer]:
    server = BadServer(data)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
