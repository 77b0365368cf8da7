"""`Lm` in the browser: the page's own engine in headless Chromium."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from pagelm.host.browser_guest import BrowserGuest
from pagelm.host.lm import F32, Emit, OnProgress
from pagelm.metrics import Progress


class BrowserLm:
    """A model loaded by the guest in the page."""

    device = "browser"

    def __init__(self, guest: BrowserGuest, info: dict[str, Any]) -> None:
        self.guest = guest
        self.info = info
        self.adapter: dict[str, str] = info["adapter"]

    @classmethod
    async def open(
        cls,
        model: str,
        *,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        on_progress: OnProgress | None = None,
        wheel: Path | None = None,
    ) -> "BrowserLm":
        """`model`: a path, which is served to the page, or a URL, which the page fetches itself."""
        url = model if "://" in model else None
        guest = await BrowserGuest.open(None if url else Path(model), wheel=wheel)

        def progress(event: Any) -> None:
            if on_progress is not None and event["kind"] == "progress":
                on_progress(Progress(event["phase"], event["done"], event["total"]))

        try:
            args = {"url": url or guest.server.model_url, "n_ctx": n_ctx, "memory_budget": memory_budget}
            info = await guest.call("load", args, progress)
        except BaseException:
            await guest.close()
            raise
        return cls(guest, info)

    async def encode(self, text: str) -> list[int]:
        ids: list[int] = await self.guest.call("encode", {"text": text, "add_special": True})
        return ids

    async def generate(
        self, prompt: str | Sequence[int], max_tokens: int, ignore_eos: bool, emit: Emit | None = None
    ) -> dict[str, Any]:
        args = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "max_tokens": max_tokens,
            "ignore_eos": ignore_eos,
        }
        stopped = False

        def event(event: Any) -> bool:
            nonlocal stopped
            if emit is not None and not stopped and event["kind"] == "piece":
                stopped = emit(event["text"]) is False
            return not stopped

        result: dict[str, Any] = await self.guest.call("generate", args, event)
        return result

    async def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, F32]]:
        import numpy as np

        steps: asyncio.Queue[Any] = asyncio.Queue()
        args = {"ids": list(prompt_ids), "n": n, "forced": None if forced is None else list(forced)}
        running = asyncio.ensure_future(self.guest.call("trace", args, steps.put_nowait))
        running.add_done_callback(lambda _: steps.put_nowait(None))
        try:
            while (step := await steps.get()) is not None:
                yield step["id"], np.frombuffer(step["logits"], np.float32)
            running.result()
        finally:
            running.cancel()

    async def values(self, prompt_ids: Sequence[int], stop: str, name: str) -> F32:
        import numpy as np

        args = {"ids": list(prompt_ids), "stop": stop, "name": name}
        return np.frombuffer(await self.guest.call("values", args), np.float32)

    async def labels(self) -> list[str]:
        labels: list[str] = await self.guest.call("labels")
        return labels

    async def heap_bytes(self) -> int | None:
        return int((await self.guest.call("memory"))["wasm_bytes"])

    async def close(self) -> None:
        await self.guest.close()
