"""`Gpu` over wgpu-py: the same engine on a desktop adapter (Vulkan, Metal, D3D12), software ones included."""

import os
import re
from array import array
from collections.abc import Awaitable, Generator, Sequence
from dataclasses import fields
from typing import Any

from ..errors import DeviceError, LimitError, ShaderError
from . import (
    AdapterInfo,
    Bindings,
    Buffer,
    Chunk,
    Kernel,
    Limits,
    Pipeline,
    Recording,
    Source,
    Step,
    check_timed,
)

FEATURES = ("subgroup", "timestamp-query", "shader-f16")  # asked for where the adapter has them
READ_SLOTS = 4  # read-backs that may be pending at once
_WGSL_LINE = re.compile(r"wgsl:(\d+):(\d+)")


class NativeGpu:
    """A wgpu-py device. Make one with `await NativeGpu.open()`."""

    def __init__(self, device: Any, adapter: Any, memory_budget: int | None) -> None:
        import wgpu

        self._wgpu = wgpu
        self._device = device
        self._queue = device.queue
        names = {f.name for f in fields(Limits)} - {"memory_budget"}
        found = {key.replace("-", "_"): value for key, value in device.limits.items()}
        self.limits = Limits(**{n: int(found[n]) for n in names if n in found}, memory_budget=memory_budget)
        info = adapter.info
        self.adapter = AdapterInfo(
            vendor=str(info.get("vendor", "")),
            architecture=str(info.get("architecture", "")),
            device=str(info.get("device", "")),
            description=str(info.get("description", "")),
            backend=str(info.get("backend_type", "")),
        )
        self.runtime = f"wgpu-py {wgpu.__version__}"
        self.subgroups = "subgroup" in device.features
        self.subgroup_size = int(device.limits.get("max-subgroup-size", 0))
        self.timestamps = "timestamp-query" in device.features
        self.shader_f16 = "shader-f16" in device.features
        self.memory_used = 0
        self.buffers_created = 0
        usage = wgpu.BufferUsage
        self._usage = usage.STORAGE | usage.UNIFORM | usage.COPY_DST | usage.COPY_SRC
        self._slots = [
            device.create_buffer(size=4, usage=usage.COPY_DST | usage.MAP_READ) for _ in range(READ_SLOTS)
        ]
        self._turn = 0

    @classmethod
    async def open(cls, *, memory_budget: int | None = None) -> "NativeGpu":
        """The high-performance adapter; `PAGELM_NATIVE_ADAPTER` (a part of its name) chooses another.

        Raises: DeviceError when wgpu-py or an adapter is missing.
        """
        try:
            import wgpu
        except ImportError as e:
            raise DeviceError("the native device needs wgpu-py: pip install 'pagelm[native]'") from e
        headless = "XDG_RUNTIME_DIR" not in os.environ
        if headless:  # else Mesa's loader complains
            os.environ["XDG_RUNTIME_DIR"] = "/nonexistent"
        try:
            return cls._open(wgpu, memory_budget)
        finally:
            if headless:
                del os.environ["XDG_RUNTIME_DIR"]

    @classmethod
    def _open(cls, wgpu: Any, memory_budget: int | None) -> "NativeGpu":
        wanted = os.environ.get("PAGELM_NATIVE_ADAPTER")
        if wanted:
            adapters = wgpu.gpu.enumerate_adapters_sync()
            matching = [a for a in adapters if wanted.lower() in a.summary.lower()]
            if not matching:
                found = "; ".join(a.summary for a in adapters) or "none"
                raise DeviceError(f"PAGELM_NATIVE_ADAPTER={wanted} matches no adapter; found: {found}")
            adapter = matching[0]
        else:
            try:
                adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
            except RuntimeError as e:
                raise DeviceError(
                    f"no WebGPU adapter ({e}); install a Vulkan driver"
                    " (Debian: mesa-vulkan-drivers for a software one)"
                ) from e
        names = [f.name.replace("_", "-") for f in fields(Limits) if f.name != "memory_budget"]
        required = {name: adapter.limits[name] for name in names if name in adapter.limits}
        features = [name for name in FEATURES if name in adapter.features]
        device = adapter.request_device_sync(required_limits=required, required_features=features)
        return cls(device, adapter, memory_budget)

    def buffer(self, nbytes: int, label: str) -> Buffer:
        size = max(4, (nbytes + 3) & ~3)
        if size > self.limits.max_buffer_size:
            raise LimitError(
                f"{label} needs a buffer of {size} bytes; this adapter allows {self.limits.max_buffer_size}",
                needed=size,
                available=self.limits.max_buffer_size,
            )
        try:
            buffer = self._device.create_buffer(label=label, size=size, usage=self._usage)
        except self._wgpu.GPUOutOfMemoryError as e:
            raise LimitError(f"out of GPU memory at {label} ({size} bytes): {e}", needed=size) from e
        self.memory_used += size
        self.buffers_created += 1
        return buffer

    def write(self, dst: Buffer, offset: int, data: bytes) -> None:
        self._queue.write_buffer(dst, offset, data)

    async def upload(self, source: Source, chunk: Chunk) -> None:
        data = memoryview(await source.read(chunk.at, chunk.nbytes))
        for piece in chunk.pieces:
            part = data[piece.at - chunk.at : piece.at - chunk.at + piece.nbytes]
            whole = piece.nbytes & ~3
            if whole:
                self._queue.write_buffer(piece.buffer, piece.offset, part[:whole])
            if whole < piece.nbytes:
                self._queue.write_buffer(
                    piece.buffer, piece.offset + whole, bytes(part[whole:]).ljust(4, b"\0")
                )
        self._queue.submit([])
        await self.idle()

    async def pipeline(self, kernel: Kernel) -> Pipeline:
        kinds = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}
        layout = self._device.create_bind_group_layout(
            entries=[
                {
                    "binding": i,
                    "visibility": self._wgpu.ShaderStage.COMPUTE,
                    "buffer": {"type": kinds[binding.access]},
                }
                for i, binding in enumerate(kernel.bindings)
            ]
        )
        try:
            pipeline = self._device.create_compute_pipeline(
                label=kernel.name,
                layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={
                    "module": self._device.create_shader_module(
                        label=kernel.name, code=for_naga(kernel.source)
                    ),
                    "entry_point": "main",
                    "constants": dict(kernel.overrides),
                },
            )
        except self._wgpu.GPUError as e:
            text = str(e)
            found = _WGSL_LINE.search(text)
            where = kernel.origin(int(found.group(1))) if found else kernel.name
            raise ShaderError(f"{where} {' '.join(text.split())} (adapter: {self.adapter.device})") from e
        return pipeline, layout

    def bind(self, pipeline: Pipeline, buffers: Sequence[Buffer]) -> Bindings:
        entries = [
            {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
            for i, b in enumerate(buffers)
        ]
        return self._device.create_bind_group(layout=pipeline[1], entries=entries)

    def record(self, steps: Sequence[Step]) -> Recording:
        return [(step.pipeline[0], step.bindings, step.grid) for step in steps]

    def submit(self, recording: Recording, read: tuple[Buffer, int] | None = None) -> Awaitable[int] | None:
        encoder = self._device.create_command_encoder()
        _encode(encoder.begin_compute_pass(), recording)
        if read is None:
            self._queue.submit([encoder.finish()])
            return None
        slot = self._slots[self._turn]
        self._turn = (self._turn + 1) % READ_SLOTS
        encoder.copy_buffer_to_buffer(read[0], read[1], slot, 0, 4)
        self._queue.submit([encoder.finish()])
        return _Value(slot, slot.map_async("READ"))

    def timed(self, recording: Recording, *, whole: bool = False) -> Awaitable[list[tuple[int, int]]]:
        passes = [recording] if whole else [[step] for step in recording]
        check_timed(self.timestamps, self.adapter, len(passes))
        device, usage, count = self._device, self._wgpu.BufferUsage, 2 * len(passes)
        queries = device.create_query_set(type="timestamp", count=count)
        resolved = device.create_buffer(size=8 * count, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)
        staging = device.create_buffer(size=8 * count, usage=usage.COPY_DST | usage.MAP_READ)
        encoder = device.create_command_encoder()
        for i, steps in enumerate(passes):
            writes = {
                "query_set": queries,
                "beginning_of_pass_write_index": 2 * i,
                "end_of_pass_write_index": 2 * i + 1,
            }
            _encode(encoder.begin_compute_pass(timestamp_writes=writes), steps)
        encoder.resolve_query_set(queries, 0, count, resolved, 0)
        encoder.copy_buffer_to_buffer(resolved, 0, staging, 0, 8 * count)
        self._queue.submit([encoder.finish()])
        return _Spans(staging, staging.map_async("READ"), _tick_ns(self._queue))

    async def read(self, src: Buffer, offset: int, nbytes: int) -> bytes:
        return bytes(self._queue.read_buffer(src, offset, nbytes))

    async def idle(self) -> None:
        # on_submitted_work_done_sync raises in wgpu-py 0.32; a read-back of 4 bytes waits as well
        encoder = self._device.create_command_encoder()
        encoder.clear_buffer(self._slots[self._turn], 0, 4)
        self._queue.submit([encoder.finish()])
        slot = self._slots[self._turn]
        slot.map_sync("READ")
        slot.unmap()

    def free(self, *buffers: Buffer) -> None:
        for buffer in buffers:
            self.memory_used -= buffer.size
            buffer.destroy()

    def close(self) -> None:
        self._device.destroy()


def for_naga(source: str) -> str:
    """WGSL without the two lines that naga does not know yet; it has subgroup operations all the same."""
    return source.replace("enable subgroups;", "").replace("diagnostic(off, subgroup_uniformity);", "")


def _encode(compute: Any, recording: Recording) -> None:
    """All steps of a recording, in the pass that has been begun."""
    for pipeline, bindings, grid in recording:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, bindings)
        compute.dispatch_workgroups(*grid)
    compute.end()


