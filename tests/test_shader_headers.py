"""What every WGSL file must say about itself, what parts must hand out, and the order of bindings."""

import re
from importlib.resources import files

import pytest

from pagelm.kernels import PACKED, ROWS, SCALES, SHARES, _parts, _uses, kernel_names, shaders, variants
from pagelm.quants import QUANTS, SUPPORTED

SHADERS = files("pagelm.shaders")
FIELDS = ("shapes", "grid", "tile", "uses", "error", "source")
FOLDERS = ("keep", "lib", "load", "load_packed", "packed", "quant", "repack", "rows", "scale", "share")
PARTS = sorted(f"{folder}/{entry.name}" for folder in FOLDERS for entry in SHADERS.joinpath(folder).iterdir())
KERNELS = [f"{name}.wgsl" for name in kernel_names()]
BINDING = re.compile(
    r"^@group\(0\) @binding\((\d+)\) var<(storage, read(?:_write)?|uniform)>\s+(\w+): [^;]+;(.*)$", re.M
)


def text(path: str) -> str:
    return SHADERS.joinpath(path).read_text(encoding="utf-8")


def header(path: str) -> list[str]:
    lines = text(path).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]


def fields(path: str) -> list[str]:
    return [m.group(1) for line in header(path) if (m := re.match(r"// ([a-z]+)  +\S", line))]


@pytest.mark.parametrize("path", KERNELS)
def test_kernel_header_says_what_it_does(path):
    assert re.match(rf"// {path.removesuffix('.wgsl')}: .+\.?", header(path)[0])
    found = [f for f in fields(path) if f in FIELDS]
    assert found == [f for f in FIELDS if f in found], "fields in the fixed order"
    assert {*FIELDS} - {*found} <= {"uses", "tile"}
    assert ("tile" in found) == (re.search(r"\{[PTGD]\}|0\.\.[PTGD]$", text(path), re.M) is not None)


@pytest.mark.parametrize("path", PARTS)
def test_part_says_its_name(path):
    folder, name = path.removesuffix(".wgsl").split("/")
    names = {
        "quant": f"{name.upper()}: ",
        "packed": f"{name.upper()}: ",
        "repack": f"{name.upper()} in the file: ",
    }
    assert header(path)[0].startswith("// " + names.get(folder, f"{name}: "))


@pytest.mark.parametrize("path", KERNELS)
def test_kernel_bindings_are_in_order_with_shapes(path):
    """Inputs, then outputs; 0 and 1 are the quant part's where there is one."""
    found = BINDING.findall(text(path))
    assert len(found) == text(path).count("@binding(") > 0
    first = 2 if "quant/<Q>.wgsl" in _uses(path) else 0
    assert [int(index) for index, *_ in found] == list(range(first, first + len(found)))
    outputs = [access == "storage, read_write" for _, access, *_ in found]
    assert outputs == sorted(outputs) and outputs[-1]
    for _, _, name, comment in found:
        assert re.match(r"\s+// (\(.+\)|[a-z_]+)", comment), name


@pytest.mark.parametrize(("name", "source"), shaders(64).items())
def test_bindings_fit_the_default_limits(name, source):
    found = BINDING.findall(source)
    assert sorted(int(index) for index, *_ in found) == list(range(len(found)))
    assert len({variable for _, _, variable, _ in found}) == len(found)
    assert sum(access != "uniform" for _, access, *_ in found) <= 8


@pytest.mark.parametrize("path", KERNELS)
def test_kernel_keeps_the_baseline_rules(path):
    source = text(path)
    assert source.count("fn main(") == 1 and "@workgroup_size(WG)" in source
    assert len(source.splitlines()) <= 150
    assert "workgroupBarrier" not in source and "var<workgroup>" not in source, "reductions are in lib/"


@pytest.mark.parametrize("path", [*KERNELS, *PARTS])
def test_only_the_quad_parts_need_a_feature(path):
    needs = re.search(r"^enable |subgroup|quad[SB]", text(path), re.M)
    assert (needs is not None) == path.endswith("/quad.wgsl")


def test_every_part_is_used():
    used = {part for v in variants() for part in _parts(f"{v.kernel}.wgsl", v, {})}
    assert used == {*KERNELS, *PARTS}


