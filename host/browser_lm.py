"""`Lm` in a real browser: the page's engine in headless Chromium, driven from here.

A server, a browser and a page with the worker are opened together and closed together, however it ends.
Nothing waits for ever: a call that stays silent for `stall_s` seconds, a page or browser that dies and a
worker that stops all end as DeviceError.
"""

import array
import asyncio
import base64
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelm import errors
from pagelm.errors import DeviceError, PagelmError
from pagelm.host.chromium import open_chromium
from pagelm.host.server import start_server
from pagelm.metrics import Progress

if TYPE_CHECKING:
    from playwright.async_api import Page

    from pagelm.host.lm import F32, Emit, OnProgress

BOOT_S = 120  # Python, the wheel and its import; about 2 s on an idle machine
STALL_S = 300  # between two signs of life; a software adapter may take long over a prompt
CANCEL_S = 5
BOOT_PHASES = 3
LOG_LINES = 400
ARRAY_CODES = {"Float32Array": "f", "Float64Array": "d", "Int32Array": "i", "Uint32Array": "I"}


class BrowserLm:
    """A model in the page. `log` holds the last console lines, `info` the worker's answer to load."""

    device = "browser"

    def __init__(self, page: "Page", stack: AsyncExitStack, stall_s: float) -> None:
        self.page = page
        self.model_url: str | None = None
        self.info: dict[str, Any] = {}
        self.boot: dict[str, Any] = {}
        self.log: deque[str] = deque(maxlen=LOG_LINES)
        self._stack = stack
        self._stall_s = stall_s
        self._numbers = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def adapter(self) -> dict[str, str]:
        found: dict[str, str] = self.info.get("adapter", {})
        return found

    @property
    def tuning(self) -> dict[str, Any] | None:
        return self.info.get("tuning")

    @property
    def browser_version(self) -> str:
        browser = self.page.context.browser
        return browser.version if browser is not None else ""

    @classmethod
    async def open(
        cls,
        model: str,
        *,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        on_progress: "OnProgress | None" = None,
        tune: str = "cached",
        cache_type: str = "f32",
        activations: str = "f32",
    ) -> "BrowserLm":
        """Open the page and load `model`, a path or a URL.

        Raises what the server, the browser and loading raise; then all is closed again.
        """
        path = None if "://" in model else Path(model)
        lm = await cls.start(path, on_progress=on_progress)
        try:
            where = lm.model_url or model
            await lm.load(where, n_ctx, memory_budget, on_progress, tune, cache_type, activations)
        except BaseException:
            await lm.close()
            raise
        return lm

    @classmethod
    async def start(
        cls,
        serve: Path | None = None,
        *,
        wheel: Path | None = None,
        worker: Mapping[str, str] | None = None,
        profile: Path | None = None,
        on_progress: "OnProgress | None" = None,
        stall_s: float = STALL_S,
    ) -> "BrowserLm":
        """Open the page without loading anything; `serve` is the model that `model_url` leads to.

        `wheel`: install this one instead of one made of the installed package. `worker`: parameters of
        worker.js. `profile`: a folder where the browser keeps what the page stores.

        Raises: ServerError, SourceError, SetupError; DeviceError when Python does not start.
        """
        async with AsyncExitStack() as stack:
            server = stack.enter_context(start_server(serve, wheel))
            browser = await stack.enter_async_context(open_chromium(profile))
            lm = cls(await browser.new_page(), stack, stall_s)
            lm.model_url = server.model_url
            browser.on(
                "disconnected" if profile is None else "close",
                lambda _: lm._die("the browser closed or crashed"),
            )
            await lm._boot(f"{server.url}page/driver.html", dict(worker or {}), on_progress)
            lm._stack = stack.pop_all()
            return lm
        raise AssertionError("unreachable")

    async def _boot(self, url: str, worker: dict[str, str], on_progress: "OnProgress | None") -> None:
        phases = itertools.count(1)

        def show(event: dict[str, Any]) -> None:
            if on_progress is not None:
                on_progress(Progress("python", next(phases), BOOT_PHASES))

        page = self.page
        page.on("crash", lambda _: self._die("the page crashed"))
        page.on("close", lambda _: self._die("the page was closed"))
        page.on("console", lambda message: self.log.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.log.append(f"uncaught: {error}"))
        page.on("requestfailed", lambda request: self.log.append(f"failed: {request.url} {request.failure}"))
        await self._within(page.expose_binding("driverEvent", self._on_event), BOOT_S, "starting")
        await self._within(page.goto(url), BOOT_S, "opening the page")
        self._calls[0] = _Call(show)
        answer = await self._within(
            page.evaluate("(params) => window.driver.boot(params)", worker), BOOT_S, "starting Python"
        )
        if error := answer.get("error"):
            raise DeviceError(f"Python did not start in the page: {error['type']}: {error['message']}")
        self.boot = answer["ok"]

    async def load(
        self,
        url: str,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        on_progress: "OnProgress | None" = None,
        tune: str = "cached",
        cache_type: str = "f32",
        activations: str = "f32",
    ) -> dict[str, Any]:
        """Load the model at a URL that the page can reach; the one before it is closed."""

        def show(event: dict[str, Any]) -> None:
            if on_progress is not None and event["kind"] == "progress":
                on_progress(Progress(event["phase"], event["done"], event["total"]))

        args = {
            "url": url,
            "n_ctx": n_ctx,
            "memory_budget": memory_budget,
            "cache_type": cache_type,
            "tune": tune,
            "activations": activations,
        }
        self.info = await self.call("load", args, show)
        return self.info

    # ---- calls ----

    async def call(
        self,
        method: str,
        args: Mapping[str, Any] | None = None,
        on_event: Callable[[dict[str, Any]], object] | None = None,
        stall_s: float | None = None,
    ) -> Any:
        """One call of the worker's service (page/service.py). `on_event` gets its events as they come and
        cancels the call by returning False.

        Arrays come back as array.array or bytes; bytes and array.array in `args` go out as typed arrays.
        When the task is cancelled, the worker's call is cancelled too.

        Raises: what the service raised, as the same PagelmError; RuntimeError with the traceback for a bug
        in it; DeviceError when page, worker or browser died or stayed silent for `stall_s`.
        """
        number = next(self._numbers)
        call = self._calls[number] = _Call(on_event)
        try:
            asking = self.page.evaluate(
                "([number, method, args]) => window.driver.call(number, method, args)",
                [number, method, _pack(dict(args or {}))],
            )
            answer = await self._within(asking, stall_s or self._stall_s, method, call)
            # Events travel another way than the answer; it says how many there were.
            if call.received < answer["events"]:
                await self._within(call.all_events(answer["events"]), CANCEL_S, method)
            if call.failure is not None:
                raise call.failure
            return _result(answer)
        except asyncio.CancelledError:
            await self._cancel(number)
            raise
        finally:
            del self._calls[number]

    async def _cancel(self, number: int) -> None:
        """Best effort: whoever cancels may be closing all of it."""
        try:
            asking = self.page.evaluate("(number) => window.driver.cancel(number)", number)
            await asyncio.wait_for(asking, CANCEL_S)
        except Exception:
            pass

    def _on_event(self, source: Any, number: int, event: dict[str, Any]) -> None:
        call = self._calls.get(number)
        if call is not None and call.take(_unpack(event)):
            self._stopping = asyncio.ensure_future(self._cancel(number))  # kept: the loop keeps no task

    async def _within(self, work: Any, stall_s: float, doing: str, call: "_Call | None" = None) -> Any:
        """Await `work`, unless the page dies first or nothing is heard of `call` for `stall_s` seconds."""
        task = asyncio.ensure_future(work)
        heard = time.monotonic()
        try:
            while not task.done():
                heard = max(heard, call.heard if call else 0)
                left = heard + stall_s - time.monotonic()
                if self._dead.done():
                    raise DeviceError(f"{self._dead.result()} while {doing}{self._last_line()}")
                if left <= 0:
                    raise DeviceError(f"nothing was heard for {stall_s:g} s while {doing}{self._last_line()}")
                await asyncio.wait({task, self._dead}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            return task.result()
        except _playwright_error() as error:
            reason = self._dead.result() if self._dead.done() else str(error).split("\n")[0]
            raise DeviceError(f"{reason} while {doing}{self._last_line()}") from error
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(lambda t: t.cancelled() or t.exception())

    def _die(self, reason: str) -> None:
        if not self._dead.done():
            self._dead.set_result(reason)

    def _last_line(self) -> str:
        told = [line for line in self.log if line.startswith(("error", "uncaught"))]
        return f" (console: {told[-1][:300]})" if told else ""

    # ---- Lm ----

    async def encode(self, text: str) -> list[int]:
        return list(await self.call("encode", {"text": text, "add_special": True}))

    async def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        ignore_eos: bool,
        emit: "Emit | None" = None,
        guess: bool = True,
    ) -> dict[str, Any]:
        def on_event(event: dict[str, Any]) -> object:
            return emit(event["text"]) if emit is not None else None

        given = prompt if isinstance(prompt, str) else list(prompt)
        args = {"prompt": given, "max_tokens": max_tokens, "ignore_eos": ignore_eos, "guess": guess}
        answer: dict[str, Any] = await self.call("generate", args, on_event)
        return answer

    async def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, "F32"]]:
        import numpy as np

        steps: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        args = {"ids": list(prompt_ids), "n": n, "forced": None if forced is None else list(forced)}
        running = asyncio.ensure_future(self.call("trace", args, steps.put_nowait))
        running.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step["id"], np.frombuffer(step["logits"], np.float32)
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.wait({running})

    async def values(self, prompt_ids: Sequence[int], stop: str) -> "F32":
        import numpy as np

        args = {"ids": list(prompt_ids), "stop": stop}
        return np.frombuffer(await self.call("values", args), np.float32)

    async def labels(self) -> list[str]:
        return list(await self.call("labels"))

    async def profile(self, prompt_ids: Sequence[int], tokens: int) -> dict[str, Any]:
        return dict(await self.call("profile", {"ids": list(prompt_ids), "tokens": tokens}))

    async def heap_bytes(self) -> int | None:
        return int((await self.call("memory"))["wasm_bytes"])

    async def close(self) -> None:
        """Close page, browser and server. May be called more than once."""
        await self._stack.aclose()


