"""Every kernel in the browser: compiled by Tint for every workgroup size, and compared with numpy."""

import pytest
from kernel_case import WORKGROUP_SIZES
from kernels.cases import CASES, widened
from tiny_gguf import tiny_model

from pagelm.errors import DeviceError
from pagelm.kernels import Variant, compose, shaders

pytestmark = pytest.mark.browser

# An f16 cache needs a feature that SwiftShader has not: the last test here runs those cases where the adapter
# has it. Natively all run.
HALF = [case for case in CASES if case.op.variant.cache == "f16"]
PLAIN = [case for case in CASES if case.op.variant.cache == "f32"]


def message(kernel):
    return {
        "name": kernel.name,
        "source": kernel.source,
        "bindings": [{"name": b.name, "access": b.access} for b in kernel.bindings],
        "overrides": dict(kernel.overrides),
    }


def results_of(lm, case, wg):
    """The bytes of all buffers that the case's kernel may write."""
    made = {}
    for first in case.first:
        made = results_of(lm, first.after(made), wg)
    case = case.after(made)
    kernel = message(case.kernel(wg))
    assert lm.call("compile", kernel) == {"messages": [], "error": ""}
    buffers = {name: value.tobytes() for name, value in case.inputs.items()}
    results = lm.call("run_kernel", {"kernel": kernel, "buffers": buffers, "grid": list(case.grid(wg))})
    return {name: bytes(results[name]) for name in case.expect}


@pytest.mark.parametrize("workgroup_size", WORKGROUP_SIZES)
def test_every_shader_compiles_in_tint_without_a_message(browser_lm, workgroup_size):
    """Of those with rows the ones that are run too, at one size: to them it is a factor. Naga gets all."""
    cases = {case.op.variant.name: case for case in PLAIN}
    for name, source in shaders(workgroup_size).items():
        if name not in cases or (cases[name].op.variant.rows and workgroup_size != 64):
            continue
        kernel = cases[name].kernel(workgroup_size)
        answer = browser_lm.call("compile", {**message(kernel), "source": source})
        assert answer == {"messages": [], "error": ""}, name


def test_a_wrong_shader_is_told_with_its_line(browser_lm):
    """The control: the compiler's messages do arrive."""
    kernel = compose(Variant("add"), {"STRIDE": 32})
    broken = kernel.source.replace("y[t * (STRIDE / 4u) + i];", "nope[i];")
    answer = browser_lm.call("compile", {**message(kernel), "source": broken})
    assert [m["type"] for m in answer["messages"]] == ["error"]
    assert "nope" in answer["messages"][0]["text"]
    assert "nope" in broken.splitlines()[answer["messages"][0]["line"] - 1]


@pytest.mark.vendor_sensitive
@pytest.mark.parametrize("case", PLAIN, ids=lambda case: case.id)
def test_kernel_matches_numpy(browser_lm, case):
    for wg in case.workgroup_sizes:
        case.check(results_of(browser_lm, case, wg))


@pytest.mark.vendor_sensitive
@pytest.mark.parametrize(
    "case", [c for c in PLAIN if c.op.variant.scales == "f16" and "adversarial" in c.id], ids=lambda c: c.id
)
def test_scales_of_either_width_give_the_same_bits(browser_lm, case):
    """Subnormal ones among them: WGSL lets an adapter flush those."""
    assert results_of(browser_lm, case, 64) == results_of(browser_lm, widened(case), 64)


@pytest.mark.vendor_sensitive
def test_f16_caches_match_numpy_where_the_adapter_has_them_and_are_refused_elsewhere(browser_lm):
    """The page itself is asked what the adapter has."""
    asked = "async () => (await navigator.gpu.requestAdapter()).features.has('shader-f16')"
    assert len(HALF) > 10
    if browser_lm.run(browser_lm.lm.page.evaluate(asked)):
        for case in HALF:
            for wg in case.workgroup_sizes:
                case.check(results_of(browser_lm, case, wg))
        return
    told = browser_lm.call("compile", message(HALF[0].kernel(64)))
    assert "f16" in told["messages"][0]["text"]  # the compiler's own word
    browser_lm.loaded = None
    with pytest.raises(DeviceError, match=r"has no f16 in shaders \(.*shader-f16\); allowed here: f32"):
        browser_lm.call("load", {"file": tiny_model(), "cache_type": "f16"})