def _tick_ns(queue: Any) -> float:
    """Nanoseconds of a tick of the clock: wgpu-native hands out ticks, where WebGPU has nanoseconds."""
    from wgpu.backends.wgpu_native import lib

    return float(lib.wgpuQueueGetTimestampPeriod(queue._internal))


class _Spans:
    """The times of one submit's passes, on their way."""

    __slots__ = ("_buffer", "_mapping", "_tick_ns")

    def __init__(self, buffer: Any, mapping: Any, tick_ns: float) -> None:
        self._buffer = buffer
        self._mapping = mapping
        self._tick_ns = tick_ns

    def __await__(self) -> Generator[Any, None, list[tuple[int, int]]]:
        return self._get().__await__()

    async def _get(self) -> list[tuple[int, int]]:
        self._mapping.sync_wait()
        ticks = array("Q", bytes(self._buffer.read_mapped()))
        self._buffer.destroy()
        # whole nanoseconds: a period of 1 must not cost the low bits of a large number
        ns = [round(t * self._tick_ns) if self._tick_ns != 1 else t for t in ticks]
        return list(zip(ns[::2], ns[1::2], strict=True))


class _Value:
    """The u32 of one submit, on its way. Nothing is left behind when nobody awaits it but a mapped slot."""

    __slots__ = ("_mapping", "_slot")

    def __init__(self, slot: Any, mapping: Any) -> None:
        self._slot = slot
        self._mapping = mapping

    def __await__(self) -> Generator[Any, None, int]:
        return self._get().__await__()

    async def _get(self) -> int:
        self._mapping.sync_wait()
        value = int.from_bytes(self._slot.read_mapped(0, 4), "little")
        self._slot.unmap()
        return value