class _Call:
    """What is known of a call that runs: when it was last heard of, and what its listener made of it."""

    def __init__(self, on_event: Callable[[dict[str, Any]], object] | None) -> None:
        self.heard = time.monotonic()
        self.received = 0
        self.failure: Exception | None = None
        self._on_event = on_event
        self._stopped = False
        self._more = asyncio.Event()

    def take(self, event: dict[str, Any]) -> bool:
        """Hand the event on. Returns whether the call is to be cancelled for it."""
        self.heard = time.monotonic()
        self.received += 1
        self._more.set()
        if self._on_event is None or self._stopped:
            return False
        try:
            self._stopped = self._on_event(event) is False
        except Exception as error:  # the caller's own; `call` raises it
            self.failure, self._stopped = error, True
        return self._stopped

    async def all_events(self, count: int) -> None:
        while self.received < count:
            self._more.clear()
            await self._more.wait()


def _result(answer: dict[str, Any]) -> Any:
    """The call's value. Raises what the service raised."""
    if (error := answer.get("error")) is None:
        return _unpack(answer["ok"])
    kind = getattr(errors, error["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, PagelmError)):
        raise RuntimeError(f"{error['type']}: {error['message']}\n{error['traceback'] or ''}".rstrip())
    found = kind.__new__(kind, error["message"])  # not all take the message alone; it is complete as it is
    raise found


def _pack(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$array": "Uint8Array", "base64": base64.b64encode(value).decode()}
    if isinstance(value, array.array):
        name = next(name for name, code in ARRAY_CODES.items() if code == value.typecode)
        return {"$array": name, "base64": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, Mapping):
        return {key: _pack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item) for item in value]
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if "$array" in value:
            data = base64.b64decode(value["base64"])
            code = ARRAY_CODES.get(value["$array"])
            return array.array(code, data) if code else data
        return {key: _unpack(item) for key, item in value.items()}
    return [_unpack(item) for item in value] if isinstance(value, list) else value


def _playwright_error() -> type[Exception]:
    from playwright.async_api import Error

    return Error
