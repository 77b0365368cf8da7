"""`bench --guess`: both kinds take turns on the same prompts, and must bring the same ids."""

import asyncio

import pytest
from fake_lm import FakeLm

from pagelm.errors import PagelmError
from pagelm.host.bench import guess as bench_guess


class GuessingLm(FakeLm):
    """Twice as fast with guesses, three of four of which are right; `wrong` changes an id then."""

    def __init__(self, wrong=False, stop_after=None):
        super().__init__()
        self.wrong, self.stop_after = wrong, stop_after
        self.asked = []
        self.counts |= {"guessed": 0, "accepted": 0}

    async def generate(self, prompt, max_tokens, ignore_eos, emit=None, guess=True):
        self.asked.append((prompt, guess, ignore_eos))
        result = await super().generate(prompt, self.stop_after or max_tokens, True, emit)
        result["timing"]["decode_tok_s"] = 20.0 if guess else 10.0
        if guess:
            self.counts["guessed"] += 4
            self.counts["accepted"] += 3
            result["ids"][-1] += self.wrong
        result["stats"] |= {key: self.counts[key] for key in ("guessed", "accepted")}
        return result


def bench(lm, **options):
    return asyncio.run(bench_guess.bench(lm, {"one": "a b a b", "two": "c d"}, **options))


def test_report_compares_both_kinds_prompt_by_prompt():
    lm = GuessingLm()
    report = bench(lm, gen=8, rounds=3)
    one = report["prompts"]["one"]
    assert (one["plain_tok_s"]["p50"], one["guess_tok_s"]["p50"], one["ratio"]) == (10.0, 20.0, 2.0)
    assert (one["tokens"], one["guessed"], one["accepted"], one["acceptance"]) == (8, 4, 3, 0.75)
    assert (report["median_ratio"], report["min_ratio"]) == (2.0, 2.0)
    assert [guess for _, guess, _ in lm.asked] == [False, True] * 8  # and a warm-up of each
    assert not any(ignore_eos for *_, ignore_eos in lm.asked)
    text = bench_guess.as_text(report)
    assert "one           10.00 -> 20.00 tok/s, x 2.00; 8 tokens, 75% of 4 right" in text


def test_other_ids_with_guesses_are_an_error():
    with pytest.raises(PagelmError, match="prompt one: guessing changed the ids"):
        bench(GuessingLm(wrong=True))


def test_an_answer_too_short_to_be_timed_is_an_error():
    with pytest.raises(PagelmError, match="prompt one is answered with 1 tokens; 2 can be timed"):
        bench(GuessingLm(stop_after=1))


def test_three_rewriting_prompts_come_with_the_benchmark():
    prompts = bench_guess.prompts_of()
    assert list(prompts) == ["spelling", "code", "list"]
    assert all(
        p.startswith("<|im_start|>") and p.endswith("<|im_start|>assistant\n") for p in prompts.values()
    )


def test_other_prompts_come_from_a_file(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("first\n\nsecond\n")
    assert bench_guess.prompts_of(path) == {"1": "first", "2": "second"}
