"""Serves the page, Pyodide, the wheel and one model from this machine.

Routes: `/` the page, `/page/…` its files, `/pyodide/…` the npm package's files, `/wheel.json` and
`/wheel/NAME` the wheel, `/model.json` and `/model/NAME` the model with Range, all parts of a split one. It
serves nothing else and takes no uploads. Bound to the loopback address unless the caller says otherwise.
"""

import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pagelm.errors import PagelmError, SourceError
from pagelm.host.assets import package_dir, pyodide_dir
from pagelm.host.wheel import Wheel, make_wheel, read_wheel
from pagelm.split import part_names

LOOPBACK = "127.0.0.1"
START_S = 15  # uvicorn needs about 0.1 s

# By suffix, because the tables of operating systems differ and a browser refuses a module or a wasm
# file of the wrong type.
MIME = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".py": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".wgsl": "text/plain; charset=utf-8",
    ".zip": "application/zip",
}

# Cross-origin isolation: finer timers and shared memory. The page loads nothing from elsewhere that is
# not fetched with CORS, so it loses nothing by it.
ISOLATION = [
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-embedder-policy", b"require-corp"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
]


class ServerError(PagelmError):
    """The server could not start: the port is taken or not allowed, or the address is not ours."""


class ModelResponse(FileResponse):
    """A file in pieces of 1 MiB: Starlette's 64 KiB cost more time than the disk does."""

    chunk_size = 1 << 20


class TypedFiles(StaticFiles):
    """Static files with the types of MIME; browsers must ask again (and get 304) before reuse."""

    def file_response(self, full_path: Any, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(full_path, *args, **kwargs)
        if response.status_code == 200:
            suffix = os.path.splitext(full_path)[1]
            response.headers["content-type"] = MIME.get(suffix, "application/octet-stream")
        response.headers["cache-control"] = "no-cache"
        return response


class Isolated:
    """ASGI middleware that adds ISOLATION to every response, errors included."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_isolated(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *ISOLATION]
            await send(message)

        await self.app(scope, receive, send_isolated)


def make_app(model: Path | None, wheel: Wheel, pyodide: Path) -> Isolated:
    """The ASGI application. `model` is the file offered under /model/, if any; of a split model any part."""
    page = package_dir("pagelm.host") / "page"
    model_json: dict[str, Any] = {"model": None}
    offered: dict[str, Path] = {}
    if model is not None:
        names = part_names(model.name) or [model.name]
        offered = {name: model.with_name(name) for name in names}
        size = sum(path.stat().st_size for path in offered.values() if path.is_file())
        model_json = {"model": {"name": model.name, "url": f"model/{quote(model.name)}", "bytes": size}}

    async def index(request: Request) -> Response:
        headers = {"cache-control": "no-cache"}
        return FileResponse(page / "index.html", media_type=MIME[".html"], headers=headers)

    async def wheel_info(request: Request) -> Response:
        return JSONResponse({"wheel": wheel.name}, headers={"cache-control": "no-store"})

    async def wheel_file(request: Request) -> Response:
        if request.path_params["name"] != wheel.name:
            return Response(status_code=404)
        return Response(wheel.data, media_type="application/zip", headers={"cache-control": "no-store"})

    async def model_info(request: Request) -> Response:
        return JSONResponse(model_json, headers={"cache-control": "no-store"})

    async def model_file(request: Request) -> Response:
        path = offered.get(request.path_params["name"])
        if path is None or not path.is_file():
            return Response(status_code=404)
        headers = {"cache-control": "no-cache"}
        return ModelResponse(path, media_type="application/octet-stream", headers=headers)

    routes = [
        Route("/", index),
        Route("/wheel.json", wheel_info),
        Route("/wheel/{name}", wheel_file),
        Route("/model.json", model_info),
        Route("/model/{name}", model_file),
        Mount("/page", TypedFiles(directory=page)),
        Mount("/pyodide", TypedFiles(directory=pyodide)),
    ]
    return Isolated(Starlette(routes=routes))


class RunningServer:
    """A server in a thread of its own. `url` ends in a slash. `stop` may be called more than once."""

    def __init__(
        self, server: uvicorn.Server, thread: threading.Thread, url: str, model_url: str | None = None
    ) -> None:
        self.url = url
        self.model_url = model_url
        self._server = server
        self._thread = thread

    def wait(self) -> None:
        """Block until the server ends; Ctrl-C gets through."""
        while self._thread.is_alive():
            self._thread.join(0.2)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(5)
        if self._thread.is_alive():  # a download still runs
            self._server.force_exit = True
            self._thread.join(5)

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_server(
    model: Path | None = None, wheel: Path | None = None, port: int = 0, host: str = LOOPBACK
) -> RunningServer:
    """Serve in a background thread; returns when the server accepts connections.

    `wheel` None: one is made of the installed package. Port 0: any free one.
    Raises: ServerError when the port cannot be had, SourceError when the model is no readable file,
    SetupError when Pyodide is missing.
    """
    if model is not None and not (model.is_file() and os.access(model, os.R_OK)):
        raise SourceError(f"{model}: no such file, or it cannot be read")
    app = make_app(model, read_wheel(wheel) if wheel else make_wheel(), pyodide_dir())
    server = serve_app(app, port, host)
    server.model_url = f"{server.url}model/{quote(model.name)}" if model else None
    return server


def serve_app(app: Any, port: int = 0, host: str = LOOPBACK) -> RunningServer:
    """Serve an ASGI application in a background thread; returns when it accepts connections.

    Raises: ServerError when the port cannot be had.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="pagelm-server", daemon=True
    )
    thread.start()
    give_up = time.monotonic() + START_S
    while not server.started:
        if not thread.is_alive() or time.monotonic() > give_up:
            raise ServerError(f"the server on {host}:{port} did not start")
        time.sleep(0.01)
    shown = f"[{host}]" if ":" in host else host
    return RunningServer(server, thread, f"http://{shown}:{listener.getsockname()[1]}/")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere this would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ServerError(
            f"cannot listen on {host}:{port}: {error}; choose another port with --port, or 0 for any"
        ) from error
    return listener
