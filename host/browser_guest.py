"""The guest in a headless Chromium, for programs: server, browser, page and worker as one thing to call.

`BrowserGuest.call` sends a method of host/page/service.py and awaits its answer; events arrive in a
callback, in order. Nothing waits for ever: a page or worker that dies, or stops answering, is a DeviceError.
"""

import asyncio
import base64
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pagelm import errors
from pagelm.errors import DeviceError, PagelmError
from pagelm.host.chromium import open_chromium
from pagelm.host.server import RunningServer, start_server

BOOT_S = 60  # Pyodide takes about 2 s
ALIVE_S = 30  # a worker is asked whether it lives when it was silent for so long, and has as long to answer
OnEvent = Callable[[Any], object]


class BrowserGuest:
    """Made by `await BrowserGuest.open()`; `close()` ends the browser and the server, whatever happened."""

    def __init__(self, stack: AsyncExitStack, server: RunningServer, page: Any) -> None:
        self.server = server
        self.page = page
        self.console: deque[str] = deque(maxlen=200)  # what the page said, for diagnosis
        self._stack = stack
        self._tokens = itertools.count(1)
        self._events: dict[int, OnEvent] = {}
        self._seen = 0  # events so far
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls, model: Path | None = None, *, wheel: Path | None = None, query: str = ""
    ) -> "BrowserGuest":
        """Serve `model` (if any) and the wheel, start Chromium, boot Pyodide. `query`: worker.js' parameters.

        Raises: SetupError, ServerError, DeviceError when the page does not come up.
        """
        stack = AsyncExitStack()
        try:
            server = stack.enter_context(start_server(model, wheel))
            browser = await stack.enter_async_context(open_chromium())
            guest = cls(stack, server, await browser.new_page())
            await guest._boot(query)
        except BaseException:
            await stack.aclose()
            raise
        return guest

    async def _boot(self, query: str) -> None:
        page = self.page
        page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.console.append(f"error: {error}"))
        page.on("crash", lambda _: self._died("the page crashed"))
        page.on("close", lambda _: self._died("the page was closed"))
        await page.expose_function("pagelmEvent", self._event)
        await page.goto(f"{self.server.url}page/driver.html{query}")
        boot = "pagelm.ready.then(() => null, (e) => `${e.name}: ${e.message}`)"
        try:
            await page.wait_for_function("window.pagelm !== undefined", timeout=BOOT_S * 1000)
            failed = await asyncio.wait_for(page.evaluate(boot), BOOT_S)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
        if failed:
            raise DeviceError(f"the page did not start: {failed}{self._said()}")

    async def call(
        self, method: str, args: Mapping[str, Any] | None = None, on_event: OnEvent | None = None
    ) -> Any:
        """The answer of one call. Bytes go and come as bytes-like objects, also inside lists and dicts.

        `on_event` returning False asks the call to stop.
        Raises: the PagelmError that the guest raised; DeviceError when the page is gone.
        """
        token = next(self._tokens)
        self._events[token] = self._stoppable(token, on_event or (lambda event: None))
        running = asyncio.ensure_future(
            self.page.evaluate("([t, m, a]) => pagelm.drive(t, m, a)", [token, method, _encoded(args or {})])
        )
        try:
            answer = await self._alive(running)
        except asyncio.CancelledError:
            await self._cancel(token)
            raise
        finally:
            running.cancel()
            del self._events[token]
        if "error" in answer:
            raise _error_from(answer["error"])
        return _decoded(answer["ok"])

    async def close(self) -> None:
        if not self._dead.done():
            self._dead.set_result("it was closed")
        await self._stack.aclose()

    def _stoppable(self, token: int, on_event: OnEvent) -> OnEvent:
        stopped = False

        def handle(event: Any) -> None:
            nonlocal stopped
            if on_event(event) is False and not stopped:
                stopped = True
                self._stopping = asyncio.ensure_future(self._cancel(token))

        return handle

    async def _cancel(self, token: int) -> None:
        if not self._dead.done():
            await self.page.evaluate("(t) => pagelm.cancel(t)", token)

    def _event(self, token: int, event: Any) -> None:
        self._seen += 1
        if handler := self._events.get(token):
            handler(_decoded(event))

    async def _alive(self, running: "asyncio.Future[Any]") -> Any:
        """Wait for an answer as long as the worker lives."""
        while True:
            seen = self._seen
            await asyncio.wait({running, self._dead}, timeout=ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                try:
                    return running.result()
                except Exception as error:  # Playwright's: the target is gone
                    raise DeviceError(f"the page stopped answering: {error}{self._said()}") from error
            if self._dead.done():
                raise DeviceError(f"{self._dead.result()}{self._said()}; start again")
            if self._seen == seen:
                beat = self.page.evaluate("pagelm.call('memory')")
                try:
                    await asyncio.wait_for(beat, ALIVE_S)
                except Exception as error:
                    raise DeviceError(
                        f"the page's worker has not answered for {2 * ALIVE_S} s{self._said()}"
                    ) from error

    def _died(self, why: str) -> None:
        if not self._dead.done():
            self._dead.set_result(why)

    def _said(self) -> str:
        lines = [line for line in self.console if not line.startswith("log")][-3:]
        return f" (console: {' | '.join(lines)})" if lines else ""


def _error_from(error: Mapping[str, Any]) -> PagelmError:
    """The guest's error as ours. One that is no PagelmError is a bug of the guest: its traceback is shown."""
    kind = getattr(errors, error["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, PagelmError)):
        trace = f"\n{error['traceback']}" if error.get("traceback") else ""
        return PagelmError(f"{error['type']} in the page: {error['message']}{trace}")
    made: PagelmError = kind.__new__(kind)  # some have required fields, which do not cross
    Exception.__init__(made, error["message"])
    return made


_DTYPES = {"Float32Array": "f", "Uint8Array": "B", "Uint32Array": "I", "Int32Array": "i"}


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode(), "type": "Uint8Array"}
    if isinstance(value, Mapping):
        return {key: _encoded(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(v) for v in value]
    return value


def _decoded(value: Any) -> Any:
    """Typed arrays become memoryviews of their type."""
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"base64", "type"}:
        return memoryview(base64.b64decode(value["base64"])).cast(_DTYPES[value["type"]])
    return {key: _decoded(v) for key, v in value.items()}
