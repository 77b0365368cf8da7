"""Reference files: every way to be malformed has its message; scores are what the rules say."""

import asyncio
import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pagelm.errors import PagelmError, SourceError
from pagelm.host import models, reference
from pagelm.host.reference import (
    FLOAT32,
    LLAMA_CPP,
    check_reference,
    first_difference,
    load_reference,
    score_case,
    total,
)

DATA = Path(__file__).parents[2] / "e2e" / "data"
N_VOCAB = 8
LLAMA = {
    "model": {"file": "tiny.gguf"},
    "cases": [
        {
            "name": "a",
            "prompt": "…",
            "ids": [1, 2],
            "greedy": [3, 4, 5],
            "firstTop10": [[3, -0.5], [4, -1.5]],
            "top2": [[-0.5, 4, -1.5], [-0.7, 1, -0.9], [-0.1, 2, -3.0]],
        },
        {
            "name": "b",
            "ids": [7],
            "greedy": [0, 0],
            "firstTop10": [[0, -0.25]],
            "top2": [[-0.25, 4, -2.0], [-0.5, 1, -0.5]],
        },
    ],
}
NAMED = {**LLAMA, "model": {"sha256": models.MODELS["gemma3"].sha256}}
F32 = {
    "cases": [
        {"name": "a", "f32FirstTop10": [[3, -0.5]], "f32Greedy": [3, 4], "f32Margins": [1.0, 0.001]},
    ]
}


@pytest.fixture
def write(tmp_path):
    def write(value, name="tiny.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
        return path

    return write


def rows(*tokens, logprob=0.0):
    """Logits whose largest is each token's, with ln p of about `logprob` for it."""
    out = np.full((len(tokens), N_VOCAB), -50.0, np.float32)
    for row, token in zip(out, tokens, strict=True):
        row[token] = 0
        if logprob:
            row[(token + 1) % N_VOCAB] = np.log(np.exp(-logprob) - 1)  # p = 1 / (1 + e^x)
    return out


def test_llama_cpp_file_is_read(write):
    ref = load_reference(write(LLAMA))
    assert (ref.name, ref.kind, ref.rule, ref.model) == ("tiny.json", "llama.cpp", LLAMA_CPP, LLAMA["model"])
    assert [c.name for c in ref.cases] == ["a", "b"]
    a = ref.cases[0]
    assert (a.ids, a.next_ids, a.first_top10) == ((1, 2), (3, 4, 5), ((3, -0.5), (4, -1.5)))
    assert a.margins == pytest.approx((1.0, 0.2, 2.9))


def test_f32_file_takes_its_prompts_from_the_file_beside_it(write):
    write(LLAMA)
    ref = load_reference(write(F32, "tiny-f32.json"))
    assert (ref.kind, ref.rule) == ("f32", FLOAT32)
    assert [(c.ids, c.next_ids, c.margins) for c in ref.cases] == [((1, 2), (3, 4), (1.0, 0.001))]


@pytest.mark.parametrize("model", ["smollm2", "gemma3"])
@pytest.mark.parametrize("kind", ["", "-f32"])
def test_real_files_are_read(model, kind):
    ref = load_reference(DATA / f"{model}{kind}.json")
    assert len(ref.cases) == 10
    packaged = models.MODELS[model]
    assert (ref.model["file"], ref.model["sha256"]) == (packaged.filename, packaged.sha256)
    for case in ref.cases:
        assert len(case.next_ids) == len(case.margins) == 48 and len(case.first_top10) == 10
        assert case.first_top10[0][0] == case.next_ids[0]
        assert min(case.margins) >= 0


def changed(path, value, base=LLAMA):
    """`base` with the field at `path` replaced, or taken out where value is `...`."""
    out = copy.deepcopy(base)
    *way, last = path
    node = out
    for key in way:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return out


HUGE = 10**400
NOT_LISTS = [..., None, 5, "3", {}, []]
BAD = [
    *[((field,), value, "cases is") for field in ["cases"] for value in [*NOT_LISTS, [5], [[]]]],
    (("model",), [], "model is"),
    *[(("cases", 0, "name"), value, "name is") for value in (..., "", 5)],
    (("cases", 1, "name"), "a", "same name"),
    *[
        (("cases", 0, "ids"), value, "case a: ids is")
        for value in [*NOT_LISTS, [1, -2], [1.0], [True], ["1"]]
    ],
    *[(("cases", 0, "greedy"), value, "case a: greedy is") for value in [*NOT_LISTS, [3, None]]],
    (("cases", 0, "greedy"), [3, 4], "2 tokens but 3 margins"),
    *[
        (("cases", 0, "firstTop10"), value, "case a: firstTop10 is")
        for value in [*NOT_LISTS, [3], [[3]], [[3, "x"]], [[-3, 0.5]], [[3, float("nan")]], [[3, HUGE]]]
    ],
    *[
        (("cases", 0, "top2"), value, "top2 is|0 margins")
        for value in [*NOT_LISTS, [1, 2, 3], [[-1, 2]] * 3, [[None, 1, 2]] * 3, [[1, 1, float("inf")]] * 3]
    ],
]


@pytest.mark.parametrize(("path", "value", "message"), BAD)
def test_malformed_file_is_refused_by_field(path, value, message, write):
    with pytest.raises(PagelmError, match=message) as caught:
        load_reference(write(changed(path, value)))
    assert "tiny.json" in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("cases", 0, "name"), "c", "no case of that name"),
        (("cases", 0, "f32Greedy"), [], "f32Greedy is"),
        (("cases", 0, "f32Margins"), [1.0], "2 tokens but 1 margins"),
        (("cases", 0, "f32Margins"), [1.0, "x"], "f32Margins is"),
        (("cases", 0, "f32FirstTop10"), ..., "f32FirstTop10 is missing"),
    ],
)
def test_malformed_f32_file_is_refused_by_field(path, value, message, write):
    write(LLAMA)
    with pytest.raises(PagelmError, match=message):
        load_reference(write(changed(path, value, F32), "tiny-f32.json"))


