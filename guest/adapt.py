"""Which kernels an adapter gets: how invocations share what they load, and how wide a workgroup is."""

from array import array
from dataclasses import dataclass, replace

from .device import Gpu, Step
from .kernels import Variant, compose


@dataclass(frozen=True, slots=True)
class Choice:
    """What differs from adapter to adapter in the kernels without barriers.

    `share` is "quad" or "alone" (shaders/share), `rows` "loop" or "registers" (shaders/rows), `pairs` the
    most pairs of rows that an invocation computes: more of them save loads of activations and leave fewer
    invocations, of which a matrix gets `invocations` at least where it has the rows. `scales` is how they are
    kept (shaders/scale): "f16", or "f32", which loading gives up where they take too much memory.
    """

    share: str
    rows: str
    workgroup_size: int
    pairs: int = 4
    invocations: int = 0
    scales: str = "f16"

    def alone(self) -> "Choice":
        """The same without quads: f32 scales were found worth their memory with them only."""
        return replace(self, share="alone", scales="f16")

    def pairs_of(self, n_rows: int, tokens: int = 1, most: int = 32) -> int:
        """Pairs of rows per invocation for a matrix of `n_rows` rows: a power of two.

        A prompt has several times the invocations.
        """
        pairs, wanted = min(self.pairs, most), self.invocations // min(tokens, 2)
        while pairs > 1 and n_rows < 2 * pairs * wanted:
            pairs //= 2
        return pairs


# Measured. A software adapter runs a workgroup on one core and a quad or two in its vector registers: many
# small workgroups keep all cores at work. SwiftShader's machine code is long, and slow past the cache for it;
# unpacking f16 costs it something too: with f32 scales it decodes a tenth faster, llvmpipe no faster.
NARROW = {
    "swiftshader": Choice("quad", "loop", 4, pairs=32, invocations=48, scales="f32"),
    "llvmpipe": Choice("quad", "registers", 8, pairs=4),
    "lavapipe": Choice("quad", "registers", 8, pairs=4),
}


async def choose(gpu: Gpu) -> Choice:
    """Quads where the adapter has subgroups and a test shows that they are what the kernels take them for.

    Raises: ShaderError, DeviceError.
    """
    size = gpu.limits.workgroup_size()
    choice = Choice("quad", "registers", size)
    info = f"{gpu.adapter.architecture} {gpu.adapter.device} {gpu.adapter.vendor}".lower()
    for name, narrow in NARROW.items():
        if name in info:
            choice = replace(narrow, workgroup_size=min(size, narrow.workgroup_size))
    size = choice.workgroup_size
    quads = gpu.subgroups and size >= 4 and await _quads_work(gpu, size)
    return choice if quads else choice.alone()


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
