"""The default model: float32 against an independent float32 pass, ggml-exact against llama.cpp."""

from pathlib import Path

import numpy as np
import pytest

from pagelm.host.oracle import Oracle
from pagelm.host.oracle.ops import log_softmax
from pagelm.host.reference import first_difference, load_reference, score_case, total

pytestmark = pytest.mark.model
DATA = Path(__file__).parents[2] / "e2e" / "data"
LLAMA_CPP = load_reference(DATA / "smollm2.json")
F32 = load_reference(DATA / "smollm2-f32.json")


@pytest.fixture(scope="module")
def f32(model_path):
    return Oracle(model_path, n_ctx=128)


@pytest.fixture(scope="module")
def exact(model_path):
    return Oracle(model_path, exact=True, n_ctx=128)


def forced(oracle, case):
    """Logits of each step when the reference's tokens are fed."""
    oracle.reset()
    return oracle.forward_all([*case.ids, *case.next_ids[:-1]], first=len(case.ids) - 1)


@pytest.mark.parametrize("case", F32.cases, ids=lambda case: case.name)
def test_float32_greedy_ids_equal_the_reference(f32, case):
    f32.reset()
    ids, feed = [], list(case.ids)
    for _ in case.next_ids:
        feed = [int(f32.forward(feed).argmax())]
        ids += feed
    assert first_difference(case, ids) is None


def test_float32_meets_its_rule_on_the_float32_file(f32):
    report = total(F32, [score_case(case, forced(f32, case)) for case in F32.cases])
    assert report["ok"] and report["agree"] == report["steps"] == 480
    assert report["max_logprob_diff"] < 5e-5  # the file has five decimals


def test_exact_mode_equals_llama_cpp_where_float32_only_meets_the_rule(f32, exact):
    plain = total(LLAMA_CPP, [score_case(case, forced(f32, case)) for case in LLAMA_CPP.cases])
    assert plain["ok"]
    same = total(LLAMA_CPP, [score_case(case, forced(exact, case)) for case in LLAMA_CPP.cases])
    assert same["ok"] and same["agree"] == same["steps"] == 480
    assert plain["agree"] < same["agree"]
    # The logits are llama.cpp's bit for bit (see llama_cpp.json); the file's log probabilities were
    # normalised in float32, over 49,152 terms.
    assert same["max_logprob_diff"] < 1e-3 < plain["max_logprob_diff"]


def test_exact_log_probabilities_are_llama_cpps_at_every_step(exact):
    case = LLAMA_CPP.cases[0]
    logits = forced(exact, case)
    # Differences of log probabilities know nothing of the normaliser; llama.cpp's have five decimals.
    best, top = log_softmax(logits), np.arange(len(logits))
    lead = best[top, list(case.next_ids)] - np.sort(best, axis=1)[:, -2]
    assert lead == pytest.approx(np.array(case.margins), abs=1.1e-5)
