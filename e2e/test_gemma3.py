"""A real model of another architecture, with K-quants and 262,144 tokens: Gemma 3 270M, page and native.

Of the prompts the browser runs SOME and natively all run, teacher-forced and `check` run a few; with
PAGELM_ALL_PROMPTS all run everywhere.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import N_CTX, SyncBrowserLm, failed, results_of
from processes import MIB, Peak, renderers, rss

from pagelm.host.browser_lm import BrowserLm
from pagelm.host.check import PROMPTS, check
from pagelm.host.native_lm import NativeLm
from pagelm.host.oracle import Oracle
from pagelm.host.reference import load_reference, score_case, total

pytestmark = [pytest.mark.gemma3, pytest.mark.vendor_sensitive]
DATA = Path(__file__).parent / "data"
LLAMA_CPP = load_reference(DATA / "gemma3.json")
PROMPT_TEXTS = {
    c["name"]: c["prompt"] for c in json.loads((DATA / "gemma3.json").read_text("utf-8"))["cases"]
}
F32 = {case.name: case for case in load_reference(DATA / "gemma3-f32.json").cases}
TOKENS = json.loads((DATA / "gemma3-tokens.json").read_text("utf-8"))
ALL = bool(os.environ.get("PAGELM_ALL_PROMPTS"))
SOME = ("code-python", "emoji", "chat-one")  # the outlier, byte tokens, special tokens
CHECKED = PROMPTS[4:8:2] + PROMPTS[-1:]  # umlauts, emoji; and more tokens than go into one submit
CASES = [
    pytest.param(device, name, marks=[pytest.mark.gpu] if device == "native" else [])
    for device, names in (("browser", F32 if ALL else SOME), ("native", F32))
    for name in names
]
LONG_CTX = 1024  # tokens; the sliding window has 512
LONG = "".join(f"While {i} green bottles stand on the wall nobody counts them twice. " for i in range(40))
DEVICES = ["browser", pytest.param("native", marks=pytest.mark.gpu)]


class Loading:
    """What loading in the page took: bytes of memory, seconds, and the page's own account of it."""

    def __init__(self, info: dict[str, Any], heap: int, process: int, seconds: float) -> None:
        self.info, self.heap, self.process, self.seconds = info, heap, process, seconds


@pytest.fixture(scope="module")
def _page(wheel, gemma3_path, _software_adapter) -> Iterator[SyncBrowserLm]:
    """A worker of its own with the model; loaded once, measured meanwhile (`lm.loading`)."""
    lm = SyncBrowserLm()
    try:
        before = renderers()
        lm.start(gemma3_path, wheel=wheel)
        pids = renderers() - before
        heap, resident = lm.call("memory")["wasm_bytes"], rss(pids)
        start = time.perf_counter()
        with Peak(pids) as peak:
            info = lm.load(n_ctx=N_CTX)
        seconds = time.perf_counter() - start
        lm.loading = Loading(info, info["wasm_bytes"] - heap, peak.bytes - resident, seconds)
        yield lm
    finally:
        lm.close()


@pytest.fixture
def gemma_page(_page, request) -> Iterator[SyncBrowserLm]:
    yield _page
    if failed(request):
        (results_of(request) / "console.log").write_text("\n".join(_page.lm.log) + "\n")


@pytest.fixture(scope="module")
def _native(_page, gemma3_path) -> Iterator[NativeLm]:
    lm = _page.run(NativeLm.open(str(gemma3_path), n_ctx=LONG_CTX))
    yield lm
    _page.run(lm.close())


@pytest.fixture
def run(_page):
    return _page.run


@pytest.fixture
def lm_of(request, gemma_page):
    """A device's Lm with the model, by the device's name."""

    def find(device: str) -> BrowserLm | NativeLm:
        return gemma_page.lm if device == "browser" else request.getfixturevalue("_native")

    return find


