"""The seam between the engine and the place it runs: two protocols and the records that cross it.

`Gpu` is implemented by `device.native` (wgpu-py), `device.browser` (navigator.gpu through Pyodide) and
by a fake in the tests; `Source` by the byte sources. Nothing above this package knows where it runs.
Buffers, pipelines, bindings and recordings are opaque to the guest.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..errors import DeviceError, LimitError

CHUNK_BYTES = 16 << 20  # weights travel in pieces of at most this many bytes
MAX_TIMED = 2048  # passes of one `timed` call: a query set has at most 4096 places, a pass takes two

Buffer = Any
Pipeline = Any
Bindings = Any
Recording = Any


@dataclass(frozen=True, slots=True)
class Limits:
    """What an adapter allows; field names are WebGPU's, in snake case. Bytes unless said otherwise."""

    max_compute_invocations_per_workgroup: int = 256
    max_compute_workgroup_size_x: int = 256
    max_compute_workgroup_storage_size: int = 16384
    max_compute_workgroups_per_dimension: int = 65535
    max_storage_buffers_per_shader_stage: int = 8
    max_storage_buffer_binding_size: int = 128 << 20
    max_buffer_size: int = 256 << 20
    memory_budget: int | None = None  # the caller's own cap on all GPU buffers together; None: no cap

    @classmethod
    def default(cls) -> "Limits":
        """WebGPU's guaranteed minimum. Source: https://www.w3.org/TR/webgpu/#limits"""
        return cls()

    def workgroup_size(self, most: int = 64) -> int:
        """`most`, or the largest power of two that lower limits allow (at least 1).

        A reduction needs 8 bytes of workgroup memory per invocation (value and index of argmax).
        """
        cap = min(
            most,
            self.max_compute_invocations_per_workgroup,
            self.max_compute_workgroup_size_x,
            self.max_compute_workgroup_storage_size // 8,
        )
        size = 1
        while size * 2 <= cap:
            size *= 2
        return size


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """Who computes: WebGPU's GPUAdapterInfo strings plus the backend ("webgpu", "Vulkan", "Metal", …)."""

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""
    backend: str = ""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.device or self.description or self.architecture or self.vendor or "this"


@dataclass(frozen=True, slots=True)
class Binding:
    """One `@group(0) @binding(i)` line of a kernel. `access` is "read", "read_write" or "uniform"."""

    name: str
    access: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """Composed WGSL with everything a device needs to make a pipeline. The entry point is `main`."""

    name: str
    source: str
    bindings: tuple[Binding, ...]
    overrides: Mapping[str, float]
    lines: tuple[tuple[str, int], ...] = ()  # composed line number - 1 -> (file, line)

    def origin(self, line: int) -> str:
        """`file:line` of a line of the composed source, counted from 1."""
        if 0 < line <= len(self.lines):
            return "{}:{}".format(*self.lines[line - 1])
        return f"{self.name}:{line}"


@dataclass(frozen=True, slots=True)
class Step:
    """One dispatch: pipeline, bind group, workgroups in x, y, z. `label` names it for people."""

    pipeline: Pipeline
    bindings: Bindings
    grid: tuple[int, int, int]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Where `nbytes` bytes from file position `at` go: into `buffer` from byte `offset` on."""

    buffer: Buffer
    offset: int
    at: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One read of at most CHUNK_BYTES from a source, and the pieces of it that are wanted."""

    at: int
    nbytes: int
    pieces: tuple[Piece, ...] = field(default=())


def check_timed(timestamps: bool, adapter: AdapterInfo, passes: int) -> None:
    """Raises: what `Gpu.timed` raises when it cannot time this many passes on this adapter."""
    if not timestamps:
        raise DeviceError(
            f"the adapter {adapter.name} ({adapter.backend}) has no timestamp queries (WebGPU's feature "
            "timestamp-query), without which kernels cannot be timed; choose another adapter or browser"
        )
    if passes > MAX_TIMED:
        raise LimitError(
            f"{passes} passes were to be timed in one submit; allowed: {MAX_TIMED}",
            needed=passes,
            available=MAX_TIMED,
        )


