"""Find, compose and describe WGSL: a kernel file and the parts it uses become one `Kernel`.

A kernel's header says which parts it uses (`// uses lib/reduce.wgsl quant/<Q>.wgsl`); the parts may use
others. The one liberty taken with the text is the expander, for kernels that must be unrolled:

    // repeat t in 0..T          the lines up to the matching `// end` once for each t in 0 … T-1,
    sum{t} += dot(q, x{t});      with {t} replaced by the number. T is a number or a tile size given
    // end                       by the caller; {T} anywhere is that size. Blocks nest. Nothing else.

Five letters in `uses` stand for a choice of the caller: <Q> the tensor type, <F> how its scales are kept, <S>
how invocations share what they load, <R> how one goes over its rows, <C> how keys and values are cached.

Every composed line remembers its file and line, so that a compiler's message names the real place.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from .device import Binding, Kernel
from .errors import ShaderError
from .quants import QUANTS, SCALES, SUPPORTED

Line = tuple[str, str, int]  # text, file, line number from 1

_USES = re.compile(r"^//\s*uses\s+(.*)$")
_TILE = re.compile(r"^//\s*tile\s")
_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(storage|uniform)(?:,\s*(read|read_write))?>\s*(\w+)\s*:"
)
_ARRAY = re.compile(r"@binding.*>\s*(?P<name>\w+)\s*:\s*array<(?P<type>\w+)>;")
_ALIAS = re.compile(r"^alias\s+(\w+)\s*=\s*(\w+);")
_ELEMENT_BYTES = {"f16": 2, "f32": 4, "u32": 4, "vec2f": 8, "vec2u": 8, "vec4h": 8, "vec4f": 16, "vec4u": 16}
_OVERRIDE = re.compile(r"^override\s+(\w+)\s*:\s*(\w+)\s*(=)?")
_REPEAT = re.compile(r"^\s*// repeat (\w+) in 0\.\.(\w+)$")
_END = re.compile(r"^\s*// end$")


@cache
def _lines(path: str) -> tuple[Line, ...]:
    resource = files("pagelm.shaders").joinpath(path)
    if not resource.is_file():
        raise ShaderError(f"shaders/{path} does not exist; kernels: {', '.join(kernel_names())}")
    text = resource.read_text(encoding="utf-8")
    return tuple((line, f"shaders/{path}", n) for n, line in enumerate(text.splitlines(), 1))


@cache
def kernel_names() -> tuple[str, ...]:
    """Names of all kernels: the `.wgsl` files at the top of `shaders/`."""
    entries = files("pagelm.shaders").iterdir()
    return tuple(sorted(e.name.removesuffix(".wgsl") for e in entries if e.name.endswith(".wgsl")))


def _uses(path: str) -> list[str]:
    found = (_USES.match(text) for text, _, _ in _lines(path))
    return [part for match in found if match for part in match.group(1).split()]


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to compose a kernel file.

    `quant` is a tensor type for kernels that read one, `share` ("alone" or "quad") for those whose
    invocations may share what they load, `rows` (one of ROWS) for those that multiply with rows,
    `tile` the sizes that unroll them, by name, `scales` ("f16" or "f32") for tensor types that have scales,
    `cache` (one of CACHES) for kernels that read or write keys and values.
    """

    kernel: str
    quant: str | None = None
    share: str | None = None
    rows: str | None = None
    tile: tuple[tuple[str, int], ...] = ()
    scales: str | None = None
    cache: str = "f32"

    @property
    def name(self) -> str:
        """`matmul.q4_1.f16.alone.loop.p4t1`: the kernel and its choices."""
        parts = [
            self.kernel,
            (self.quant or "").lower(),
            self.scales or "",
            self.share or "",
            self.rows or "",
            "" if self.cache == "f32" else f"cache_{self.cache}",
        ]
        parts.append("".join(f"{name.lower()}{size}" for name, size in self.tile))
        return ".".join(part for part in parts if part)


