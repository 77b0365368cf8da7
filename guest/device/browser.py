"""`Gpu` over the browser's WebGPU, through Pyodide. The JavaScript half is replay.js beside this file.

Handles that the guest gets (buffers, pipelines, bind groups, recordings) hold the JavaScript objects, so
dropping a handle drops the object. A submit is one call with two objects and an integer.
"""

from array import array
from collections.abc import Awaitable, Generator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from js import Object
from pyodide.code import run_js
from pyodide.ffi import JsException, to_js

from ..errors import DeviceError, LimitError, PagelmError, ShaderError, SourceError
from . import AdapterInfo, Binding, Chunk, Kernel, Limits, Source, Step, check_timed

WRITE_BYTES = 1 << 20  # `write` copies at most this much into JavaScript at a time
MAX_UNIFORM_BYTES = 64 << 10  # WebGPU's default maxUniformBufferBindingSize


@dataclass(slots=True, eq=False)
class BrowserBuffer:
    """A GPU buffer. `js` is the GPUBuffer; None once freed."""

    js: Any
    nbytes: int
    label: str


@dataclass(frozen=True, slots=True, eq=False)
class BrowserPipeline:
    """A compute pipeline with its explicit bind group layout."""

    js: Any
    layout: Any
    name: str
    bindings: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What the WGSL compiler had to say. `type` is "error", "warning" or "info"; counts are from 1."""

    type: str
    line: int
    column: int
    text: str


class BrowserGpu:
    """See `device.Gpu`. Made by `await BrowserGpu.open()`; needs a page or worker with WebGPU."""

    def __init__(self, js: Any, memory_budget: int | None = None) -> None:
        self._js = js
        self._submit = js.submit  # bound once: a lookup through the bridge costs about a microsecond
        names = [f.name for f in fields(Limits) if f.name != "memory_budget"]
        found = {name: int(getattr(js.limits, _camel(name))) for name in names}
        self.limits = Limits(**found, memory_budget=memory_budget)
        info = {
            k: str(getattr(js.info, k, "") or "") for k in ("vendor", "architecture", "device", "description")
        }
        self.adapter = AdapterInfo(**info, backend="webgpu")
        self.runtime = str(js.runtime)
        self.subgroups = bool(js.subgroups)
        self.subgroup_size = int(js.subgroupSize)
        self.timestamps = bool(js.timestamps)
        self.shader_f16 = bool(js.shaderF16)
        self.memory_used = 0
        self._closed = False
        self.buffers_created = 0

    @classmethod
    async def open(cls, *, memory_budget: int | None = None) -> "BrowserGpu":
        """A device of the fastest adapter with all of its limits.

        `memory_budget` caps the bytes of all buffers together. Raises DeviceError when the browser has no
        WebGPU or no adapter, saying what to do.
        """
        try:
            return cls(await script("replay.js")(), memory_budget)
        except JsException as e:
            raise error_from(e) from None

    @property
    def lost(self) -> str:
        """Why the device is gone, or "" while it works."""
        return str(self._js.lost)

    def buffer(self, nbytes: int, label: str) -> BrowserBuffer:
        size = max(4, -(-nbytes // 4) * 4)
        if size > self.limits.max_buffer_size:
            allowed = self.limits.max_buffer_size
            raise LimitError(
                f"{label} needs a buffer of {size} bytes; this adapter allows {allowed}",
                needed=size,
                available=allowed,
            )
        budget = self.limits.memory_budget
        if budget is not None and self.memory_used + size > budget:
            raise LimitError(
                f"{label} needs {size} bytes of GPU memory; of the budget of {budget} bytes "
                f"{budget - self.memory_used} are left",
                needed=size,
                available=budget - self.memory_used,
            )
        try:
            js = self._js.buffer(size, label, size <= MAX_UNIFORM_BYTES)
        except JsException as e:
            raise error_from(e) from None
        self.memory_used += size
        self.buffers_created += 1
        return BrowserBuffer(js, size, label)

    def write(self, dst: BrowserBuffer, offset: int, data: bytes) -> None:
        view = memoryview(data).cast("B")
        assert offset % 4 == 0 and len(view) % 4 == 0, (dst.label, offset, len(view))
        assert 0 <= offset <= dst.nbytes - len(view), (dst.label, offset, len(view), dst.nbytes)
        try:
            for at in range(0, len(view), WRITE_BYTES):
                self._js.write(dst.js, offset + at, to_js(view[at : at + WRITE_BYTES]))
        except JsException as e:
            raise error_from(e) from None

    async def upload(self, source: Source, chunk: Chunk) -> None:
        numbers: list[int] = []
        for p in chunk.pieces:
            assert chunk.at <= p.at and p.at + p.nbytes <= chunk.at + chunk.nbytes, p
            assert p.offset % 4 == 0 and 0 <= p.offset <= p.buffer.nbytes - p.nbytes, p
            numbers += p.offset, p.at, p.nbytes
        pieces = to_js([p.buffer.js for p in chunk.pieces]), to_js(numbers)
        reader = getattr(source, "reader", None)
        try:
            if reader is not None:
                await self._js.upload(reader, chunk.at, chunk.nbytes, *pieces)
            else:  # bytes that Python holds anyway
                self._js.spread(to_js(await source.read(chunk.at, chunk.nbytes)), chunk.at, *pieces)
                await self._js.drain()
        except JsException as e:
            raise error_from(e) from None

    async def compile(self, kernel: Kernel) -> tuple[BrowserPipeline | None, list[Message], str]:
        """Compile and tell everything: the pipeline (None on an error), all messages, the error's text."""
        constants = to_js(dict(kernel.overrides), dict_converter=Object.fromEntries)
        accesses = to_js([b.access for b in kernel.bindings])
        try:
            made = await self._js.pipeline(kernel.name, kernel.source, accesses, constants)
        except JsException as e:
            raise error_from(e) from None
        messages = [Message(m[0], m[1], m[2], m[3]) for m in made.messages.to_py()]
        error = str(made.error)
        if error or any(m.type == "error" for m in messages):
            return None, messages, error
        return BrowserPipeline(made.pipeline, made.layout, kernel.name, kernel.bindings), messages, ""

    async def pipeline(self, kernel: Kernel) -> BrowserPipeline:
        pipeline, messages, error = await self.compile(kernel)
        if pipeline is None:
            texts = [f"{kernel.origin(m.line)}:{m.column} {m.text}" for m in messages if m.type == "error"]
            if not texts:  # an error of the pipeline as a whole
                texts = [f"{kernel.lines[0][0] if kernel.lines else kernel.name}: {error}"]
            who = f"adapter: {self.adapter.vendor}/{self.adapter.architecture}"
            raise ShaderError("; ".join(texts) + f" ({who})")
        return pipeline

    def bind(self, pipeline: BrowserPipeline, buffers: Sequence[BrowserBuffer]) -> Any:
        assert len(buffers) == len(pipeline.bindings), (pipeline.name, [b.label for b in buffers])
        for binding, b in zip(pipeline.bindings, buffers, strict=True):
            allowed = (
                MAX_UNIFORM_BYTES
                if binding.access == "uniform"
                else self.limits.max_storage_buffer_binding_size
            )
            if b.nbytes > allowed:
                raise LimitError(
                    f"{b.label} needs one binding of {b.nbytes} bytes; this adapter allows {allowed}",
                    needed=b.nbytes,
                    available=allowed,
                )
        try:
            return self._js.bind(pipeline.name, pipeline.layout, to_js([b.js for b in buffers]))
        except JsException as e:
            raise error_from(e) from None

    def record(self, steps: Sequence[Step]) -> Any:
        allowed = self.limits.max_compute_workgroups_per_dimension
        words = array("I")
        pipelines = _Table()
        bindings = _Table()
        for step in steps:
            if max(step.grid) > allowed:
                raise LimitError(
                    f"{step.label or step.pipeline.name} needs {step.grid} workgroups; this adapter allows "
                    f"{allowed} in one dimension",
                    needed=max(step.grid),
                    available=allowed,
                )
            words.extend((pipelines.index(step.pipeline), bindings.index(step.bindings), *step.grid))
        return self._js.record(to_js(words), to_js([p.js for p in pipelines.rows]), to_js(bindings.rows))

    def submit(self, recording: Any, read: tuple[BrowserBuffer, int] | None = None) -> Awaitable[int] | None:
        try:
            if read is None:
                self._submit(recording)
                return None
            return _Value(self._submit(recording, read[0].js, read[1]))
        except JsException as e:
            raise error_from(e) from None

    def timed(self, recording: Any, *, whole: bool = False) -> Awaitable[list[tuple[int, int]]]:
        check_timed(self.timestamps, self.adapter, 1 if whole else int(recording.steps))
        try:
            return _Spans(self._js.timed(recording, whole))
        except JsException as e:
            raise error_from(e) from None

    async def read(self, src: BrowserBuffer, offset: int, nbytes: int) -> bytes:
        assert 0 <= offset <= src.nbytes - nbytes, (src.label, offset, nbytes, src.nbytes)
        start = offset & ~3  # copies go by whole words
        size = -(-(offset + nbytes - start) // 4) * 4
        if size == 0:
            return b""
        try:
            data: bytes = (await self._js.read(src.js, start, size)).to_bytes()
        except JsException as e:
            raise error_from(e) from None
        return data[offset - start : offset - start + nbytes]

    async def idle(self) -> None:
        try:
            await self._js.idle()
        except JsException as e:
            raise error_from(e) from None

    def free(self, *buffers: BrowserBuffer) -> None:
        live = [b for b in buffers if b.js is not None]
        self._js.free(to_js([b.js for b in live]))
        for b in live:
            b.js = None
            if not self._closed:
                self.memory_used -= b.nbytes

    def close(self) -> None:
        """Give everything back to the browser; any later call raises DeviceError."""
        self._js.close()
        self.memory_used = 0
        self._closed = True


class _Value:
    """The u32 of one submit. A promise under the hood: no task or coroutine is made per token."""

    __slots__ = ("_promise",)

    def __init__(self, promise: Any) -> None:
        self._promise = promise

    def __await__(self) -> Generator[Any, Any, int]:
        try:
            value: int = yield from self._promise.__await__()
        except JsException as e:
            raise error_from(e) from None
        return value


class _Spans:
    """The times of one submit's passes, on their way."""

    __slots__ = ("_promise",)

    def __init__(self, promise: Any) -> None:
        self._promise = promise

    def __await__(self) -> Generator[Any, Any, list[tuple[int, int]]]:
        try:
            ns = array("Q", (yield from self._promise.__await__()).to_bytes())
        except JsException as e:
            raise error_from(e) from None
        return list(zip(ns[::2], ns[1::2], strict=True))


class _Table:
    """Objects in the order of their first use, and their places in it."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[int, int] = {}

    def index(self, row: Any) -> int:
        place = self._places.setdefault(id(row), len(self.rows))
        if place == len(self.rows):
            self.rows.append(row)
        return place


@cache
def script(name: str) -> Any:
    """The value of a JavaScript file of this package, evaluated once."""
    return run_js(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def error_from(e: Any) -> PagelmError:
    """The pagelm error for an exception out of our JavaScript, which names the class it wants."""
    classes: dict[str, type[PagelmError]] = {"SourceError": SourceError, "LimitError": LimitError}
    return classes.get(e.name, DeviceError)(str(e.message))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
