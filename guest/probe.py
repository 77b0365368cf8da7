"""What an adapter can do at best: bytes that it copies, multiplications and additions, a second.

Two kernels of no other use (shaders/probe_copy.wgsl, probe_fma.wgsl), in a few shapes; the best time counts.
They are yardsticks, not ceilings: a kernel that only reads may pass the copy.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from .device import Buffer, Gpu, Kernel, Recording, Step
from .errors import LimitError
from .kernels import Variant, compose

COPY_BYTES = 128 << 20  # of each of two buffers: more than caches hold
LEAST_COPY_BYTES = 1 << 20
COPY_SHAPES = ((8, 64), (64, 1), (64, 4), (256, 4))  # workgroup size, vectors that an invocation copies
FMA_INVOCATIONS = 1 << 18  # more than any GPU runs at a time
FMA_SIZES = (64, 256)  # workgroup sizes
FMA_ROUND = 2 * 8 * 16  # operations of a round in an invocation: 8 chains of 16 links
MAX_ROUNDS = 1 << 16
REPEATS = 4
LONG_NS = 5_000_000  # a time that a clock's rounding does not spoil


@dataclass(frozen=True, slots=True)
class Peaks:
    """The best that was measured: bytes read and written, and floating-point operations, a second."""

    copy_bytes_s: float
    fma_flops_s: float


async def peaks(gpu: Gpu) -> Peaks:
    """Measure both: a second or two on a software adapter. No memory stays taken.

    Raises: DeviceError where the adapter has no timestamp queries; LimitError without memory for it.
    """
    return Peaks(await _copy_peak(gpu), await _fma_peak(gpu))


async def _copy_peak(gpu: Gpu) -> float:
    size = min(COPY_BYTES, gpu.limits.max_storage_buffer_binding_size, gpu.limits.max_buffer_size) & ~15
    while True:
        buffers: list[Buffer] = []
        try:
            for name in ("probe x", "probe y"):
                buffers.append(gpu.buffer(size, name))
            best = math.inf
            for wg, each in COPY_SHAPES:
                if _fits(gpu, wg):
                    kernel = compose(Variant("probe_copy"), {"WG": wg, "EACH": each})
                    recording = await _recorded(gpu, kernel, buffers, size // 16 // each, wg)
                    best = min(best, await _best_ns(gpu, recording))
            return 2e9 * size / best
        except LimitError:  # the model may have left little
            if size <= LEAST_COPY_BYTES:
                raise
            size = size // 2 & ~15
        finally:
            gpu.free(*buffers)


async def _fma_peak(gpu: Gpu) -> float:
    buffers = [gpu.buffer(16, "probe x")]
    try:
        buffers.append(gpu.buffer(32 * FMA_INVOCATIONS, "probe y"))
        best, rounds = 0.0, 4
        for wg in FMA_SIZES:
            if not _fits(gpu, wg):
                continue
            kernel = compose(Variant("probe_fma"), {"WG": wg})
            recording = await _recorded(gpu, kernel, buffers, FMA_INVOCATIONS, wg)
            while True:
                gpu.write(buffers[0], 0, array("f", [0.5, 1, rounds, 0]).tobytes())
                ns = await _best_ns(gpu, recording)
                if ns >= LONG_NS or rounds >= MAX_ROUNDS:
                    break
                rounds *= 4
            best = max(best, 1e9 * FMA_ROUND * rounds * FMA_INVOCATIONS / ns)
        return best
    finally:
        gpu.free(*buffers)


def _fits(gpu: Gpu, wg: int) -> bool:
    """Whether the adapter has workgroups of this size; of the smallest one here all but the oddest have."""
    limits = gpu.limits
    return wg <= min(limits.max_compute_invocations_per_workgroup, limits.max_compute_workgroup_size_x)


async def _recorded(
    gpu: Gpu, kernel: Kernel, buffers: Sequence[Buffer], invocations: int, wg: int
) -> Recording:
    pipeline = await gpu.pipeline(kernel)
    n = math.ceil(invocations / wg)
    y = math.ceil(n / gpu.limits.max_compute_workgroups_per_dimension)
    return gpu.record([Step(pipeline, gpu.bind(pipeline, buffers), (math.ceil(n / y), y, 1), kernel.name)])


async def _best_ns(gpu: Gpu, recording: Recording) -> int:
    """The shortest of a few runs, at least 1: the first one compiles on some adapters."""
    times = []
    for _ in range(REPEATS):
        ((start, end),) = await gpu.timed(recording)
        times.append(end - start)
    return max(1, min(times))