def test_files_that_are_no_reference_are_refused(write, tmp_path):
    for text in ("", "{", "[" * 100_000, "[]", "5"):
        with pytest.raises(PagelmError, match="not JSON|cases is missing"):
            load_reference(write(text))
    with pytest.raises(SourceError):
        load_reference(tmp_path / "none.json")
    with pytest.raises(PagelmError, match="one kind is allowed"):
        load_reference(write({"cases": [*LLAMA["cases"], *F32["cases"]]}))
    with pytest.raises(PagelmError, match=r"NAME-f32\.json"):
        load_reference(write(F32, "misnamed.json"))
    with pytest.raises(SourceError, match=r"lonely\.json"):
        load_reference(write(F32, "lonely-f32.json"))


def test_perfect_answers_score_perfectly(write):
    a = load_reference(write(LLAMA)).cases[0]
    score = score_case(a, rows(3, 4, 5, logprob=-0.5))
    assert (score.steps, score.agree, score.worst_margin, score.differs) == (3, 3, 0.0, ())
    assert score.max_logprob_diff == pytest.approx(abs(np.log(1 - np.exp(-0.5)) + 1.5), abs=1e-5)


def test_differing_steps_count_with_the_references_margin(write):
    a = load_reference(write(LLAMA)).cases[0]
    score = score_case(a, rows(3, 1, 0))
    assert (score.steps, score.agree) == (3, 1)
    assert score.worst_margin == pytest.approx(2.9)
    assert [(d.step, d.want, d.got) for d in score.differs] == [(1, 4, 1), (2, 5, 0)]


def test_first_of_equal_logits_is_the_choice(write):
    a = load_reference(write(LLAMA)).cases[0]
    logits = rows(3, 4, 5)
    logits[1, 2] = logits[1, 4]
    assert score_case(a, logits).differs[0].got == 2
    logits[1, 2], logits[1, 6] = -50, logits[1, 4]
    assert not score_case(a, logits).differs


def test_nan_agrees_with_nothing(write):
    a = load_reference(write(LLAMA)).cases[0]
    logits = rows(3, 4, 5)
    logits[0, 7] = np.nan
    score = score_case(a, logits)
    assert score.agree == 2 and score.max_logprob_diff == np.inf


def test_wrong_number_of_steps_and_foreign_model_are_refused(write):
    a, b = load_reference(write(LLAMA)).cases
    with pytest.raises(PagelmError, match="a: 2 of 3 steps"):
        score_case(a, rows(3, 4))
    with pytest.raises(PagelmError, match="more than the reference's 2 steps"):
        score_case(b, rows(0, 0, 0))
    with pytest.raises(PagelmError, match=r"has token 4, the device 4 logits.*another model"):
        score_case(a, rows(3, 1, 1)[:, :4])


def verdict(ref, *answers, logprobs=(-0.65, -0.25)):
    scores = [
        score_case(case, rows(*answer, logprob=p))
        for case, answer, p in zip(ref.cases, answers, logprobs, strict=True)
    ]
    return total(ref, scores)


