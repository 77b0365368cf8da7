"""Which kernels an adapter may get: how invocations share what they load, and how wide a workgroup is.

`choose` knows by name; tune.py measures `candidates`, in which names are no more than hints.
"""

from array import array
from dataclasses import dataclass, replace

from .device import Gpu, Step
from .kernels import Variant, compose

MAX_PAIRS = 32  # pairs of rows of an invocation, whatever is chosen
PROMPT_PAIRS = 4  # at least; as many as sums in registers allow


@dataclass(frozen=True, slots=True)
class Choice:
    """What differs from adapter to adapter in the kernels without barriers.

    `share` is "quad" or "alone" (shaders/share), `rows` "loop" or "registers" (shaders/rows), `pairs` the
    most pairs of rows that an invocation computes: more of them save loads of activations and leave fewer
    invocations, of which a matrix gets `invocations` at least where it has the rows. `scales` is how they are
    kept (shaders/scale): "f16", or "f32", which loading gives up where they take too much memory. A prompt's
    `tokens` are multiplied that many at a time: more save unpacking weights, and need registers. Attention is
    split in stretches of `stretch` positions at least: many cores want many, a dispatch costs time.
    """

    share: str
    rows: str
    workgroup_size: int
    pairs: int = 4
    invocations: int = 0
    scales: str = "f16"
    tokens: int = 8
    stretch: int = 64

    def alone(self) -> "Choice":
        """The same without quads: f32 scales were found worth their memory with them only."""
        return replace(self, share="alone", scales="f16")

    @property
    def name(self) -> str:
        """What tells candidates apart in a word: `quad.loop.wg4.p32.i30`, `quad.registers.wg64.p4`."""
        least = f".i{self.invocations}" if self.invocations else ""
        return f"{self.share}.{self.rows}.wg{self.workgroup_size}.p{self.pairs}{least}"

    def pairs_of(self, n_rows: int, tokens: int = 1, most: int = MAX_PAIRS) -> int:
        """Pairs of rows per invocation for a matrix of `n_rows` rows: a power of two.

        A prompt has several times the invocations: it can do with PROMPT_PAIRS, whatever is best for a token.
        """
        pairs = min(self.pairs if tokens == 1 else max(self.pairs, PROMPT_PAIRS), most)
        while pairs > 1 and n_rows < 2 * pairs * self.invocations:
            pairs //= 2
        return pairs


# Measured. A software adapter runs a workgroup on one core and a quad or two in its vector registers: many
# small workgroups keep all cores at work. SwiftShader's machine code is long, and slow past the cache for it;
# unpacking f16 costs it something too: with f32 scales it decodes a tenth faster, llvmpipe no faster.
# llvmpipe has 16 vector registers: with 4 tokens it reads prompts a fifth faster than with 8.
# A dispatch takes it 20 us and more, so one stretch has the usual context.
NARROW = {
    "swiftshader": Choice("quad", "loop", 4, pairs=MAX_PAIRS, invocations=30, scales="f32"),
    "llvmpipe": Choice("quad", "registers", 8, pairs=4, tokens=4, stretch=2048),
    "lavapipe": Choice("quad", "registers", 8, pairs=4, tokens=4, stretch=2048),
}
SWIFTSHADER_LANES = 4  # of its subgroups; an adapter of this name that has more is lavapipe
MESA = ("llvmpipe", "lavapipe")


def software(gpu: Gpu) -> str:
    """The name in NARROW that the adapter answers to, or an empty string."""
    adapter = gpu.adapter
    info = f"{adapter.architecture} {adapter.device} {adapter.vendor} {adapter.description}".lower()
    found = next((name for name in NARROW if name in info), "")
    if found == "swiftshader" and gpu.subgroup_size > SWIFTSHADER_LANES:
        return "lavapipe"
    return found


def candidates(gpu: Gpu, named: Choice) -> list[Choice]:
    """What is worth measuring, the likeliest first, the plainest form last; all within the adapter's limits.

    `named` is what `choose` gave: where quads are not what kernels take them for, it has none, and then no
    candidate has.
    """
    found = [named]
    name, size = software(gpu), named.workgroup_size
    shares = ("quad", "alone") if named.share == "quad" else ("alone",)
    if name == "swiftshader":
        found += [named.alone(), Choice("quad", "registers", size, pairs=2)]
    elif name in MESA:  # which unrolls what rows="loop" has in its loop, and compiles it for a minute
        found += [replace(named, share=share, pairs=pairs) for share, pairs in (("quad", 2), ("alone", 4))]
    else:
        sizes = {gpu.limits.workgroup_size(most): None for most in (64, 128, 32)}
        found += [
            Choice(s, "registers", size, pairs) for pairs in (4, 2, 1) for size in sizes for s in shares
        ]
    plain = plainest(gpu)
    return [c for c in dict.fromkeys(found) if c != plain and c.share in shares] + [plain]


def plainest(gpu: Gpu) -> Choice:
    """What every adapter can run, in the least code: what the others' results are held to."""
    return Choice("alone", "registers", gpu.limits.workgroup_size(), pairs=1)


async def choose(gpu: Gpu) -> Choice:
    """Quads where the adapter has subgroups and a test shows that they are what the kernels take them for.

    Raises: ShaderError, DeviceError.
    """
    size = gpu.limits.workgroup_size()
    choice = Choice("quad", "registers", size)
    if narrow := NARROW.get(software(gpu)):
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
