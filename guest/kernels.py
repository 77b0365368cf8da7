"""Find, compose and describe WGSL: a kernel file and the parts it uses become one `Kernel`.

A kernel's header says which parts it uses (`// uses lib/reduce.wgsl quant/<Q>.wgsl`); the parts may use
others. The one liberty taken with the text is the expander, for kernels that must be unrolled:

    // repeat r in 0..R          the lines up to the matching `// end` once for each r in 0 … R-1,
    sum{r} += dot(q{r}, x);      with {r} replaced by the number. R is a number or a tile size given
    // end                       by the caller; {R} anywhere is that size. Blocks nest. Nothing else.

Every composed line remembers its file and line, so that a compiler's message names the real place.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

from .device import Binding, Kernel
from .errors import ShaderError
from .quants import SUPPORTED

Line = tuple[str, str, int]  # text, file, line number from 1

_USES = re.compile(r"^//\s*uses\s+(.*)$")
_TILE = re.compile(r"^//\s*tile\s")
_BINDING = re.compile(
    r"@group\(0\)\s*@binding\((\d+)\)\s*var<(storage|uniform)(?:,\s*(read|read_write))?>\s*(\w+)\s*:"
)
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


def takes_quant(name: str) -> bool:
    """Whether the kernel reads a quantised tensor, and so exists once per tensor type."""
    return "quant/<Q>.wgsl" in _uses(f"{name}.wgsl")


def takes_tile(name: str) -> bool:
    """Whether the kernel is unrolled over R rows and T tokens."""
    return any(_TILE.match(text) for text, _, _ in _lines(f"{name}.wgsl"))


def _parts(path: str, quant: str | None, seen: dict[str, None]) -> dict[str, None]:
    """`path` and all it uses, parts first, each once."""
    for part in _uses(path):
        if "<Q>" in part:
            if quant is None:
                raise ShaderError(f"shaders/{path} needs a tensor type; allowed: {', '.join(SUPPORTED)}")
            part = part.replace("<Q>", quant.lower())
        if part not in seen:
            _parts(part, quant, seen)
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


@cache
def _composed(name: str, quant: str | None, tile: tuple[int, int] | None) -> tuple[Line, ...]:
    path = f"{name}.wgsl"
    names = dict(zip(("R", "T"), tile, strict=True)) if tile else {}
    lines = [line for part in _parts(path, quant, {}) for line in _lines(part)]
    enables = [line for line in lines if line[0].startswith("enable ")]
    return tuple(_expand(enables + [line for line in lines if line not in enables], names))


def compose(
    name: str,
    overrides: Mapping[str, float],
    *,
    quant: str | None = None,
    tile: tuple[int, int] | None = None,
) -> Kernel:
    """One kernel, ready for a device.

    `quant` is a tensor type for kernels that read one; `tile` = (R rows, T tokens) for unrolled kernels.
    `overrides` must give every override without a default, and none that the kernel lacks.

    Raises: ShaderError for unknown kernels, parts or overrides, and for missing ones.
    """
    lines = _composed(name, quant, tile)
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
        raise ShaderError(f"shaders/{name}.wgsl: no value for override {', '.join(sorted(missing))}")
    if unknown := set(overrides) - required - optional:
        raise ShaderError(
            f"shaders/{name}.wgsl has no override {', '.join(sorted(unknown))};"
            f" it has {', '.join(sorted(required | optional))}"
        )
    return Kernel(
        name=full_name(name, quant, tile),
        source="\n".join(text for text, _, _ in lines) + "\n",
        bindings=tuple(bindings[i] for i in sorted(bindings)),
        overrides=dict(overrides),
        lines=tuple((file, n) for _, file, n in lines),
    )


def full_name(name: str, quant: str | None = None, tile: tuple[int, int] | None = None) -> str:
    """`matmul.q4_1.r4t1`: the kernel, its tensor type and its tile."""
    parts = [name] + ([quant.lower()] if quant else []) + ([f"r{tile[0]}t{tile[1]}"] if tile else [])
    return ".".join(parts)


TILES = ((4, 1), (4, 4))  # (rows, tokens) per invocation: one token at a time; pieces of a prompt


def variants() -> Iterator[tuple[str, str | None, tuple[int, int] | None]]:
    """Every (kernel, tensor type, tile) that a program may ask for."""
    for name in kernel_names():
        for quant in SUPPORTED if takes_quant(name) else (None,):
            for tile in TILES if takes_tile(name) else (None,):
                yield name, quant, tile


def shaders(workgroup_size: int) -> dict[str, str]:
    """All WGSL as composed, by full name, with `workgroup_size` (a power of two, 1 … 256) filled in.

    Raises: ShaderError for any other size.
    """
    if workgroup_size not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        raise ShaderError(f"workgroup size {workgroup_size} is not a power of two from 1 to 256")
    return {
        full_name(name, quant, tile): re.sub(
            r"(override WG: u32 = )\d+u",
            rf"\g<1>{workgroup_size}u",
            "\n".join(text for text, _, _ in _composed(name, quant, tile)) + "\n",
        )
        for name, quant, tile in variants()
    }