def _parts(path: str, variant: Variant, seen: dict[str, None]) -> dict[str, None]:
    """`path` and all it uses, parts first, each once."""
    for part in _uses(path):
        if "<Q>" in part:
            if variant.quant is None:
                raise ShaderError(f"shaders/{path} needs a tensor type; allowed: {', '.join(SUPPORTED)}")
            part = part.replace("<Q>", variant.quant.lower())
        if "<F>" in part:
            if variant.scales is None:
                raise ShaderError(f"shaders/{path} needs a way to keep scales; allowed: {', '.join(SCALES)}")
            part = part.replace("<F>", variant.scales)
        if "<S>" in part:
            if variant.share is None:
                raise ShaderError(f"shaders/{path} needs a way to share; allowed: {', '.join(SHARES)}")
            part = part.replace("<S>", variant.share)
        if "<R>" in part:
            if variant.rows is None:
                raise ShaderError(f"shaders/{path} needs a way over its rows; allowed: {', '.join(ROWS)}")
            part = part.replace("<R>", variant.rows)
        part = part.replace("<C>", variant.cache)
        if part not in seen:
            _parts(part, variant, seen)
    seen[path] = None
    return seen


def _expand(lines: list[Line], names: Mapping[str, int]) -> Iterator[Line]:
    """Apply the expander described in the module's docstring."""
    i = 0
    while i < len(lines):
        text, file, n = lines[i]
        repeat = _REPEAT.match(text)
        if repeat is None:
            for name, value in names.items():
                text = text.replace(f"{{{name}}}", str(value))
            yield text, file, n
            i += 1
            continue
        depth, end = 1, i
        while depth:
            end += 1
            if end == len(lines):
                raise ShaderError(f"{file}:{n}: 'repeat' without '// end'")
            depth += 1 if _REPEAT.match(lines[end][0]) else -1 if _END.match(lines[end][0]) else 0
        name, times = repeat.groups()
        if not times.isdigit() and times not in names:
            raise ShaderError(f"{file}:{n}: tile size {times} was not given")
        for value in range(int(times) if times.isdigit() else names[times]):
            yield from _expand(lines[i + 1 : end], {**names, name: value})
        i = end + 1


def _with_length(text: str, nbytes: Mapping[str, int], aliases: Mapping[str, str]) -> str:
    """A binding's line, its array as long as the buffer is."""
    if (array := _ARRAY.search(text)) is None or array["name"] not in nbytes:
        return text
    element = aliases.get(array["type"], array["type"])
    length = nbytes[array["name"]] // _ELEMENT_BYTES[element]
    return text.replace(f"array<{array['type']}>", f"array<{array['type']}, {length}>")


@cache
def _composed(variant: Variant) -> tuple[Line, ...]:
    parts = _parts(f"{variant.kernel}.wgsl", variant, {})
    lines = [line for part in parts for line in _lines(part)]
    first = [line for line in lines if line[0].startswith(("enable ", "diagnostic("))]
    return tuple(_expand(first + [line for line in lines if line not in first], dict(variant.tile)))


def compose(
    variant: Variant, overrides: Mapping[str, float], nbytes: Mapping[str, int] | None = None
) -> Kernel:
    """One kernel, ready for a device.

    `overrides` must give every override without a default, and none that the kernel lacks. `nbytes` may
    give the size of what will be bound, by binding name: the arrays then have that length in the source, so
    that a compiler checks bounds against a constant (a tenth of a kernel's time on SwiftShader).

    Raises: ShaderError for unknown kernels, parts or overrides, and for missing ones.
    """
    composed = _composed(variant)
    aliases = {found[1]: found[2] for text, _, _ in composed if (found := _ALIAS.match(text))}
    lines = tuple((_with_length(text, nbytes or {}, aliases), path, n) for text, path, n in composed)
    file = f"shaders/{variant.kernel}.wgsl"
    bindings: dict[int, Binding] = {}
    required: set[str] = set()
    optional: set[str] = set()
    for text, _, _ in lines:
        if binding := _BINDING.search(text):
            index, space, access, variable = binding.groups()
            bindings[int(index)] = Binding(variable, access or ("uniform" if space == "uniform" else "read"))
        if override := _OVERRIDE.match(text):
            (optional if override.group(3) else required).add(override.group(1))
    if missing := required - set(overrides):
        raise ShaderError(f"{file}: no value for override {', '.join(sorted(missing))}")
    if unknown := set(overrides) - required - optional:
        raise ShaderError(
            f"{file} has no override {', '.join(sorted(unknown))};"
            f" it has {', '.join(sorted(required | optional))}"
        )
    return Kernel(
        name=variant.name,
        source="\n".join(text for text, _, _ in lines) + "\n",
        bindings=tuple(bindings[i] for i in sorted(bindings)),
        overrides=dict(overrides),
        lines=tuple((path, n) for _, path, n in lines),
    )