@pytest.mark.parametrize("share", SHARES)
def test_share_and_load_parts_hand_out_the_same(share):
    assert re.findall(r"^(?:fn|const) (\w+)", text(f"share/{share}.wgsl"), re.M) == [
        "SHARERS",
        "share_sum",
        "share_sum4",
    ]
    assert "fn activations(at: u32, lane: u32) -> Activations {" in text(f"load/{share}.wgsl")
    assert f"share/{share}.wgsl" in text(f"load/{share}.wgsl")
    assert "fn packed(at: u32, lane: u32) -> Packed {" in text(f"load_packed/{share}.wgsl")
    assert f"share/{share}.wgsl" in text(f"load_packed/{share}.wgsl")


@pytest.mark.parametrize("rows", ROWS)
def test_rows_parts_hand_out_the_same(rows):
    given = "fn products(work: Work, t0: u32, n_tokens: u32) -> array<f32, 2 * {P} * {T}> {"
    assert given in text(f"rows/{rows}.wgsl")
    assert "lib/work.wgsl" in text(f"rows/{rows}.wgsl")


@pytest.mark.parametrize("quant", SUPPORTED)
def test_quant_part_hands_out_cells_and_cites_its_layout(quant):
    path = f"quant/{quant.lower()}.wgsl"
    source, n = text(path), QUANTS[quant].scales
    assert [(index, access, name) for index, access, name, _ in BINDING.findall(source)] == [
        ("0", "storage, read", "q"),
        *([("1", "storage, read", "s")] if n == 0 else []),
    ]
    assert ([f"scale/<F>_{n}.wgsl"] if n else []) == [part for part in _uses(path) if "scale" in part]
    assert {"q", "s", "uses", "source"} <= {*re.findall(r"^// +(\w+)  +\S", source, re.M)}
    assert re.search(r"^// source +(IEEE|.*/blob/[0-9a-f]{40}/)", source, re.M)
    for given in (
        "struct Words {",
        "fn words(cell: u32) -> Words {",
        "fn a{i}(w: Words) -> vec4f {",
        "fn b{i}(w: Words) -> vec4f {",
        "fn offsets(a: vec4f, b: vec4f) -> vec2f {",
        "fn scaled(sum: f32, dm: vec2f, sums: vec2f) -> f32 {",
        "fn values(a: vec4f, b: vec4f, dm: vec2f) -> Quarter {",
    ):
        where = source + "".join(text(p) for p in ("lib/plain.wgsl", "lib/nibbles.wgsl") if p in source)
        assert where.count(given) == 1, given


@pytest.mark.parametrize("quant", PACKED)
def test_packed_parts_hand_out_the_same(quant):
    source = text(f"packed/{quant.lower()}.wgsl")
    assert "fn weighted(sum: vec2f, dm: vec2f, sums: vec2f) -> vec2f {" in source
    assert QUANTS[quant].words == 1, "a cell of nibbles is what shaders/rows/packed.wgsl unpacks"


@pytest.mark.parametrize("quant", SUPPORTED)
def test_repack_part_agrees_with_the_table(quant):
    source, row = text(f"repack/{quant.lower()}.wgsl"), QUANTS[quant]
    assert [(index, access, name) for index, access, name, _ in BINDING.findall(source)] == (
        [("3", "storage, read_write", "s")] if row.scales == 0 else []
    )
    assert ([f"keep/<F>_{row.scales}.wgsl"] if row.scales else []) == [
        part for part in _uses(f"repack/{quant.lower()}.wgsl") if "keep" in part
    ]
    assert dict(re.findall(r"^const (\w+) = (\w+?)u?;$", source, re.M)) == {
        "BLOCK_BYTES": str(row.nbytes(32)),
        "WORDS": str(row.words),
    }
    assert "fn move_words(at: u32, element: u32, to: u32, lane: u32) {" in source
    assert "fn move_scales(at: u32, cell: u32) {" in source


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("n", [1, 2])
def test_scale_and_keep_parts_hand_out_the_same(scales, n):
    for folder, at, access, given in (
        ("scale", "1", "storage, read", "fn scales_of(cell: u32) -> vec2f {"),
        ("keep", "3", "storage, read_write", "fn keep_scales(cell: u32, halves: u32) {"),
    ):
        source = text(f"{folder}/{scales}_{n}.wgsl")
        assert [found[:3] for found in BINDING.findall(source)] == [(at, access, "s")]
        assert given in source
