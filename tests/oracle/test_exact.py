"""The ggml-exact mode against llama.cpp on tiny models of the architectures that it follows: bit for bit."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from archs import MODELS, gguf_bytes, sized
from archs.references import log_softmax
from archs.values import digest

from pagelm.errors import ArchError
from pagelm.host.oracle import Oracle
from pagelm.host.oracle.exact import BIT_FOR_BIT, BUT_FOR_ORDER, FOLLOWED, IN_EIGHTS, OF_A_CUT
from pagelm.quants import SUPPORTED
from pagelm.sources import MemorySource

ALL = json.loads((Path(__file__).parent / "llama_cpp_archs.json").read_text(encoding="utf-8"))["cases"]
CASES = [case for case in ALL if set(case["types"].values()) <= set(BIT_FOR_BIT)]
(BF16,) = (case for case in ALL if case not in CASES)


def model_of(case):
    model = sized(case["name"], **case["sizes"]) if case["sizes"] else MODELS[case["name"]]
    return model.of_types(case["types"])


def oracle_of(case, exact):
    return Oracle(MemorySource(gguf_bytes(model_of(case)), f"{case['name']}.gguf"), exact=exact)


def logits_of(case):
    """llama.cpp's, after the prompt and after the last id."""
    assert digest(model_of(case)) == case["digest"], "the model is another one now"
    return (np.frombuffer(base64.b64decode(case["logits"][k]), "<f4") for k in ("first", "last"))


def test_there_is_a_case_of_every_architecture_that_is_followed():
    assert {model_of(case).arch for case in CASES} == set(FOLLOWED)
    types = {kind for case in CASES for kind in case["types"].values()}
    assert types == set(BIT_FOR_BIT)
    assert set(BIT_FOR_BIT) | set(BUT_FOR_ORDER) == set(SUPPORTED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{case['n_prompt']}")
def test_exact_mode_equals_llama_cpp_bit_for_bit(case):
    first, last = logits_of(case)
    ids, n_prompt = case["ids"], case["n_prompt"]
    oracle = oracle_of(case, exact=True)
    assert np.array_equal(oracle.forward(ids[:n_prompt]), first)
    for token in ids[n_prompt:]:
        logits = oracle.forward([token])
    assert np.array_equal(logits, last)
    f32 = oracle_of(case, exact=False).forward_all(ids)[-1]
    assert 1e-3 < np.abs(f32 - last).max()


def test_bf16_is_exact_but_for_the_order_of_sums():
    """After one token; later a last bit that differs makes another half float of a key, value or product."""

    def error(logits, want):
        x, y = log_softmax(logits), log_softmax(want)
        return np.mean((x - y) ** 2) / np.var(y)

    first, last = logits_of(BF16)
    exact, f32 = oracle_of(BF16, exact=True), oracle_of(BF16, exact=False)
    assert error(exact.forward(BF16["ids"][:1]), first) < 1e-12
    assert error(f32.forward(BF16["ids"][:1]), first) > 1e-6
    for token in BF16["ids"][1:]:
        logits, plain = exact.forward([token]), f32.forward([token])
    assert error(logits, last) < 5e-5 < 1e-4 < error(plain, last)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['name']}-{case['n_prompt']}")
def test_only_types_that_say_so_make_a_cut_matter(case):
    """Of a prompt, llama.cpp multiplies every four tokens together, in another order than one."""
    oracle = oracle_of(case, exact=True)
    together = oracle.forward(case["ids"])
    oracle.reset()
    for token in case["ids"]:
        alone = oracle.forward([token])
    assert oracle.cut_matters == bool(set(OF_A_CUT) & set(case["types"].values()))
    assert np.array_equal(together, alone) or oracle.cut_matters
    if case["n_prompt"] in (20, 23):
        assert not np.array_equal(together, alone)


def test_what_no_case_holds_it_to_is_refused():
    model = MODELS["gemma3"]
    capped = replace(model, metadata={**model.metadata, "final_logit_softcapping": 30.0})
    with pytest.raises(ArchError, match="does not follow caps of scores or logits"):
        Oracle(MemorySource(gguf_bytes(capped), "capped.gguf"), exact=True)


@pytest.mark.parametrize("kind", IN_EIGHTS)
def test_rows_that_are_no_whole_eights_are_refused(kind):
    odd = sized("llama", n_embd=256, n_ff=260).of_types({"ffn_up": kind, "": "F32"})
    with pytest.raises(ArchError, match=rf"ffn_up\.weight in {kind} with 260 rows, only whole eights"):
        Oracle(MemorySource(gguf_bytes(odd), "odd.gguf"), exact=True)
