"""Composition of WGSL: parts, expander, overrides, line numbers, errors."""

import pytest

import pagelm
from pagelm.device import Limits
from pagelm.errors import ShaderError
from pagelm.kernels import Variant, _expand, compose, shaders, variants

NORM = Variant("norm")
SIZES = {"N_EMBD": 8, "STRIDE": 32, "EPS": 1e-5}
TILE = (("P", 4), ("T", 1))


def expanded(text, **names):
    lines = [(line, "f.wgsl", n) for n, line in enumerate(text.splitlines(), 1)]
    return [line for line, _, _ in _expand(lines, names)]


def test_repeat_writes_the_block_once_for_each_value():
    assert expanded("// repeat r in 0..R\na{r} = {R};\n// end\nb", R=2) == ["a0 = 2;", "a1 = 2;", "b"]


def test_repeat_nests_and_takes_a_literal_count():
    source = "// repeat r in 0..2\n// repeat t in 0..T\n{r}{t}\n// end\n// end"
    assert expanded(source, T=3) == ["00", "01", "02", "10", "11", "12"]


def test_repeat_without_end_names_the_line():
    with pytest.raises(ShaderError, match=r"f.wgsl:2: 'repeat' without '// end'"):
        expanded("x\n// repeat r in 0..2\ny")


def test_repeat_without_a_tile_names_it():
    with pytest.raises(ShaderError, match="tile size R was not given"):
        expanded("// repeat r in 0..R\ny\n// end")


def test_lines_remember_their_file():
    kernel = compose(NORM, SIZES)
    lines = kernel.source.splitlines()
    at = next(i for i, line in enumerate(lines, 1) if line.startswith("override EPS"))
    file, number = kernel.origin(at).split(":")
    assert file == "shaders/norm.wgsl"
    assert int(number) > 5
    at = next(i for i, line in enumerate(lines, 1) if line.startswith("fn reduce_sum"))
    assert kernel.origin(at).startswith("shaders/lib/reduce.wgsl:")


def test_bindings_come_in_order_with_their_access():
    bindings = compose(NORM, SIZES).bindings
    assert [(b.name, b.access) for b in bindings] == [
        ("x", "read"),
        ("w", "read"),
        ("b", "read"),
        ("state", "read"),
        ("y", "read_write"),
    ]


def test_overrides_must_be_complete_and_known():
    with pytest.raises(ShaderError, match="no value for override EPS, STRIDE"):
        compose(NORM, {"N_EMBD": 8})
    with pytest.raises(
        ShaderError, match="no override WIDTH; it has BIAS, EPS, MEAN, N_EMBD, OWN, ROWS, STRIDE, WG"
    ):
        compose(NORM, {**SIZES, "WIDTH": 1})


def test_unknown_kernels_and_missing_types_are_named():
    with pytest.raises(ShaderError, match="shaders/nope.wgsl does not exist; kernels: accept, activate, add"):
        compose(Variant("nope"), {})
    with pytest.raises(ShaderError, match="shaders/embed.wgsl needs a tensor type; allowed: F32, F16"):
        compose(Variant("embed"), {})
    with pytest.raises(
        ShaderError, match="shaders/attention.wgsl needs a way to share; allowed: alone, quad"
    ):
        compose(Variant("attention"), {})
    with pytest.raises(ShaderError, match="shaders/share/pair.wgsl does not exist"):
        compose(Variant("attention", share="pair"), {})
    with pytest.raises(ShaderError, match="q4_1.wgsl needs a way to keep scales; allowed: f16, f32"):
        compose(Variant("embed", "Q4_1"), {})
    with pytest.raises(ShaderError, match="a way over its rows; allowed: loop, loop_tokens, registers"):
        compose(Variant("matmul", "F32", "alone"), {})
    with pytest.raises(ShaderError, match=r"shaders/rows/loop.wgsl:\d+: tile size [PTC] was not given"):
        compose(Variant("matmul", "F32", "alone", "loop"), {})


def test_a_variant_s_name_tells_it_from_all_others():
    whole = Variant("matmul", "Q4_1", "alone", "registers", TILE, "f16")
    assert whole.name == "matmul.q4_1.f16.alone.registers.p4t1"
    assert NORM.name == "norm"
    assert len({v.name for v in variants()}) == len(list(variants())) == len(shaders(64))


def test_choices_choose_parts():
    """The quant part declares the first bindings, the share part comes once, a feature is asked for first."""
    overrides = dict.fromkeys(("N_EMBD", "N_ROWS", "STRIDE", "N_PARTIALS"), 32)
    embed = compose(Variant("embed", "Q8_0", scales="f16"), overrides)
    assert [b.name for b in embed.bindings][:3] == ["q", "s", "norm"]
    assert ("shaders/quant/q8_0.wgsl", 10) in embed.lines
    sources = shaders(64)
    alone, quad = (sources[f"matmul.f32.{share}.registers.p4t1"] for share in ("alone", "quad"))
    assert quad.startswith("enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n")
    assert quad.count("enable ") == quad.count("fn share_sum(") == alone.count("fn share_sum(") == 1
    assert "subgroup" not in alone


def test_shaders_fill_in_the_workgroup_size():
    for name, source in shaders(16).items():
        assert source.count("override WG: u32 = 16u;") == 1, name
    with pytest.raises(ShaderError, match="workgroup size 24 is not a power of two"):
        shaders(24)


def test_the_package_s_function_stays_a_function():
    assert pagelm.shaders(64) == pagelm.shaders(64) == shaders(64)


def test_workgroup_size_follows_the_limits():
    assert Limits.default().workgroup_size() == 64
    assert Limits(max_compute_invocations_per_workgroup=1000).workgroup_size() == 64
    assert Limits(max_compute_invocations_per_workgroup=63).workgroup_size() == 32
    assert Limits(max_compute_workgroup_size_x=5).workgroup_size() == 4
    assert Limits(max_compute_workgroup_storage_size=100).workgroup_size() == 8
    assert Limits(max_compute_invocations_per_workgroup=1).workgroup_size() == 1
