"""Which kernels an adapter gets: how invocations share what they load, and how wide a workgroup is."""

from array import array
from dataclasses import dataclass

from .device import Gpu, Step
from .kernels import Variant, compose

SOFTWARE = ("swiftshader", "llvmpipe", "lavapipe", "softpipe", "warp")
NARROW = 8  # a software adapter runs a workgroup on one core: many small ones keep all cores at work


@dataclass(frozen=True, slots=True)
class Choice:
    """`share` is "quad" or "alone" (shaders/share), `workgroup_size` that of the kernels without barriers."""

    share: str
    workgroup_size: int


async def choose(gpu: Gpu) -> Choice:
    """Quads where the adapter has subgroups and a test shows that they are what the kernels take them for.

    Raises: ShaderError, DeviceError.
    """
    size = gpu.limits.workgroup_size()
    info = gpu.adapter
    if any(name in f"{info.architecture} {info.device} {info.vendor}".lower() for name in SOFTWARE):
        size = min(size, NARROW)
    quads = gpu.subgroups and size >= 4 and await _quads_work(gpu, size)
    return Choice("quad" if quads else "alone", size)


async def _quads_work(gpu: Gpu, size: int) -> bool:
    """Whether every invocation of a workgroup gets from its quad what it would have loaded itself."""
    x = array("f", range(8 * size))
    want = array("f")
    for i in range(size):
        block = 32 * (i // 4)
        for quarter in range(4):
            at = block + 4 * (quarter ^ i % 4)
            want.extend((*x[at : at + 4], *x[at + 16 : at + 20]))
    buffers = [gpu.buffer(len(values) * 4, name) for name, values in (("x", x), ("y", want))]
    try:
        gpu.write(buffers[0], 0, x.tobytes())
        pipeline = await gpu.pipeline(compose(Variant("share_test", share="quad"), {"WG": size}))
        gpu.submit(gpu.record([Step(pipeline, gpu.bind(pipeline, buffers), (1, 1, 1), "share_test")]))
        return await gpu.read(buffers[1], 0, 4 * len(want)) == want.tobytes()
    finally:
        gpu.free(*buffers)
