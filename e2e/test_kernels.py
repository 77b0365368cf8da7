"""Every kernel in the browser: compiled by Tint for every workgroup size, and compared with numpy."""

import pytest
from kernel_case import WORKGROUP_SIZES, KernelCase
from kernels.cases import CASES

from pagelm.kernels import Variant, compose, shaders

pytestmark = pytest.mark.browser


def message(kernel):
    return {
        "name": kernel.name,
        "source": kernel.source,
        "bindings": [{"name": b.name, "access": b.access} for b in kernel.bindings],
        "overrides": dict(kernel.overrides),
    }


@pytest.mark.parametrize("workgroup_size", WORKGROUP_SIZES)
def test_every_shader_compiles_in_tint_without_a_message(browser_lm, workgroup_size):
    by_name = {case.kernel(64).name: case for case in CASES}
    sources = shaders(workgroup_size)
    assert by_name.keys() == sources.keys()
    for name, source in sources.items():
        kernel = by_name[name].kernel(workgroup_size)
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


def run_in_browser(browser_lm, case: KernelCase, wg: int) -> bytes:
    buffers = {name: value.tobytes() for name, value in case.inputs.items()}
    args = {"kernel": message(case.kernel(wg)), "buffers": buffers, "grid": list(case.grid(wg))}
    return bytes(browser_lm.call("run_kernel", args)[case.output])


@pytest.mark.vendor_sensitive
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_kernel_matches_numpy(browser_lm, case):
    for wg in case.workgroup_sizes:
        case.check(run_in_browser(browser_lm, case, wg))
