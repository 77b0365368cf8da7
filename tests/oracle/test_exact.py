"""The ggml-exact mode against llama.cpp on tiny models of the architectures that it follows: bit for bit."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from archs import MODELS, gguf_bytes, sized
from archs.values import digest

from pagelm.errors import ArchError
from pagelm.host.oracle import Oracle
from pagelm.host.oracle.exact import FOLLOWED, TYPES
from pagelm.sources import MemorySource

CASES = json.loads((Path(__file__).parent / "llama_cpp_archs.json").read_text(encoding="utf-8"))["cases"]


def model_of(case):
    model = sized(case["name"], **case["sizes"]) if case["sizes"] else MODELS[case["name"]]
    return model.of_types(case["types"])


def oracle_of(case, exact):
    return Oracle(MemorySource(gguf_bytes(model_of(case)), f"{case['name']}.gguf"), exact=exact)


def test_there_is_a_case_of_every_architecture_that_is_followed():
    assert {model_of(case).arch for case in CASES} == set(FOLLOWED)
    types = {kind for case in CASES for kind in case["types"].values()}
    assert types == set(TYPES) - {"F32", "F16"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_exact_mode_equals_llama_cpp_bit_for_bit(case):
    assert digest(model_of(case)) == case["digest"], "the model is another one now"
    first, last = (np.frombuffer(base64.b64decode(case["logits"][k]), "<f4") for k in ("first", "last"))
    ids, n_prompt = case["ids"], case["n_prompt"]
    oracle = oracle_of(case, exact=True)
    assert np.array_equal(oracle.forward(ids[:n_prompt]), first)
    for token in ids[n_prompt:]:
        logits = oracle.forward([token])
    assert np.array_equal(logits, last)
    f32 = oracle_of(case, exact=False).forward_all(ids)[-1]
    assert 1e-3 < np.abs(f32 - last).max()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_only_q4_k_makes_a_cut_matter(case):
    """Of a prompt, llama.cpp multiplies every four tokens together, in another order than one."""
    oracle = oracle_of(case, exact=True)
    together = oracle.forward(case["ids"])
    oracle.reset()
    for token in case["ids"]:
        alone = oracle.forward([token])
    assert oracle.cut_matters == ("Q4_K" in case["types"].values())
    assert np.array_equal(together, alone) or oracle.cut_matters
    if case["name"] == "qwen3":
        assert not np.array_equal(together, alone)


def test_what_no_case_holds_it_to_is_refused():
    model = MODELS["gemma3"]
    capped = replace(model, metadata={**model.metadata, "final_logit_softcapping": 30.0})
    with pytest.raises(ArchError, match="does not follow caps of scores or logits"):
        Oracle(MemorySource(gguf_bytes(capped), "capped.gguf"), exact=True)
    odd = sized("llama", n_embd=256, n_ff=260).of_types({"ffn_up": "Q4_K", "": "F32"})
    with pytest.raises(ArchError, match=r"blk\.0\.ffn_up\.weight in Q4_K with 260 rows, only whole eights"):
        Oracle(MemorySource(gguf_bytes(odd), "odd.gguf"), exact=True)
    with pytest.raises(ArchError, match="tensors of type Q5_K, only F32"):
        other = sized("llama", n_embd=256).of_types({"ffn_up": "Q5_K", "": "F32"})
        Oracle(MemorySource(gguf_bytes(other), "other.gguf"), exact=True)