@pytest.mark.parametrize(("device", "name"), CASES)
def test_greedy_ids_equal_the_f32_reference(lm_of, run, device, name):
    case = F32[name]
    pieces: list[str] = []
    result = run(lm_of(device).generate(PROMPT_TEXTS[name], len(case.next_ids), True, pieces.append))
    assert tuple(result["prompt_ids"]) == case.ids
    assert tuple(result["ids"]) == case.next_ids
    assert len(case.next_ids) == 48 and result["stop_reason"] == "length"
    assert "".join(pieces) == result["text"]


@pytest.mark.parametrize("device", DEVICES)
def test_rule_of_the_llama_cpp_file_is_met(lm_of, run, device):
    """Teacher-forced. That the oracle meets it on all prompts is a test of its own."""
    cases = tuple(case for case in LLAMA_CPP.cases if ALL or case.name in SOME[:2])
    lm = lm_of(device)

    async def score(case):
        steps = lm.trace(case.ids, len(case.next_ids), forced=case.next_ids)
        return score_case(case, [logits async for _, logits in steps])

    report = total(replace(LLAMA_CPP, cases=cases), [run(score(case)) for case in cases])
    assert report["ok"] and report["steps"] == 48 * len(cases), report


@pytest.mark.parametrize("device", DEVICES)
def test_check_finds_the_device_right(lm_of, run, device, gemma3_path):
    oracle = Oracle(gemma3_path, n_ctx=N_CTX)
    prompts, steps = (PROMPTS, 32) if ALL else (CHECKED, 8)
    report = run(check(lm_of(device), oracle, prompts, steps=steps))
    print(f"{device}: {report['max_rel_logit_diff']:.2g} of the largest logit, at most")
    assert report["ok"], report
    assert report["ids_equal"] and report["max_rel_logit_diff"] <= 1e-5
    assert (report["prompts"], report["steps"]) == (len(prompts), steps)


@pytest.mark.gpu
def test_prompt_longer_than_the_window_is_right(_native, run, gemma3_path):
    assert 512 + 32 < len(run(_native.encode(LONG))) < LONG_CTX - 4
    report = run(check(_native, Oracle(gemma3_path, n_ctx=LONG_CTX), [LONG], steps=4))
    assert report["ok"] and report["prompts"] == 1, report


@pytest.mark.gpu
def test_browser_and_native_agree(gemma_page, _native):
    ids = list(F32["accents"].ids)

    async def native():
        return [step async for step in _native.trace(ids, 8)]

    for (a, in_page), (b, outside) in zip(gemma_page.trace(ids, 8), gemma_page.run(native()), strict=True):
        assert a == b
        assert np.abs(in_page - outside).max() <= 1e-5 * np.abs(outside).max()


def test_ids_and_texts_in_the_page_are_llama_cpp_s(gemma_page):
    assert len(TOKENS["vectors"]) == 140
    for vector in TOKENS["vectors"]:
        text = vector["text"]
        ids = gemma_page.call("encode", {"text": text})
        assert ids == vector["ids"], text
        plain = gemma_page.call("encode", {"text": text, "parse_special": False})
        assert plain == vector.get("idsNoSpecial", vector["ids"]), text
        assert gemma_page.call("decode", {"ids": ids}) == vector.get("detokenized", text)


def test_loading_takes_little_memory(gemma_page, gemma3_path):
    loading, size = gemma_page.loading, gemma3_path.stat().st_size
    plan = loading.info["plan"]
    print(
        f"wasm +{loading.heap / MIB:.1f} MiB, renderer +{loading.process / MIB:.1f} MiB, "
        f"GPU {loading.info['memory_used'] / size:.3f} of the file, loaded in {loading.seconds:.2f} s"
    )
    assert loading.info["size"] == size
    assert size * 0.9 < loading.info["memory_used"] <= 1.10 * size + plan["kv_cache"] + 32e6
    assert loading.heap <= 48 * MIB
    assert loading.process <= 160 * MIB
