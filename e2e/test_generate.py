"""The default model against the independent references, in the browser and natively."""

import json
from pathlib import Path

import numpy as np
import pytest
from requantise import requantise

from pagelm.host.check import PROMPTS, check
from pagelm.host.oracle import Oracle

pytestmark = [pytest.mark.model, pytest.mark.vendor_sensitive]
DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "smollm2.json").read_text(encoding="utf-8"))["cases"]
F32 = {c["name"]: c for c in json.loads((DATA / "smollm2-f32.json").read_text(encoding="utf-8"))["cases"]}
DEVICES = ["browser", pytest.param("native", marks=pytest.mark.gpu)]


@pytest.fixture
def device(request):
    """A device's Lm with the default model, and the way to run its coroutines."""
    page = request.getfixturevalue("loaded_lm")
    return page.lm if request.param == "browser" else request.getfixturevalue("native_lm"), page.run


@pytest.fixture(scope="session")
def oracle(model_path):
    return Oracle(model_path, n_ctx=512)


@pytest.mark.parametrize("device", DEVICES, indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_greedy_ids_equal_the_f32_reference(device, case):
    lm, run = device
    pieces: list[str] = []
    result = run(lm.generate(case["prompt"], 48, True, pieces.append))
    assert result["prompt_ids"] == case["ids"]
    assert result["ids"] == F32[case["name"]]["f32Greedy"]
    assert result["stop_reason"] == "length"
    assert "".join(pieces) == result["text"]
    assert "�" not in result["text"][:-1]


@pytest.mark.parametrize("device", DEVICES, indirect=True)
def test_check_finds_the_device_right(device, oracle):
    lm, run = device
    report = run(check(lm, oracle))
    assert report["ok"], report
    assert report["ids_equal"] and report["max_rel_logit_diff"] <= 1e-5
    assert report["prompts"] == len(PROMPTS) >= 10 and report["steps"] == 32


@pytest.mark.gpu
def test_browser_and_native_agree(loaded_lm, native_lm):
    """Two adapters, two compilers, the same WGSL."""
    ids = CASES[1]["ids"]

    async def native():
        return [step async for step in native_lm.trace(ids, 8)]

    for (a, in_page), (b, outside) in zip(loaded_lm.trace(ids, 8), loaded_lm.run(native()), strict=True):
        assert a == b
        assert np.abs(in_page - outside).max() <= 1e-5 * np.abs(outside).max()


def test_end_token_stops_and_is_not_emitted(loaded_lm):
    case = next(c for c in CASES if c["name"] == "english-list")
    result = loaded_lm.run(loaded_lm.lm.generate(case["prompt"], 48, False))
    expected = F32["english-list"]["f32Greedy"]
    end = next((i for i, token in enumerate(expected) if token in (0, 2)), None)
    assert end is not None, "the reference of this case has an end token"
    assert result["stop_reason"] == "eos"
    assert result["ids"] == expected[:end]


def test_two_runs_are_bit_identical(loaded_lm):
    ids = CASES[0]["ids"]
    for (a, x), (b, y) in zip(loaded_lm.trace(ids, 4), loaded_lm.trace(ids, 4), strict=True):
        assert a == b
        assert np.array_equal(x, y)


def test_q4_0_requantisation_is_right_in_the_page(browser_lm, model_path, tmp_path):
    path = tmp_path / "q4_0.gguf"
    requantise(model_path, path, "Q4_0")
    browser_lm.loaded = None
    browser_lm.call("load", {"file": path.read_bytes(), "n_ctx": 128})  # a file that no server has
    report = browser_lm.run(check(browser_lm.lm, Oracle(path, n_ctx=128), PROMPTS[:4], steps=8))
    assert report["ok"], report
