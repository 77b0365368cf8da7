"""`bench`: medians and spread over rounds, work per token from differences of counts, exact prompt length."""

import asyncio
import time

import pytest
from fake_lm import FakeLm, cpu_lm
from fake_peer import FakeMeter
from tiny_gguf import tiny_model

from pagelm.errors import PagelmError
from pagelm.host import bench as benchmark
from pagelm.host.bench.device import TEXT, text_prompt_of

SPEEDS = ((1.0, 1.0), (100.0, 30.0), (300.0, 10.0), (200.0, 20.0))  # the first round warms up


def bench(lm, noise=(), **options):
    options = {"prompt_tokens": 16, "gen": 4, "rounds": 3} | options
    turns = benchmark.Turns(FakeMeter(noise), calm_s=0, look_s=0)
    clock = getattr(lm, "clock", time.perf_counter)
    return asyncio.run(benchmark.bench(lm, turns=turns, clock=clock, **options))


def near(**figures):
    return pytest.approx(figures, rel=1e-12)


def test_rates_are_medians_with_spread_and_leave_the_warm_up_out():
    report = bench(FakeLm(speeds=SPEEDS))
    assert report["prefill_tok_s"] == near(p50=200.0, min=100.0, max=300.0)
    assert report["decode_tok_s"] == near(p50=20.0, min=10.0, max=30.0)


def test_work_per_token_leaves_the_prompts_work_out():
    report = bench(FakeLm())
    assert report["dispatches_per_token"] == 7.0
    assert report["submits_per_token"] == 1.0


def test_report_has_the_promised_keys():
    report = bench(FakeLm())
    assert report["guest_peak_heap_bytes"] == 31_457_408
    assert report["ttft_s"] == pytest.approx(16 / 100)
    assert report["adapter"]["vendor"] == "fake" and report["device"] == "native"
    assert {"pagelm", "python", "os"} <= report["versions"].keys()
    assert (report["prompt_tokens"], report["gen"], report["rounds"]) == (16, 4, 3)


@pytest.mark.parametrize("n", [1, 16, len(TEXT), len(TEXT) + 1, 5000])
def test_prompt_has_exactly_the_tokens_asked_for(n):
    ids = asyncio.run(benchmark.prompt_of(FakeLm(), n))
    assert len(ids) == n
    assert ids[:10] == [ord(c) for c in (TEXT * 2)[: min(n, 10)]]


def test_every_round_has_the_same_prompt():
    lm = FakeLm()
    bench(lm, rounds=2)
    assert lm.prompts[0] == lm.prompts[1] == lm.prompts[2]
    assert len(lm.prompts[0]) == 16


def test_generation_that_ends_early_is_refused(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path)
    from pagelm.host.oracle import Oracle

    with pytest.raises(PagelmError, match=r"11 of 12 tokens were generated \(context\).*--ctx"):
        bench(cpu_lm(path, oracle=Oracle(path, n_ctx=26)), gen=12, rounds=1)
    assert bench(cpu_lm(path, oracle=Oracle(path, n_ctx=27)), gen=12, rounds=1)["gen"] == 12


def test_one_token_cannot_be_timed():
    with pytest.raises(PagelmError, match="at least 2"):
        bench(FakeLm(), gen=1)


def test_noise_is_reported_with_what_it_spoilt():
    report = bench(FakeLm(speeds=SPEEDS), noise=[1.5, 0.1, 0.9, 0.2, 0.05], rounds=2)
    assert report["busy_cores"] == 1.5 and report["max_noise"] == 0.15
    # round 1 is quiet; of round 2, two tries are too noisy and a third is not: the last speed goes on
    assert report["prefill_tok_s"] == near(p50=150.0, min=100.0, max=200.0)
    assert [(one["round"], one["other_cores"]) for one in report["discarded"]] == [(2, 0.9), (2, 0.2)]
    assert report["discarded"][0]["decode_tok_s"] == pytest.approx(10.0)
    assert report["noisy_rounds"] == [] and report["other_cores"] == 0.1


def test_contexts_are_timed_after_prompts_of_their_length():
    lm = FakeLm(speeds=[(100.0, 40.0)] * 6 + [(100.0, 40.0), (100.0, 30.0), (100.0, 10.0)])
    report = bench(lm, rounds=2, contexts=[8, 64, 1000])
    got = report["context"]
    assert [one["tokens"] for one in got] == [8, 64, 1000] == [len(p) for p in lm.prompts[-3:]]
    assert [one["decode_tok_s"] for one in got] == pytest.approx([40.0, 30.0, 10.0])
    assert [one["ratio"] for one in got] == pytest.approx([1.0, 0.75, 0.25])
    assert "64              | 30.00         | 75%" in benchmark.as_text(report)


def test_context_too_long_for_the_default_is_asked_for():
    assert [benchmark.context_for(n) for n in (1, 2048, 2049)] == [None, None, 2049]


@pytest.mark.parametrize("text", ["", "0", "12,", "a", "-1", "1.5", "99999999999", "١"])
def test_list_of_contexts_that_is_none_is_refused(text):
    with pytest.raises(PagelmError, match="--context: .*allowed"):
        benchmark.parse_lengths(text)


def test_list_of_contexts_keeps_its_order():
    assert benchmark.parse_lengths("4096, 128,1024") == [4096, 128, 1024]


@pytest.mark.parametrize("n", [1, 17, 200])
def test_text_for_peers_has_exactly_the_ids_for_pagelm(tmp_path, n):
    path = tmp_path / "tiny.gguf"
    tiny_model(path)
    lm = cpu_lm(path)
    ids, text = asyncio.run(text_prompt_of(lm, str(path), n))
    assert len(ids) == n and asyncio.run(lm.encode(text)) == ids


def test_text_that_no_cut_gives_is_an_error(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path)

    class Fickle(FakeLm):
        calls = 0

        async def encode(self, text):
            self.calls += 1
            return [self.calls] * len(text)  # never the same ids again

    with pytest.raises(PagelmError, match="no text of exactly 50 tokens was found; try another"):
        asyncio.run(text_prompt_of(Fickle(), str(path), 50))


def test_text_names_every_figure():
    text = benchmark.as_text(bench(FakeLm(speeds=SPEEDS)))
    assert "prefill       200.00 tok/s (min 100.00, max 300.00), 16 tokens" in text
    assert "7 dispatches, 1 submits" in text
    assert "31,457,408 bytes" in text
    assert "no run discarded for noise (limit 0.15 cores)" in text
