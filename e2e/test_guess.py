"""Guessed tokens: the same ids as without, on every reference prompt and where most of a text is guessed."""

import json
from pathlib import Path

import numpy as np
import pytest
from in_worker import usual_costs

import pagelm.verify
from pagelm.host.bench.guess import prompts_of

pytestmark = [pytest.mark.model, pytest.mark.vendor_sensitive]
DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "smollm2.json").read_text(encoding="utf-8"))["cases"]
F32 = {c["name"]: c for c in json.loads((DATA / "smollm2-f32.json").read_text(encoding="utf-8"))["cases"]}
REPEATS = ("emoji", "accents", "spaces")  # whose 48 tokens repeat themselves


@pytest.fixture
def guesses(request, monkeypatch):
    """(result, guessed, accepted) of greedy text on a device whose kernels for guesses are there."""
    page = request.getfixturevalue("loaded_lm")
    monkeypatch.setattr(pagelm.verify.Verifier, "took", lambda self, seconds, verified: None)

    def counted(lm, prompt, n, guess):
        before = page.run(lm.generate([5], 1, True, guess=False))["stats"]
        result = page.run(lm.generate(prompt, n, True, guess=guess))
        return result, *(result["stats"][key] - before[key] for key in ("guessed", "accepted"))

    def generate(device, prompt, n, guess=True):
        lm = page.lm if device == "browser" else request.getfixturevalue("native_lm")
        for _ in range(50):
            if counted(lm, "1, 2, 1, 2, 1, 2, 1, 2,", 16, True)[1]:
                return counted(lm, prompt, n, guess)
        raise AssertionError("nothing is guessed of a text that repeats itself")

    with usual_costs(page):
        yield generate


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_ids_on_every_reference_prompt_are_those_of_the_f32_reference(guesses, case):
    result, guessed, accepted = guesses("native", case["prompt"], 48)
    assert result["ids"] == F32[case["name"]]["f32Greedy"]
    assert 0 <= accepted <= guessed


@pytest.mark.parametrize("name", REPEATS)
def test_ids_in_the_browser_are_those_of_the_f32_reference(guesses, name):
    case = next(c for c in CASES if c["name"] == name)
    result, guessed, accepted = guesses("browser", case["prompt"], 48)
    assert result["ids"] == F32[name]["f32Greedy"]
    assert 0 < accepted <= guessed


@pytest.mark.parametrize("device", ["browser", pytest.param("native", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", prompts_of())
def test_rewriting_is_guessed_and_changes_no_id(guesses, device, name):
    prompt = prompts_of()[name]
    plain, nothing, _ = guesses(device, prompt, 64, guess=False)
    result, guessed, accepted = guesses(device, prompt, 64)
    assert (result["ids"], result["text"]) == (plain["ids"], plain["text"])
    assert nothing == 0 and guessed / 2 < accepted <= guessed


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_among_guesses(loaded_lm, native_lm):
    """The logits of every token up to the first wrong guess are those of plain steps."""
    model, ids = native_lm.model, CASES[0]["ids"]

    async def steps():
        return [step async for step in native_lm.trace(ids, 5)]

    plain = loaded_lm.run(steps())
    chosen = [token for token, _ in plain]

    async def verified(guesses):
        while not model._verifier.ready(model._buffers, model._pipelines):
            await native_lm.generate(ids, 2, True)
        await native_lm.generate(ids, 1, True)  # the prompt, and its first token
        verdict = await model._submit_guesses(guesses)[0]
        taken = model._verified(guesses, verdict)
        raw = await model._gpu.read(model._buffers["logits"], 0, 4 * model.hparams.n_vocab * len(taken))
        peeked = await model.peek("logits"), await model.peek("x")
        model.reset()
        return taken, np.frombuffer(raw, np.float32).reshape(len(taken), -1), peeked

    wrong = (chosen[2] + 1) % model.hparams.n_vocab
    for guesses, right in (
        (chosen[1:4], 3),
        ([chosen[1], wrong, chosen[3]], 1),
        ([wrong, chosen[2]], 0),
        (chosen[1:2], 1),
    ):
        taken, logits, (last, x) = loaded_lm.run(verified(guesses))
        assert taken == chosen[1 : right + 2]
        for row, (_, want) in zip(logits, plain[1:], strict=False):
            assert np.array_equal(row, want)
        assert np.array_equal(np.array(last, np.float32), plain[right + 1][1])
        assert np.isfinite(x).all() and len(x) == model.hparams.n_embd
