"""The calls of page/service.py: one at a time, typed errors, and what they answer agrees with each other."""

import array
import asyncio
from typing import Any

import numpy as np
import pytest
from tiny_gguf import tiny_model

from pagelm.errors import BusyError, LimitError, PagelmError, ShaderError, SourceError

IDS = [3, 40, 77, 120]
BINDINGS = [{"name": "x", "access": "read"}, {"name": "y", "access": "read_write"}]
COPY = """@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
override ADD: u32;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3u) { y[at.x] = x[at.x] + ADD; }
"""


@pytest.fixture
def tiny_lm(browser_lm: Any) -> Any:
    """`browser_lm` with a tiny model loaded."""
    browser_lm.load(tiny_model(), 64)
    return browser_lm


def test_second_call_is_refused_while_one_runs_but_memory_answers(browser_lm: Any) -> None:
    browser_lm.load(tiny_model(n_layer=24), 256)
    call = browser_lm.lm.call

    async def both() -> tuple[Any, Any, Any]:
        started = asyncio.Event()
        args = {"prompt": IDS, "max_tokens": 200, "ignore_eos": True}  # outlasts two round trips anywhere
        running = asyncio.ensure_future(call("generate", args, lambda event: started.set()))
        await started.wait()
        memory = await call("memory")
        with pytest.raises(BusyError, match="wait for it or cancel it"):
            await call("labels")
        return memory, await running, await call("labels")

    memory, answer, labels = browser_lm.run(both())
    assert memory["wasm_bytes"] > 1 << 20
    assert len(answer["ids"]) == 200
    assert labels[0] == "embed" and labels[-1] == "output"


def test_cancelling_a_call_that_is_over_says_so(tiny_lm: Any) -> None:
    assert tiny_lm.call("cancel", {"id": 123456}) is False


def test_trace_values_and_generate_tell_the_same(tiny_lm: Any) -> None:
    steps = tiny_lm.trace(IDS, 5)
    ids = [best for best, _ in steps]
    answer = tiny_lm.call("generate", {"prompt": IDS, "max_tokens": 5, "ignore_eos": True})
    assert answer["ids"] == ids
    assert answer["prompt_ids"] == IDS
    for best, logits in steps:
        assert int(np.argmax(logits)) == best
    values = np.frombuffer(tiny_lm.call("values", {"ids": IDS, "name": "logits"}), np.float32)
    # prompt and decode kernels need not sum in the same order
    np.testing.assert_allclose(values, steps[0][1], rtol=0, atol=1e-5 * np.abs(values).max())
    row = tiny_lm.call("values", {"ids": IDS, "stop": "blk.0.attn_norm", "name": "h", "n": 7})
    assert len(row) == 7 and any(row)


def test_forced_ids_replace_the_chosen_ones(tiny_lm: Any) -> None:
    free = tiny_lm.trace(IDS, 3)
    same = tiny_lm.trace(IDS, 3, [best for best, _ in free])
    other = tiny_lm.trace(IDS, 3, [(best + 1) % 200 for best, _ in free])
    assert [best for best, _ in same] == [best for best, _ in free]
    np.testing.assert_array_equal(same[2][1], free[2][1])
    np.testing.assert_array_equal(other[0][1], free[0][1])
    assert not np.array_equal(other[1][1], free[1][1])


def test_text_comes_back_from_its_ids(tiny_lm: Any) -> None:
    text = "hello <|im_start|>wörld"
    ids = tiny_lm.call("encode", {"text": text})
    assert tiny_lm.call("decode", {"ids": ids}) == text
    plain = tiny_lm.call("encode", {"text": text, "parse_special": False})
    assert len(plain) > len(ids)
    assert tiny_lm.call("decode", {"ids": plain}) == text


def test_bug_of_the_caller_comes_with_a_traceback(tiny_lm: Any) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)unexpected keyword argument 'temperature'.*Traceback"):
        tiny_lm.call("generate", {"prompt": IDS, "temperature": 1})


def test_failed_load_leaves_nothing_loaded_and_the_next_one_works(browser_lm: Any) -> None:
    browser_lm.load(tiny_model(), 64)
    browser_lm.loaded = None
    with pytest.raises(SourceError, match="404"):
        browser_lm.call("load", {"url": "/no-such-model.gguf"})
    assert browser_lm.call("info")["loaded"] is False
    with pytest.raises(PagelmError, match="call load first"):
        browser_lm.call("generate", {"prompt": IDS})
    with pytest.raises(LimitError, match="budget|memory"):
        browser_lm.call("load", {"file": tiny_model(), "memory_budget": 10_000})
    info = browser_lm.load(tiny_model(), 64)
    assert info["n_ctx"] == 64
    assert info["memory_used"] == sum(
        info["plan"][part] for part in ("weights", "kv_cache", "activations", "tables")
    )
    assert info["metadata"]["general.architecture"] == "llama"
    assert info["metadata"]["tokenizer.ggml.tokens"] == {"length": info["n_vocab"]}


def test_kernels_run_and_their_errors_are_told(browser_lm: Any) -> None:
    kernel = {"name": "copy", "source": COPY, "bindings": BINDINGS, "overrides": {"ADD": 5}}
    x = array.array("I", range(6))
    given = {"kernel": kernel, "buffers": {"x": x, "y": 24}, "grid": [6, 1, 1]}
    assert array.array("I", browser_lm.call("run_kernel", given)["y"]).tolist() == [5, 6, 7, 8, 9, 10]
    assert browser_lm.call("compile", kernel) == {"messages": [], "error": ""}
    wrong = {**kernel, "source": COPY.replace("u32;", "u23;")}
    told = browser_lm.call("compile", wrong)
    assert [(m["type"], m["line"]) for m in told["messages"]] == [("error", 3)]
    assert "u23" in told["messages"][0]["text"]
    with pytest.raises(ShaderError, match="copy:3:15 .*u23"):
        browser_lm.call("run_kernel", {**given, "kernel": wrong})
