"""A `Gpu` without a GPU: keeps buffers as bytes, counts everything, and answers with scripted tokens."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagelm.device import AdapterInfo, Chunk, Kernel, Limits, Source, Step, check_timed


@dataclass(eq=False)
class FakeBuffer:
    size: int
    label: str
    data: bytearray = field(default_factory=bytearray)
    freed: bool = False


class FakeGpu:
    """`tokens(i)` is the i-th token that a submit brings: the truth that guesses are held to as well.

    `log` holds what happened, in order.
    """

    def __init__(
        self, limits: Limits | None = None, tokens: Callable[[int], int] = lambda i: 36 + i % 60
    ) -> None:
        self.limits = limits or Limits.default()
        self.adapter = AdapterInfo(vendor="fake", backend="none")
        self.runtime = "fake 1"
        self.subgroups = False
        self.subgroup_size = 0
        self.timestamps = True
        self.shader_f16 = False
        self.clock_ns = 1000
        self.memory_used = 0
        self.buffers_created = 0
        self.buffers: list[FakeBuffer] = []
        self.kernels: list[Kernel] = []
        self.chunks: list[Chunk] = []
        self.log: list[str] = []
        self.verified: list[list[int]] = []  # every pass over guesses: n_past, the last token, then they
        self.closed = False
        self.on_submit: Callable[[], None] = lambda: None
        self.on_upload: Callable[[], None] = lambda: None
        self._tokens = tokens
        self._reads = 0

    def buffer(self, nbytes: int, label: str) -> FakeBuffer:
        size = (nbytes + 3) & ~3
        self.memory_used += size
        self.buffers_created += 1
        self.buffers.append(FakeBuffer(size, label, bytearray(size)))
        return self.buffers[-1]

    def write(self, dst: FakeBuffer, offset: int, data: bytes) -> None:
        assert offset % 4 == 0 and len(data) % 4 == 0 and offset + len(data) <= dst.size
        dst.data[offset : offset + len(data)] = data

    async def upload(self, source: Source, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        data = await source.read(chunk.at, chunk.nbytes)
        for piece in chunk.pieces:
            assert piece.offset % 4 == 0
            part = data[piece.at - chunk.at : piece.at - chunk.at + piece.nbytes]
            assert len(part) == piece.nbytes
            piece.buffer.data[piece.offset : piece.offset + len(part)] = part
        self.on_upload()

    async def pipeline(self, kernel: Kernel) -> Kernel:
        self.kernels.append(kernel)
        return kernel

    def bind(self, pipeline: Kernel, buffers: Sequence[FakeBuffer]) -> tuple[FakeBuffer, ...]:
        assert len(buffers) == len(pipeline.bindings)
        storage = sum(b.access != "uniform" for b in pipeline.bindings)
        assert storage <= self.limits.max_storage_buffers_per_shader_stage
        assert all(b.size <= self.limits.max_storage_buffer_binding_size for b in buffers)
        return tuple(buffers)

    def record(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        for step in steps:
            assert all(1 <= n <= self.limits.max_compute_workgroups_per_dimension for n in step.grid), step
        return tuple(steps)

    def submit(self, recording: Sequence[Step], read: tuple[FakeBuffer, int] | None = None):
        assert not any(b.freed for step in recording for b in step.bindings)
        self.log.append("submit+read" if read else "submit")
        self.on_submit()
        if read is None:
            return None
        if recording[-1].label == "accept":
            return self._verdict(read)
        self._reads += 1
        return FakeValue(self, self._reads - 1)

    def timed(self, recording: Sequence[Step], *, whole: bool = False):
        """Step i takes 1000 + i ns; 10 ns lie between two passes."""
        check_timed(self.timestamps, self.adapter, 1 if whole else len(recording))
        self.submit(recording)
        took = [1000 + i for i in range(len(recording))]
        spans = []
        for ns in [sum(took)] if whole else took:
            spans.append((self.clock_ns, self.clock_ns + ns))
            self.clock_ns += ns + 10
        return FakeSpans(spans)

    def _verdict(self, read: tuple[FakeBuffer, int]) -> "FakeVerdict":
        """What shaders/accept.wgsl says of the guesses that the state holds."""
        state, offset = read
        n_past, n_tokens, _, _, *ids = memoryview(state.data).cast("I")
        assert offset == 20 and 2 <= n_tokens <= 4
        self.verified.append([n_past, *ids[:n_tokens]])
        right, first = 0, self._reads
        while right + 1 < n_tokens and ids[right + 1] == self._tokens(first + right):
            right += 1
        self._reads += right + 1
        return FakeVerdict(self, first + right, right)

    async def read(self, src: FakeBuffer, offset: int, nbytes: int) -> bytes:
        return bytes(src.data[offset : offset + nbytes])

    async def idle(self) -> None:
        await asyncio.sleep(0)

    def free(self, *buffers: FakeBuffer) -> None:
        for buffer in buffers:
            assert not buffer.freed
            buffer.freed = True
            self.memory_used -= buffer.size

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeSpans:
    spans: list[tuple[int, int]]

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return self.spans


@dataclass
class FakeValue:
    gpu: FakeGpu
    i: int

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        self.gpu.log.append(f"value {self.i}")
        return self.gpu._tokens(self.i)


@dataclass
class FakeVerdict(FakeValue):
    right: int

    def __await__(self):
        token = yield from super().__await__()
        return self.right << 28 | token % (1 << 28)
