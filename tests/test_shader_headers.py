"""What every WGSL file must say about itself, and the order of its bindings."""

import re
from importlib.resources import files

import pytest

from pagelm.kernels import kernel_names

SHADERS = files("pagelm.shaders")
FIELDS = ("shapes", "grid", "uses", "error", "source")


def text(path: str) -> str:
    return SHADERS.joinpath(path).read_text(encoding="utf-8")


def header(path: str) -> list[str]:
    lines = text(path).splitlines()
    return lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))]


@pytest.mark.parametrize("name", kernel_names())
def test_kernel_header_says_what_it_does(name):
    lines = header(f"{name}.wgsl")
    assert re.match(rf"// {name}: .+\.?", lines[0])
    fields = [m.group(1) for line in lines if (m := re.match(r"// ([a-z]+)  +\S", line))]
    missing = [f for f in FIELDS if f not in fields and f != "uses"]
    assert not missing
    assert [f for f in FIELDS if f in fields] == [f for f in fields if f in FIELDS], (
        "fields in the fixed order"
    )


@pytest.mark.parametrize("name", kernel_names())
def test_kernel_bindings_are_in_order_with_shapes(name):
    found = re.findall(
        r"^@group\(0\) @binding\((\d+)\) var<(storage, read(?:_write)?|uniform)>\s+\w+: [^;]+;(.*)$",
        text(f"{name}.wgsl"),
        re.M,
    )
    assert len(found) == text(f"{name}.wgsl").count("@binding(") > 0
    assert [int(index) for index, _, _ in found] == list(range(len(found)))
    access = [kind for _, kind, _ in found]
    assert access == sorted(access, key=["storage, read", "storage, read_write", "uniform"].index)
    for index, kind, comment in found:
        assert re.match(r"\s+// \(.+\)|\s+// [a-z_]+", comment) or kind == "storage, read_write", index


@pytest.mark.parametrize("name", kernel_names())
def test_kernel_keeps_the_baseline_rules(name):
    source = text(f"{name}.wgsl")
    assert "enable " not in source and "subgroup" not in source
    assert source.count("fn main(") == 1 and "@workgroup_size(WG)" in source
    assert len(source.splitlines()) <= 150
    if "workgroupBarrier" in source or "var<workgroup>" in source:
        pytest.fail("reductions go through lib/reduce.wgsl or lib/best.wgsl")


def test_quant_parts_hand_out_weights_and_cite_their_layout():
    for entry in SHADERS.joinpath("quant").iterdir():
        source = entry.read_text(encoding="utf-8")
        given = "fn weights(row: u32, group: u32) -> Weights32", "fn element(row: u32, i: u32) -> f32"
        assert sum(text in source for text in given) == 1, entry.name
        assert ("lib/by_element.wgsl" in source) == (given[1] in source), entry.name
        assert re.search(r"^// source +\S", source, re.M), entry.name
