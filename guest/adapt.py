"""Which kernels an adapter gets: how invocations share what they load, and how wide a workgroup is."""

from array import array
from dataclasses import dataclass

from .device import Gpu, Step
from .kernels import Variant, compose


@dataclass(frozen=True, slots=True)
class Choice:
    """What differs from adapter to adapter in the kernels without barriers.

    `share` is "quad" or "alone" (shaders/share), `pairs` the pairs of rows that an invocation computes for
    one token: more of them save loads of activations and cost registers.
    """

    share: str
    workgroup_size: int
    pairs: int = 4


# Measured. A software adapter runs a workgroup on one core and a quad or two in its vector registers: many
# small workgroups keep all cores at work, and SwiftShader, with 16 registers, spills four pairs.
NARROW = {"swiftshader": (4, 2), "llvmpipe": (8, 4), "lavapipe": (8, 4)}  # workgroup size, pairs


async def choose(gpu: Gpu) -> Choice:
    """Quads where the adapter has subgroups and a test shows that they are what the kernels take them for.

    Raises: ShaderError, DeviceError.
    """
    size, pairs = gpu.limits.workgroup_size(), 4
    info = f"{gpu.adapter.architecture} {gpu.adapter.device} {gpu.adapter.vendor}".lower()
    for name, (narrow, few) in NARROW.items():
        if name in info:
            size, pairs = min(size, narrow), few
    quads = gpu.subgroups and size >= 4 and await _quads_work(gpu, size)
    return Choice("quad" if quads else "alone", size, pairs)


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
