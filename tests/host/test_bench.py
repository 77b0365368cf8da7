"""`bench`: medians and spread over rounds, work per token from differences of counts, exact prompt length."""

import asyncio

import pytest
from fake_lm import FakeLm, cpu_lm
from tiny_gguf import tiny_model

from pagelm.errors import PagelmError
from pagelm.host import bench as benchmark

SPEEDS = ((1.0, 1.0), (100.0, 30.0), (300.0, 10.0), (200.0, 20.0))  # the first round warms up


def bench(lm, **options):
    options = {"prompt_tokens": 16, "gen": 4, "rounds": 3} | options
    return asyncio.run(benchmark.bench(lm, **options))


def test_rates_are_medians_with_spread_and_leave_the_warm_up_out():
    report = bench(FakeLm(speeds=SPEEDS))
    assert report["prefill_tok_s"] == {"p50": 200.0, "min": 100.0, "max": 300.0}
    assert report["decode_tok_s"] == {"p50": 20.0, "min": 10.0, "max": 30.0}


def test_work_per_token_leaves_the_prompts_work_out():
    report = bench(FakeLm())
    assert report["dispatches_per_token"] == 7.0
    assert report["submits_per_token"] == 1.0


def test_report_has_the_promised_keys():
    report = bench(FakeLm())
    assert report["guest_peak_heap_bytes"] == 31_457_408
    assert 0 <= report["ttft_s"] < 1
    assert report["adapter"]["vendor"] == "fake" and report["device"] == "native"
    assert {"pagelm", "python", "os"} <= report["versions"].keys()
    assert (report["prompt_tokens"], report["gen"], report["rounds"]) == (16, 4, 3)


@pytest.mark.parametrize("n", [1, 16, len(benchmark.TEXT), len(benchmark.TEXT) + 1, 5000])
def test_prompt_has_exactly_the_tokens_asked_for(n):
    ids = asyncio.run(benchmark.prompt_of(FakeLm(), n))
    assert len(ids) == n
    assert ids[:10] == [ord(c) for c in (benchmark.TEXT * 2)[: min(n, 10)]]


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


@pytest.mark.parametrize(("busy", "warned"), [(0.0, False), (0.3, False), (0.31, True), (None, False)])
def test_busy_machine_is_reported(monkeypatch, busy, warned):
    monkeypatch.setattr(benchmark, "busy_cores", lambda: busy)
    said = []
    report = bench(FakeLm(), say=said.append)
    assert report["busy_cores"] == busy
    assert any("busy with other work" in line for line in said) is warned


def test_busy_cores_is_none_without_proc(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "Path", lambda name: tmp_path / "nowhere")
    assert benchmark.busy_cores(0.0) is None


def test_busy_cores_counts_time_that_is_not_idle(monkeypatch):
    per_s = benchmark.os.sysconf("SC_CLK_TCK")
    # user nice system idle iowait irq softirq steal guest guest_nice; half a second later
    before = "cpu  100 0 50 1000 7 0 0 0 0 0\ncpu0 1"
    lines = iter([before, f"cpu  {100 + per_s // 2} 0 50 {1000 + per_s} 9 0 0 0 0 0\n"])

    class Stat:
        def __init__(self, name):
            assert name == "/proc/stat"

        def read_text(self):
            return next(lines)

    monkeypatch.setattr(benchmark, "Path", Stat)
    monkeypatch.setattr(benchmark.time, "sleep", lambda s: None)
    assert benchmark.busy_cores(0.5) == 1.0


def test_text_names_every_figure():
    text = benchmark.as_text(bench(FakeLm(speeds=SPEEDS)))
    assert "prefill       200.00 tok/s (min 100.00, max 300.00), 16 tokens" in text
    assert "7 dispatches, 1 submits" in text
    assert "31,457,408 bytes" in text
