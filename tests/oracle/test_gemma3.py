"""Gemma 3 270M: float32 against an independent float32 pass, ggml-exact against llama.cpp."""

import os
from pathlib import Path

import numpy as np
import pytest

from pagelm.host.oracle import Oracle
from pagelm.host.oracle.ops import log_softmax
from pagelm.host.reference import load_reference, score_case, total

pytestmark = pytest.mark.gemma3
DATA = Path(__file__).parents[2] / "e2e" / "data"
F32 = load_reference(DATA / "gemma3-f32.json")
LLAMA_CPP = load_reference(DATA / "gemma3.json")
EXACT = LLAMA_CPP.cases if os.environ.get("PAGELM_ALL_PROMPTS") else LLAMA_CPP.cases[:3]


@pytest.fixture(scope="module")
def f32(gemma3_path):
    return Oracle(gemma3_path, n_ctx=128)


def forced(oracle, case):
    """Logits of each step when the reference's tokens are fed."""
    oracle.reset()
    return oracle.forward_all([*case.ids, *case.next_ids[:-1]], first=len(case.ids) - 1)


@pytest.fixture(scope="module")
def exact(gemma3_path):
    return Oracle(gemma3_path, exact=True, n_ctx=128)


def test_rule_of_the_float32_file_is_met(f32):
    """Fed the reference's tokens it chooses the same ones, and so it does when it goes on by itself."""
    report = total(F32, [score_case(case, forced(f32, case)) for case in F32.cases])
    assert report["ok"] and report["agree"] == report["steps"] == 480
    assert report["max_logprob_diff"] < 5e-5  # the file has five decimals


def test_rule_of_the_llama_cpp_file_is_met_and_no_other_step_is_an_outlier(f32):
    scores = [score_case(case, forced(f32, case)) for case in LLAMA_CPP.cases]
    assert total(LLAMA_CPP, scores)["ok"]
    limit = LLAMA_CPP.rule.max_margin
    beyond = tuple((s.name, d.step) for s in scores for d in s.differs if d.margin > limit)
    assert beyond == LLAMA_CPP.rule.outliers


def test_independent_float32_pass_differs_from_llama_cpp_at_the_outliers_too():
    free, fed = ({case.name: case.next_ids for case in ref.cases} for ref in (F32, LLAMA_CPP))
    for name, step in LLAMA_CPP.rule.outliers:
        assert free[name][:step] == fed[name][:step]
        assert free[name][step] != fed[name][step]


@pytest.mark.parametrize("case", EXACT, ids=lambda case: case.name)
def test_exact_log_probabilities_are_llama_cpps_after_the_prompt(exact, case):
    """To the file's five decimals, but for its normaliser, which is a float32 sum of 262,144 terms."""
    exact.reset()
    logits = exact.forward(case.ids)
    assert logits.argmax() == case.next_ids[0]
    ids, theirs = zip(*case.first_top10, strict=True)
    off = log_softmax(logits)[list(ids)] - theirs
    assert np.ptp(off) < 1.5e-5 and np.abs(off).max() < 3e-3


@pytest.mark.parametrize("name", ["english-short", "code-python"])
def test_exact_leads_are_llama_cpps_at_every_step(exact, name, steps=8):
    """Prompts of 6 and 19 tokens: some are multiplied with Q4_K four at a time, some alone."""
    case = next(case for case in LLAMA_CPP.cases if case.name == name)
    exact.reset()
    feeds = [list(case.ids), *([token] for token in case.next_ids[: steps - 1])]
    for feed, token, margin in zip(feeds, case.next_ids, case.margins, strict=False):
        logits = exact.forward(feed).astype(np.float64)
        assert logits.argmax() == token
        assert logits[token] - np.partition(logits, -2)[-2] == pytest.approx(margin, abs=1.1e-5)
