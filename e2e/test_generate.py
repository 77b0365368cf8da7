"""The default model against the independent references, in the browser and natively."""

import json
from pathlib import Path

import numpy as np
import pytest

from pagelm.host.check import PROMPTS, check
from pagelm.host.oracle import Oracle

pytestmark = [pytest.mark.model, pytest.mark.vendor_sensitive]
DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "smollm2.json").read_text(encoding="utf-8"))["cases"]
F32 = {c["name"]: c for c in json.loads((DATA / "smollm2-f32.json").read_text(encoding="utf-8"))["cases"]}
DEVICES = [pytest.param("lm", marks=pytest.mark.browser), pytest.param("native_lm", marks=pytest.mark.gpu)]


@pytest.fixture(scope="session")
def oracle(model_path):
    return Oracle(model_path, n_ctx=512)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_greedy_ids_equal_the_f32_reference(run, request, device, case):
    lm = request.getfixturevalue(device)
    pieces: list[str] = []
    result = run(lm.generate(case["prompt"], 48, True, pieces.append))
    assert result["prompt_ids"] == case["ids"]
    assert result["ids"] == F32[case["name"]]["f32Greedy"]
    assert result["stop_reason"] == "length"
    assert "".join(pieces) == result["text"]
    assert "�" not in result["text"][:-1]


@pytest.mark.parametrize("device", DEVICES)
def test_check_finds_the_device_right(run, request, oracle, device):
    report = run(check(request.getfixturevalue(device), oracle))
    assert report["ok"], report
    assert report["ids_equal"] and report["max_rel_logit_diff"] <= 1e-5
    assert report["prompts"] == len(PROMPTS) >= 10 and report["steps"] == 32


@pytest.mark.browser
@pytest.mark.gpu
def test_browser_and_native_agree(traced, lm, native_lm):
    """Two adapters, two compilers, the same WGSL."""
    ids = CASES[1]["ids"]
    for (a, in_page), (b, outside) in zip(traced(lm, ids, 8), traced(native_lm, ids, 8), strict=True):
        assert a == b
        assert np.abs(in_page - outside).max() <= 1e-5 * np.abs(outside).max()


@pytest.mark.browser
def test_end_token_stops_and_is_not_emitted(run, lm):
    chat = next(c for c in CASES if c["name"] == "english-list")
    result = run(lm.generate(chat["prompt"], 48, False))
    expected = F32["english-list"]["f32Greedy"]
    end = next((i for i, token in enumerate(expected) if token in (0, 2)), None)
    assert end is not None, "the reference of this case has an end token"
    assert result["stop_reason"] == "eos"
    assert result["ids"] == expected[:end]


@pytest.mark.browser
def test_two_runs_are_bit_identical(traced, lm):
    ids = CASES[0]["ids"]
    for (a, x), (b, y) in zip(traced(lm, ids, 4), traced(lm, ids, 4), strict=True):
        assert a == b
        assert np.array_equal(x, y)
