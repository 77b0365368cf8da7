"""`bench --profile` in the browser: the GPU's clock, through the worker, to tables and a trace."""

from itertools import pairwise
from typing import Any

from tiny_gguf import tiny_model

from pagelm.host import profile as profiling

MODEL = tiny_model(n_layer=3)


def test_profile_in_the_browser(browser_lm: Any) -> None:
    browser_lm.load(MODEL, n_ctx=128)
    report = browser_lm.run(profiling.profile(browser_lm.lm, prompt_tokens=45, tokens=6))
    assert report["device"] == "browser" and report["copy_bytes_s"] > 1e8 and report["fma_flops_s"] > 1e8
    assert report["resolution_ns"] < profiling.ROUNDED_NS  # our flags keep Chromium from rounding
    raw = report["raw"]
    for part, tokens in ((raw["prompt"], 32), (raw["decode"], 1)):
        assert part["n_tokens"] == tokens and len(part["ops"]) == 3 * 6 + 3
        for spans in part["passes"]:
            moments = [moment for span in spans for moment in span]
            assert len(spans) == len(part["ops"]) and moments == sorted(moments) and moments[-1] > moments[0]
    assert all(a[0] < b[0] for a, b in pairwise(raw["decode"]["whole"]))
    # the tokens are those of a usual run, so what was timed is what runs
    ids = browser_lm.run(profiling.prompt_of(browser_lm.lm, 45))
    usual = browser_lm.call("generate", {"prompt": ids, "max_tokens": 7, "ignore_eos": True})
    assert raw["decode"]["ids"] == usual["ids"]
    assert "attn_qkv" in profiling.as_text(report)
    assert len(profiling.trace_of(report)["traceEvents"]) > 6 * 21
