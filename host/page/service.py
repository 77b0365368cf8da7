"""The page's calls, answered in Pyodide: what worker.js hands on, done with pagelm.

Every public method of `Service` whose name is in METHODS is a method of the protocol; its keyword
arguments are the message's `args`. One call runs at a time; `cancel` and `memory` are answered meanwhile.
"""

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyodide_js
from js import Object
from pyodide.ffi import to_js

import pagelm
from pagelm import errors
from pagelm.device import Binding, Kernel, Step
from pagelm.device.default import open_gpu
from pagelm.host.page.loads import store, time_load
from pagelm.profile import profile

METHODS = frozenset(
    "info load time_loads encode decode generate trace values labels profile reset stats compile run_kernel "
    "close".split()
)
MAX_TEXT = 1000  # characters of a metadata string that the page gets


class Call:
    """One running call: its id, its way to tell the page things, its cancel flag."""

    def __init__(self, service: "Service", id: Any) -> None:
        self._service = service
        self.id = id
        self.cancel = pagelm.Cancel()

    def event(self, kind: str, **fields: Any) -> None:
        self._service.post(id=self.id, event={"kind": kind, **fields})


class Service:
    """`post(message)` is the worker's: it moves typed arrays instead of copying them."""

    version = pagelm.__version__

    def __init__(self, post: Any) -> None:
        self._post = post
        self._running: Call | None = None
        self._model: Any = None
        self._gpu: Any = None  # of the kernel methods; a model has its own

    def post(self, **message: Any) -> None:
        """Send a message. Arrays and bytes in it become typed arrays."""
        self._post(to_js(message, dict_converter=Object.fromEntries))

    async def call(self, id: Any, method: str, args: Any) -> None:
        """Do one call and post its answer; nothing is raised."""
        try:
            given = args.to_py() if hasattr(args, "to_py") else {}
            if method == "cancel":
                self.post(id=id, ok=self._cancel(**given))
            elif method == "memory":
                self.post(id=id, ok={"wasm_bytes": wasm_bytes()})
            elif method not in METHODS:
                raise ValueError(
                    f"no method '{method}'; there are cancel, memory, {', '.join(sorted(METHODS))}"
                )
            elif self._running is not None:
                raise errors.BusyError("another call is still running: wait for it or cancel it")
            else:
                self._running = Call(self, id)
                try:
                    self.post(id=id, ok=await getattr(self, method)(self._running, **given))
                finally:
                    self._running = None
        except Exception as e:  # the page shows it: there is nobody above to raise to
            error = {"type": type(e).__name__, "message": str(e)}
            if not isinstance(e, errors.PagelmError):
                error["traceback"] = traceback.format_exc()
            self.post(id=id, error=error)

    def _cancel(self, id: Any) -> bool:
        """Flip the flag of the call `id`. Returns whether it was running."""
        if self._running is None or self._running.id != id:
            return False
        self._running.cancel.cancel()
        return True

    # ---- the model ----

    async def info(self, call: Call) -> dict[str, Any]:
        return {"version": self.version, "wasm_bytes": wasm_bytes(), "loaded": self._model is not None}

    async def load(
        self,
        call: Call,
        *,
        url: str | Sequence[str] | None = None,
        file: Any = None,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        cache_type: str = "f32",
        tune: str = "cached",
        activations: str = "f32",
    ) -> dict[str, Any]:
        """Load from a URL, or from a File, Blob or bytes, or lists of them: the parts of a split model.

        The model before it is closed first.
        """
        await self.close(call)
        self._model = model = await pagelm.load(
            file if url is None else url,
            n_ctx=n_ctx,
            memory_budget=memory_budget,
            cache_type=cache_type,
            tune=tune,
            activations=activations,
            on_progress=lambda p: call.event("progress", phase=p.phase, done=p.done, total=p.total),
            cancel=call.cancel,
        )
        return {
            "name": model.gguf.name,
            "size": model.gguf.size,
            "n_parts": len(model.gguf.parts),
            "metadata": summary(model.gguf.metadata),
            "n_tensors": len(model.gguf.tensors),
            "n_vocab": model.tokenizer.n_vocab,
            "n_ctx": model.n_ctx,
            "plan": model.plan.as_dict(),
            "adapter": asdict(model.adapter),
            "tuning": model.tuning.as_dict(),
            "timing": model.timing.as_dict(),
            "memory_used": model.memory_used,
            "wasm_bytes": wasm_bytes(),
        }

    async def time_loads(
        self, call: Call, *, url: str, stored: bool, rounds: int, n_ctx: int | None = None
    ) -> None:
        """`rounds` events with the seconds of loads (loads.py), from the server or from a stored copy."""
        await self.close(call)
        source = await store(url) if stored else url
        for _ in range(rounds):
            call.event("load", **await time_load(source, n_ctx))
            if call.cancel.cancelled:
                raise errors.Cancelled("timing loads was cancelled")

    async def encode(
        self, call: Call, *, text: str, parse_special: bool = True, add_special: bool = False
    ) -> list[int]:
        tokenizer = self._loaded().tokenizer
        return list(tokenizer.encode(text, parse_special=parse_special, add_special=add_special))

    async def decode(self, call: Call, *, ids: Sequence[int]) -> str:
        return str(self._loaded().tokenizer.decode(list(ids)))

    async def generate(
        self,
        call: Call,
        *,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        ignore_eos: bool = False,
        append: bool = False,
        guess: bool = True,
    ) -> dict[str, Any]:
        model = self._loaded()
        generation = model.generate(
            prompt if isinstance(prompt, str) else list(prompt),
            max_tokens,
            ignore_eos=ignore_eos,
            append=append,
            guess=guess,
            emit=lambda piece: call.event("piece", text=piece),
            cancel=call.cancel,
        )
        text = await generation.run()
        return {
            "prompt_ids": list(generation.prompt_ids),
            "ids": list(generation.ids),
            "text": text,
            "stop_reason": generation.stop_reason,
            "n_past": model.position,
            **await self.stats(call),
        }

    async def trace(
        self, call: Call, *, ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> None:
        """`n` steps after the prompt `ids`, one event each with the best id and all logits."""
        steps = self._loaded().trace(list(ids), n, None if forced is None else list(forced))
        async for best, logits in steps:
            call.event("step", id=best, logits=logits)
            if call.cancel.cancelled:
                raise errors.Cancelled("the trace was cancelled")

    async def values(
        self,
        call: Call,
        *,
        ids: Sequence[int],
        stop: str | None = None,
        name: str | None = None,
        n: int | None = None,
    ) -> Any:
        """The last token's row after the step labelled `stop` (None: the whole pass): that step's result, or
        the activation `name`."""
        model = self._loaded()
        result = await model.prefill_logits(list(ids), stop=stop)
        return result[:n] if name is None else await model.peek(name, n)

    async def labels(self, call: Call) -> list[str]:
        return list(self._loaded().labels())

    async def profile(self, call: Call, *, ids: Sequence[int], tokens: int = 16) -> dict[str, Any]:
        """GPU time of every dispatch of a pass; see pagelm.profile."""
        return await profile(
            self._loaded(),
            list(ids),
            tokens=tokens,
            on_progress=lambda p: call.event("progress", phase=p.phase, done=p.done, total=p.total),
            cancel=call.cancel,
        )

    async def reset(self, call: Call) -> None:
        self._loaded().reset()

    async def stats(self, call: Call) -> dict[str, Any]:
        model = self._loaded()
        return {"timing": model.timing.as_dict(), "stats": model.stats.as_dict()}

    async def close(self, call: Call) -> None:
        """Give the model's memory back. The kernel methods keep their device."""
        model, self._model = self._model, None
        if model is not None:
            await model.close()

    def _loaded(self) -> Any:
        if self._model is None:
            raise errors.PagelmError("no model is loaded: call load first")
        return self._model

    # ---- any kernel ----

    async def compile(self, call: Call, **kernel: Any) -> dict[str, Any]:
        """Every message of the WGSL compiler, warnings too, and the error's text ("" when it compiled)."""
        _, messages, error = await (await self._device()).compile(kernel_from(**kernel))
        return {"messages": [asdict(m) for m in messages], "error": error}

    async def run_kernel(
        self, call: Call, *, kernel: Mapping[str, Any], buffers: Mapping[str, Any], grid: Sequence[int]
    ) -> dict[str, bytes]:
        """Dispatch once. `buffers`: by binding name, its bytes or a count of zero bytes.

        Returns the bytes of every read_write buffer afterwards.
        """
        gpu = await self._device()
        made = kernel_from(**kernel)
        pipeline = await gpu.pipeline(made)
        placed: dict[str, Any] = {}
        try:
            for binding in made.bindings:
                content = buffers[binding.name]
                data = b"" if isinstance(content, int) else bytes(content)
                placed[binding.name] = gpu.buffer(
                    content if isinstance(content, int) else len(data), binding.name
                )
                gpu.write(placed[binding.name], 0, data + bytes(-len(data) % 4))
            bindings = gpu.bind(pipeline, list(placed.values()))
            x, y, z = grid
            gpu.submit(gpu.record([Step(pipeline, bindings, (x, y, z), made.name)]))
            outputs = [b.name for b in made.bindings if b.access == "read_write"]
            return {name: await gpu.read(placed[name], 0, placed[name].nbytes) for name in outputs}
        finally:
            gpu.free(*placed.values())

    async def _device(self) -> Any:
        if self._gpu is None or self._gpu.lost:
            self._gpu = await open_gpu()
        return self._gpu


def kernel_from(
    *,
    name: str,
    source: str,
    bindings: Sequence[Mapping[str, str]],
    overrides: Mapping[str, float] | None = None,
) -> Kernel:
    """The Kernel of a message."""
    return Kernel(name, source, tuple(Binding(b["name"], b["access"]) for b in bindings), overrides or {})


def summary(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata for people: texts cut to MAX_TEXT characters, arrays as their length."""
    short: dict[str, Any] = {}
    for key, value in metadata.items():
        if isinstance(value, str):
            short[key] = value[:MAX_TEXT]
        elif isinstance(value, bool | int | float):
            short[key] = value
        else:
            short[key] = {"length": len(value)}
    return short


def wasm_bytes() -> int:
    """Size of Pyodide's memory. It only ever grows, so this is its peak as well."""
    return int(pyodide_js._module.HEAPU8.byteLength)