class Source(Protocol):
    """Random access to the bytes of one file."""

    name: str  # for people: path or URL
    size: int  # bytes

    async def read(self, at: int, nbytes: int) -> bytes:
        """Exactly `nbytes` bytes from position `at`. Raises SourceError when they are not to be had."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class NamedSource(Source, Protocol):
    """A source whose name, a path or a URL, opens it: so the other parts of a split model are found."""

    async def another(self, name: str) -> Source:
        """The file of this name, opened as this one was. Raises SourceError."""
        ...


@runtime_checkable
class RestingSource(Source, Protocol):
    """A source that holds a connection or a buffer for reads that follow each other."""

    def rest(self) -> None:
        """Give them back for now; the next read takes new ones."""
        ...


class Store(Protocol):
    """Keeps short texts from one run to the next, where it can: what is lost or refused is no error."""

    async def get(self, key: str) -> str | None:
        """What was kept under this key, or None."""
        ...

    async def set(self, key: str, text: str) -> None: ...


class Gpu(Protocol):
    """A WebGPU device, reduced to what running a recorded program needs."""

    limits: Limits
    adapter: AdapterInfo
    runtime: str  # what hands the device out: the browser's user agent, or "wgpu-py" and its version
    subgroups: bool  # whether shaders may `enable subgroups`
    subgroup_size: int  # lanes of the largest subgroup; 0 where that is not told
    timestamps: bool  # whether `timed` works
    shader_f16: bool  # whether shaders may `enable f16`
    memory_used: int  # bytes in live buffers
    buffers_created: int  # since the device was opened

    def buffer(self, nbytes: int, label: str) -> Buffer:
        """A zeroed storage buffer. Sizes are rounded up to 4 bytes. Raises LimitError past a limit."""
        ...

    def write(self, dst: Buffer, offset: int, data: bytes) -> None:
        """Small writes (state, tables), ordered with submits. Length and offset multiples of 4."""
        ...

    async def upload(self, source: Source, chunk: Chunk) -> None:
        """Move one chunk from the source into its buffers; in the browser not through Python objects.

        Returns when the chunk has been read and all but its last few MiB have been taken over by the device,
        so that staging memory stays bounded; what goes wrong after that, the next call or `idle` tells.
        A piece whose length is no multiple of 4 is completed with zero bytes.
        """
        ...

    async def pipeline(self, kernel: Kernel) -> Pipeline:
        """Compile. Raises ShaderError naming the real file and line."""
        ...

    def bind(self, pipeline: Pipeline, buffers: Sequence[Buffer]) -> Bindings:
        """A bind group of whole buffers in the kernel's binding order."""
        ...

    def record(self, steps: Sequence[Step]) -> Recording:
        """Pack dispatches so that `submit` replays them without building anything."""
        ...

    def submit(self, recording: Recording, read: tuple[Buffer, int] | None = None) -> Awaitable[int] | None:
        """Replay in one compute pass and one submit.

        With `read` = (buffer, byte offset), one u32 is copied to a read-back slot in the same submit and
        its mapping is requested at once; the awaitable gives the value. At most three may be pending.
        """
        ...

    def timed(self, recording: Recording, *, whole: bool = False) -> Awaitable[list[tuple[int, int]]]:
        """Replay in one submit, as `submit` does, with the GPU's clock read before and after every pass.

        Every step is a pass of its own, which keeps it from overlapping with its neighbours; with `whole` all
        steps are one pass, as `submit` has it. The awaitable gives (start, end) of each pass in nanoseconds
        from a moment that all calls on this device share. A browser may round them: Chromium does, unless it
        was started with --enable-unsafe-webgpu.

        Raises (at once): DeviceError where `timestamps` is False; LimitError for more than MAX_TIMED passes.
        """
        ...

    async def read(self, src: Buffer, offset: int, nbytes: int) -> bytes:
        """Copy bytes back after all submitted work. For logits and peeks, not for the token loop."""
        ...

    async def idle(self) -> None:
        """Wait until everything submitted is done. Raises DeviceError when the device is lost."""
        ...

    def free(self, *buffers: Buffer) -> None: ...

    def close(self) -> None: ...