def test_total_adds_up_and_applies_the_rule(write):
    ref = load_reference(write(changed(("cases", 0, "firstTop10"), [[3, -0.65]])))
    good = verdict(ref, (3, 4, 5), (0, 0))
    assert good["ok"] and (good["steps"], good["agree"], good["worst_margin"]) == (5, 5, 0.0)
    assert good["max_logprob_diff"] < 1e-5 and [c["name"] for c in good["cases"]] == ["a", "b"]
    json.dumps(good)

    few = verdict(ref, (3, 1, 5), (0, 0))  # 4 of 5 are below 95 %
    assert not few["ok"] and few["agree"] == 4 and few["worst_margin"] == pytest.approx(0.2)
    lax = reference.Rule(min_agree=0.8, max_margin=0.3, max_logprob_diff=0.5)
    lax_ref = reference.Reference(ref.name, ref.kind, ref.model, lax, ref.cases)
    assert verdict(lax_ref, (3, 1, 5), (0, 0))["ok"]  # the margin there is 0.2
    assert not verdict(lax_ref, (3, 4, 0), (0, 0))["ok"]  # and here 2.9
    assert verdict(lax_ref, (3, 4, 5), (0, 0), logprobs=(-0.2, -0.25))["ok"]  # 0.45 nats off
    assert not verdict(lax_ref, (3, 4, 5), (0, 0), logprobs=(-0.1, -0.25))["ok"]  # 0.55
    assert not total(ref, [score_case(ref.cases[0], rows(3, 4, 5, logprob=-0.65))])["ok"]  # a case is missing


def test_margin_of_a_known_outlier_is_not_asked_for_its_agreement_is(write):
    ref = load_reference(write(changed(("cases", 0, "firstTop10"), [[3, -0.65]])))

    def ruled(*outliers, min_agree=0.6):
        rule = reference.Rule(min_agree, max_margin=0.3, max_logprob_diff=0.5, outliers=outliers)
        return replace(ref, rule=rule)

    answers = (3, 1, 0), (0, 0)  # steps 1 and 2 of a differ, by 0.2 and 2.9
    assert not verdict(ruled(), *answers)["ok"]
    for other in (("a", 1), ("b", 2)):
        report = verdict(ruled(other), *answers)
        assert not report["ok"] and report["worst_margin"] == pytest.approx(2.9)
    report = verdict(ruled(("a", 2)), *answers)
    assert report["ok"] and report["agree"] == 3 and report["worst_margin"] == pytest.approx(0.2)
    assert not verdict(ruled(("a", 2), min_agree=0.7), *answers)["ok"]
    json.dumps(report)


def test_rule_is_the_model_s_own_where_it_has_one(write):
    gemma3 = load_reference(DATA / "gemma3.json")
    assert gemma3.rule == reference.LLAMA_CPP_FOR[models.MODELS["gemma3"].sha256] != LLAMA_CPP
    assert load_reference(DATA / "gemma3-f32.json").rule == FLOAT32
    assert load_reference(DATA / "smollm2.json").rule == LLAMA_CPP
    for sha256 in (..., None, [], "a5fd"):
        assert load_reference(write(changed(("model", "sha256"), sha256, NAMED))).rule == LLAMA_CPP
    steps = {(case.name, step) for case in gemma3.cases for step in range(len(case.next_ids))}
    assert {*gemma3.rule.outliers} <= steps


def test_f32_files_allow_no_difference(write):
    write(LLAMA)
    ref = load_reference(write(F32, "tiny-f32.json"))
    fine = total(ref, [score_case(ref.cases[0], rows(3, 4, logprob=-0.5))])
    assert fine["ok"]
    assert not total(ref, [score_case(ref.cases[0], rows(3, 5, logprob=-0.5))])["ok"]
    assert not total(ref, [score_case(ref.cases[0], rows(3, 4, logprob=-0.502))])["ok"]


def test_first_difference_of_a_free_run(write):
    a = load_reference(write(LLAMA)).cases[0]
    assert first_difference(a, [3, 4, 5]) is None
    assert first_difference(a, [3, 4, 5, 6]) is None
    assert first_difference(a, [3, 0, 5]) == 1
    assert first_difference(a, [3, 4]) == 2
    assert first_difference(a, []) == 0


class Answers:
    """A device that gives prepared logits and remembers what it was fed."""

    device = "fake"

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def trace(self, prompt_ids, n, forced=None):
        self.asked.append((tuple(prompt_ids), n, tuple(forced)))
        for row in rows(*self.answers.pop(0), logprob=-0.5):
            yield int(row.argmax()), row


def test_device_is_fed_the_references_tokens(write):
    device, lines = Answers((3, 1, 5), (0, 0)), []
    report = asyncio.run(check_reference(device, write(LLAMA), say=lines.append))
    assert device.asked == [((1, 2), 3, (3, 4, 5)), ((7,), 2, (0, 0))]
    assert (report["steps"], report["agree"], report["ok"]) == (5, 4, False)
    assert report["worst_margin"] == pytest.approx(0.2)
    assert [c["agree"] for c in report["cases"]] == [2, 2]
    assert len(lines) == 4 and "2 of 3" in lines[1] and lines[-1].startswith("WRONG: 4 of 5 steps agree")