SHARES = ("alone", "quad")  # no feature needed; subgroups
# sums in memory, of any number of rows: with one token, with several; sums in registers, of few rows
ROWS = ("loop", "loop_tokens", "registers")
CACHES = ("f32", "f16")  # as they are computed; half the size, and the feature shader-f16 needed
# What the default model's programs may ask for: one token at a time, one and its guesses, pieces of a prompt.
TILES = {  # pairs of rows, tokens, blocks at a time
    "loop": tuple({"P": p, "T": 1, "C": 2} for p in (4, 16, 32)),
    "loop_tokens": tuple({"P": p, "T": t, "C": 1 + p // 32} for t in (4, 8) for p in (8, 16, 32)),
    "registers": (*({"P": p, "T": 1} for p in (1, 2, 4)), {"P": 4, "T": 4}, {"P": 4, "T": 8}),
}
HEADS = {  # query heads, tokens, vectors of a head
    "alone": ({"G": 3, "T": 1, "D": 16}, {"G": 1, "T": 2, "D": 16}),
    "quad": ({"G": 3, "T": 1, "D": 4}, {"G": 3, "T": 2, "D": 4}),
}


def tiles_of(kernel: str, share: str | None, rows: str | None) -> tuple[Mapping[str, int], ...]:
    """The tiles that `variants` lists of a kernel."""
    if kernel == "attention":
        return HEADS[share or ""]
    if kernel == "accept":
        return ({"T": 4},)
    if rows is None:
        return ({},)
    return tuple(
        tile
        for tile in TILES[rows]
        if not (kernel == "logits" and tile["T"] > 4)
        and not (kernel == "project" and tile["P"] > (4 if tile["T"] == 1 else 8))
    )


LOOKING = ("matmul", "alone", "registers", (("P", 4), ("T", 8)))  # into a model, however its scales are kept


STORING = ("Q4_1", "f16", "registers", 4)  # with what qkv is listed that caches f16: all store alike


def _listed(v: Variant) -> bool:
    """Whether a choice asks for it (guest/adapt.py): f32 scales come with loops and quads."""
    if v.cache != "f32" and v.rows is not None:
        return (v.quant, v.scales, v.rows, dict(v.tile)["P"]) == STORING
    if v.scales != "f32" or v.rows is None or (v.share == "quad" and v.rows != "registers"):
        return True
    return (v.kernel, v.share, v.rows, v.tile) == LOOKING


def _combinations() -> Iterator[Variant]:
    for name in kernel_names():
        uses = " ".join(_parts(f"{name}.wgsl", Variant(name, "F32", "alone", "loop"), {}))
        for quant in SUPPORTED if "quant/" in uses or "repack/" in uses else (None,):
            for scales in SCALES if quant and QUANTS[quant].wide else (None,):
                for share in SHARES if "share/" in uses else (None,):
                    for rows in ROWS if "rows/" in uses else (None,):
                        for tile in tiles_of(name, share, rows):
                            for kept in CACHES if "cache/" in uses else CACHES[:1]:
                                yield Variant(name, quant, share, rows, tuple(tile.items()), scales, kept)


def variants() -> Iterator[Variant]:
    """Every kernel in every tensor type, way to share and way over rows, with tiles for the default model.

    Scales are f16, and f32 where a choice may ask for them; of qkv with an f16 cache there are some only.
    """
    return filter(_listed, _combinations())


def shaders(workgroup_size: int) -> dict[str, str]:
    """All WGSL as composed, by full name, with `workgroup_size` (a power of two, 1 … 256) filled in.

    Raises: ShaderError for any other size.
    """
    if workgroup_size not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        raise ShaderError(f"workgroup size {workgroup_size} is not a power of two from 1 to 256")
    return {
        variant.name: re.sub(
            r"(override WG: u32 = )\d+u",
            rf"\g<1>{workgroup_size}u",
            "\n".join(text for text, _, _ in _composed(variant)) + "\n",
        )
        for variant in variants()
    }
