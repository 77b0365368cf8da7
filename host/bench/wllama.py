"""wllama, llama.cpp in a page: headless Chromium as for pagelm, in a browser of its own."""

import asyncio
import json
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route

from pagelm.host.bench.peers import (
    Peer,
    PeerError,
    Task,
    cores,
    gen_on,
    npm_package,
    offloaded,
    only_offloaded,
)
from pagelm.host.bench.sample import Sample
from pagelm.host.chromium import open_chromium
from pagelm.host.server import MIME, Isolated, ModelResponse, TypedFiles, serve_app

if TYPE_CHECKING:
    from playwright.async_api import Page

LOAD_S = 180.0
GENERATE_S = 900.0
MOST_THREADS = 8  # unless asked for more: small models gain nothing from them

T = TypeVar("T")


class Wllama(Peer):
    """A page with wllama that has the model loaded."""

    def __init__(self, name: str, task: Task, page: "Page", stack: AsyncExitStack) -> None:
        super().__init__(name, task)
        self._page = page
        self._stack = stack
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        page.on("crash", lambda _: self._die("its page crashed"))
        page.on("close", lambda _: self._die("its page was closed"))

    @classmethod
    async def open(cls, name: str, task: Task, *, threads: int | None, gpu: bool) -> "Wllama":
        """Raises: PeerError; SetupError when there is no browser."""
        package = await asyncio.to_thread(npm_package, "wllama", name) / "@wllama" / "wllama"
        async with AsyncExitStack() as stack:
            server = stack.enter_context(serve_app(_make_app(package / "esm", task.model)))
            browser = await stack.enter_async_context(open_chromium())
            peer = cls(name, task, await browser.new_page(), stack)
            browser.on("disconnected", lambda _: peer._die("its browser closed or crashed"))
            peer.version = str(json.loads((package / "package.json").read_text())["version"])
            await peer._load(server.url, threads, gpu)
            peer._stack = stack.pop_all()
            return peer
        raise AssertionError("unreachable")

    async def _load(self, url: str, threads: int | None, gpu: bool) -> None:
        await self._within(self._page.goto(f"{url}wllama.html"), LOAD_S, "opening its page")
        if threads is None:
            threads = 1 if gpu else min(cores(), MOST_THREADS)
        options = {"threads": threads, "gpu": gpu, "n_ctx": self._task.n_ctx}
        loading = self._page.evaluate("(options) => window.peer.load(options)", options)
        told = await self._within(loading, LOAD_S, "loading the model")
        if told["threads"] != threads:
            raise PeerError(self.name, f"it uses {told['threads']} threads where {threads} were asked for")
        self.about = {"engine": f"llama.cpp {told['libllama']}", "threads": threads, "device": "CPU (wasm)"}
        if gpu:
            layers, total = offloaded("\n".join(told["log"]))
            adapter = told["adapter"] or "none"
            advice = f"it needs an adapter with shader-f16, this one is {adapter}; or take the peer wllama"
            only_offloaded(self.name, layers, total, advice)
            self.about["device"] = f"WebGPU ({adapter}), {layers} of {total} layers"
            self._gen = gen_on(adapter, self._task.gen)

    async def generate(self) -> Sample:
        asking = self._page.evaluate(
            "([prompt, gen]) => window.peer.generate(prompt, gen)", [self._task.text, self._gen]
        )
        took = await self._within(asking, GENERATE_S, "generating")
        counted, wanted = (took["prompt_tokens"], took["gen"]), (len(self._task.ids), self._gen)
        if counted != wanted:
            raise PeerError(
                self.name,
                "it read {} and generated {} tokens where ".format(*counted)
                + "{} and {} were asked for".format(*wanted),
            )
        return Sample(*wanted, took["first"] / 1000, took["total"] / 1000)

    async def close(self) -> None:
        await self._stack.aclose()

    def _die(self, reason: str) -> None:
        if not self._dead.done():
            self._dead.set_result(reason)

    async def _within(self, work: Awaitable[T], seconds: float, doing: str) -> T:
        """Await `work`. Raises: PeerError when it fails, when the page dies and after `seconds`."""
        from playwright.async_api import Error

        task = asyncio.ensure_future(work)
        await asyncio.wait({task, self._dead}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            try:
                return task.result()
            except Error as error:
                reason = self._dead.result() if self._dead.done() else str(error).strip().split("\n")[0]
                raise PeerError(self.name, f"{reason} while {doing}") from error
        task.cancel()
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        reason = self._dead.result() if self._dead.done() else f"it hangs: no answer in {seconds:g} s"
        raise PeerError(self.name, f"{reason} while {doing}")


def _make_app(lib: Path, model: Path) -> Isolated:
    """The page, wllama's files and the model; isolated, because threads need shared memory."""
    here = Path(__file__).parent

    async def page(request: Request) -> Response:
        return FileResponse(here / "wllama.html", media_type=MIME[".html"])

    async def script(request: Request) -> Response:
        return FileResponse(here / "wllama.js", media_type=MIME[".js"])

    async def weights(request: Request) -> Response:
        return ModelResponse(model, media_type="application/octet-stream")

    routes = [
        Route("/wllama.html", page),
        Route("/wllama.js", script),
        Route("/model", weights),
        Mount("/lib", TypedFiles(directory=lib)),
    ]
    return Isolated(Starlette(routes=routes))
