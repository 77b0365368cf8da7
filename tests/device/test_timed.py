"""`Gpu.timed` natively: a submit with the GPU's clock around it; e2e/test_device.py has the browser."""

import asyncio
import time
from array import array
from types import SimpleNamespace

import pytest

from pagelm.device import MAX_TIMED, AdapterInfo, Binding, Kernel, Step, check_timed
from pagelm.device.native import NativeGpu
from pagelm.errors import DeviceError, LimitError

COUNT_UP = Kernel(
    "count_up",
    """override TIMES: u32;
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
  for (var i = 0u; i < TIMES; i++) {
    y[id.x] = y[id.x] * 5u + 1u;
  }
}
""",
    (Binding("y", "read_write"),),
    {},
)
N = 4096


@pytest.fixture
def gpu():
    device = asyncio.run(NativeGpu.open())
    yield device
    device.close()


async def steps_of(gpu, *times):
    """A buffer of zeros, and a step for each of `times`: so many rounds of y = 5 y + 1."""
    y = gpu.buffer(4 * N, "y")
    steps = []
    for n in times:
        kernel = Kernel(COUNT_UP.name, COUNT_UP.source, COUNT_UP.bindings, {"TIMES": n})
        pipeline = await gpu.pipeline(kernel)
        steps.append(Step(pipeline, gpu.bind(pipeline, [y]), (N // 64, 1, 1), "count_up"))
    return y, steps


def counted(times):
    y = 0
    for _ in range(times):
        y = (5 * y + 1) % 2**32
    return y


@pytest.mark.gpu
@pytest.mark.parametrize("whole", [False, True])
def test_the_work_is_done_as_by_submit_and_every_pass_has_its_times(gpu, whole):
    async def main():
        y, steps = await steps_of(gpu, 3, 4000, 3)
        recording = gpu.record(steps)
        first, second = gpu.timed(recording, whole=whole), gpu.timed(recording, whole=whole)
        return await first, await second, array("I", await gpu.read(y, 0, 4 * N))

    first, second, values = asyncio.run(main())
    assert set(values) == {counted(2 * 4006)}
    assert len(first) == len(second) == (1 if whole else 3)
    moments = [moment for span in (*first, *second) for moment in span]
    assert moments == sorted(moments)
    if not whole:
        assert all(middle[1] - middle[0] > small[1] - small[0] for small, middle, _ in (first, second))


@pytest.mark.gpu
def test_times_are_nanoseconds(gpu):
    """Held to the host's clock: not more than it, and not a tenth of it."""

    async def main():
        _, steps = await steps_of(gpu, 20_000)
        recording = gpu.record(steps * 4)
        await gpu.timed(recording, whole=True)  # compiles
        before = time.perf_counter_ns()
        ((start, end),) = await gpu.timed(recording, whole=True)
        return end - start, time.perf_counter_ns() - before

    gpu_ns, host_ns = asyncio.run(main())
    assert host_ns / 10 < gpu_ns < host_ns * 1.001  # the two clocks need not run quite alike


@pytest.mark.gpu
def test_ticks_become_nanoseconds(gpu, monkeypatch):
    """An adapter whose clock does not tick in nanoseconds."""
    from wgpu.backends import wgpu_native

    async def main():
        _, steps = await steps_of(gpu, 4000)
        recording = gpu.record(steps)
        await gpu.timed(recording)
        once = await gpu.timed(recording)
        monkeypatch.setattr(
            wgpu_native, "lib", SimpleNamespace(wgpuQueueGetTimestampPeriod=lambda queue: 1000.0)
        )
        return once, await gpu.timed(recording)

    (once,), (stretched,) = asyncio.run(main())
    assert all(moment % 1000 == 0 for moment in stretched)
    assert (stretched[1] - stretched[0]) > 20 * (once[1] - once[0])


@pytest.mark.gpu
def test_an_adapter_without_timestamps_is_named(gpu):
    gpu.timestamps = False
    with pytest.raises(DeviceError, match=r"the adapter .+ has no timestamp queries .*timestamp-query"):
        gpu.timed(gpu.record([]))


def test_more_passes_than_a_query_set_holds_are_refused():
    check_timed(True, AdapterInfo(), MAX_TIMED)
    with pytest.raises(LimitError, match="2049 passes were to be timed in one submit; allowed: 2048") as e:
        check_timed(True, AdapterInfo(), MAX_TIMED + 1)
    assert (e.value.needed, e.value.available) == (2049, 2048)
