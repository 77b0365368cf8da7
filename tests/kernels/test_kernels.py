"""Every kernel against numpy on the native adapter; the browser runs the same table."""

import asyncio

import pytest
from kernel_case import WORKGROUP_SIZES, run_case
from kernels.cases import CASES, EVERY, widened
from kernels.data import MORE

from pagelm.device.native import NativeGpu, for_naga
from pagelm.kernels import Variant, compose, kernel_names, shaders, variants


def _rows_times_tokens(variant: Variant) -> int:
    tile = dict(variant.tile)
    return 2 * tile.get("P", 1) * tile.get("T", 1)


# Mesa unrolls loops whose length it knows: over many rows and tokens that takes up to a minute a kernel. The
# browser, whose software adapter these are for, runs them all.
NATIVE = [
    case
    for case in CASES
    if case.op.variant.rows in (None, "registers") or _rows_times_tokens(case.op.variant) <= 64
]


WITH_WEIGHTS = {variant.name for variant in variants() if variant.quant}


@pytest.fixture(scope="module")
def gpu():
    device = asyncio.run(NativeGpu.open())
    yield device
    device.close()


@pytest.mark.gpu
@pytest.mark.parametrize("case", NATIVE, ids=lambda case: case.id)
def test_kernel_matches_numpy(gpu, case):
    for wg in case.workgroup_sizes:
        case.check(asyncio.run(run_case(gpu, case, wg)))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "variant",
    sorted({case.op.variant for case in NATIVE if case.op.variant.quant in (None, "Q4_1")}, key=str),
    ids=lambda variant: variant.name,
)
def test_every_kernel_is_right_at_every_workgroup_size(gpu, variant):
    """Of kernels with weights one type: what depends on the type does not see the workgroup."""
    case = min((c for c in CASES if c.op.variant == variant), key=lambda c: c.op.invocations)
    for wg in WORKGROUP_SIZES:
        if wg >= 4 or variant.share != "quad":  # quads need whole ones
            case.check(asyncio.run(run_case(gpu, case, wg)))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case",
    [c for c in NATIVE if c.op.variant.scales == "f16" and "s" in c.inputs and "adversarial" in c.id],
    ids=lambda case: case.id,
)
def test_scales_of_either_width_give_the_same_bits(gpu, case):
    """Subnormal ones among them: WGSL lets an adapter flush those; the software adapters do not."""
    f16, f32 = (asyncio.run(run_case(gpu, c, 64)) for c in (case, widened(case)))
    assert f16 == f32


@pytest.mark.gpu
@pytest.mark.parametrize("case", [c for c in NATIVE if c.op.invocations > 64], ids=lambda case: case.id)
def test_kernel_matches_numpy_when_the_grid_is_folded(gpu, case):
    """At most 2 workgroups in a dimension: what happens past 65,535 workgroups, without the work."""
    case.check(asyncio.run(run_case(gpu, case, 16, most=2)))


@pytest.mark.gpu
@pytest.mark.parametrize("workgroup_size", WORKGROUP_SIZES)
def test_every_shader_compiles_in_naga(gpu, workgroup_size):
    """At all sizes but one of kernels with weights one type: the size is a number, whatever the type."""
    for name, source in shaders(workgroup_size).items():
        if workgroup_size == 64 or name.split(".")[1:2] == ["q4_1"] or name not in WITH_WEIGHTS:
            gpu._device.create_shader_module(code=for_naga(source))


@pytest.mark.gpu
def test_case_catches_a_wrong_value(gpu):
    """The control: a case whose expectation is off by more than its tolerance must fail."""
    case = next(c for c in CASES if c.id == "norm-64")
    results = asyncio.run(run_case(gpu, case, 64))
    case.check(results)
    wrong = bytearray(results["y"])
    wrong[3] ^= 0x80  # the sign of one value
    with pytest.raises(AssertionError, match=r"norm-64 y: 1 of 256 values are off; worst at \(0, 0\)"):
        case.check({"y": bytes(wrong)})


def test_every_variant_has_a_case():
    """Of MORE types the look-up and one of the products: the others differ from it in what they store."""
    of_types = {v for v in variants() if v.quant not in MORE or v.kernel in ("embed", "matmul")}
    assert {c.op.variant for c in EVERY} >= of_types
    assert {v for case in EVERY for v in (f.op.variant for f in case.first)} >= {
        v for v in variants() if v.quant in MORE and v.kernel == "repack"
    }


def test_case_ids_are_unique_and_overrides_complete():
    assert len({c.id for c in EVERY}) == len(EVERY)
    for case in EVERY:
        kernel = case.kernel(64)
        assert [b.name for b in kernel.bindings] == list(case.inputs) == list(case.op.buffers)
        assert [b.name for b in kernel.bindings if b.access == "read_write"] == list(case.expect), case.id


def test_every_kernel_file_is_a_kernel():
    assert {c.op.variant.kernel for c in CASES} == set(kernel_names())
    assert all(compose(c.op.variant, c.op.overrides).source for c in CASES)
