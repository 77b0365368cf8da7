"""`pagelm bench-gpu` on a software adapter, with a tiny shape: it passes, and it notices what is wrong."""

import asyncio
import json

import numpy as np
import pytest
from click.testing import CliRunner

from pagelm.engine import Model
from pagelm.errors import PagelmError
from pagelm.host import bench_gpu as benchmark
from pagelm.host.cli import cli
from pagelm.host.oracle import Oracle
from pagelm.host.synthetic import SHAPES, Shape
from pagelm.loading import load_model

TINY = Shape("tiny", 64, 2, 4, 2, 96, 320, n_ctx_train=1024)

pytestmark = pytest.mark.gpu


def run(shape=TINY, **options):
    said = []
    report = asyncio.run(benchmark.bench_gpu([shape], **{"budget_s": 120, "say": said.append} | options))
    return report, report["shapes"][0], "\n".join(said)


async def skipped(*args):
    raise benchmark.Skipped("not here")


def test_a_right_device_passes_with_speed_and_shares():
    report, shape, said = run()
    assert report["ok"] and "ERROR" not in said and "WRONG" not in said
    assert shape["oracle"]["ok"] and shape["oracle"]["n_layer"] == 2 and shape["oracle"]["ids_equal"]
    assert 0 < shape["oracle"]["max_rel_logit_diff"] < 1e-5
    assert shape["whole"]["ok"] and 0 < shape["whole"]["unfused_rel"] < 2e-5
    speed = shape["speed"]
    assert speed["rounds"] >= 1 and speed["prompt_tokens"] in benchmark.PROMPT_TOKENS
    assert speed["decode_of_copy"] > 0 and speed["prefill_of_fma"] > 0 and speed["bars"] == {}
    assert "swiglu" in benchmark.as_text(report)
    assert "right: yes; 2 of 2 comparisons made" in benchmark.as_text(report)
    json.dumps(report, allow_nan=False)


def test_a_large_shape_is_cut_for_the_oracle_alone(monkeypatch):
    monkeypatch.setattr(benchmark, "ORACLE_WEIGHTS", 1000)
    monkeypatch.setattr(benchmark, "_speed", skipped)
    report, shape, _ = run()
    assert report["ok"] and shape["oracle"]["n_layer"] == 1 and shape["n_layer"] == 2


def test_what_disagrees_with_the_oracle_is_wrong(monkeypatch):
    class Off(Oracle):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            name = "blk.1.ffn_down.weight"
            self.weights._decoded[name] = self.weights.tensor(name) * np.float32(1.01)

    monkeypatch.setattr(benchmark, "Oracle", Off)
    monkeypatch.setattr(benchmark, "_speed", skipped)
    report, shape, said = run()
    assert not report["ok"] and not shape["oracle"]["ok"] and shape["whole"]["ok"]
    assert shape["oracle"]["first_bad"]["op"] == "ffn_down" and shape["oracle"]["first_bad"]["layer"] == 1
    assert "WRONG" in said and "right: NO" in benchmark.as_text(report)


@pytest.mark.parametrize("what", ["decode", "unfused"])
def test_programs_that_disagree_are_wrong(monkeypatch, what):
    trace, peek = Model.trace, Model.peek

    async def wrong_trace(self, prompt, n, forced=None):
        async for token, logits in trace(self, prompt, n, forced):
            logits[7] += 0.01 * max(logits)
            yield token, logits

    async def wrong_peek(self, name, n=None):
        values = await peek(self, name, n)
        if self._activations._ops[-1].label.endswith("ffn_norm"):
            values[7] += 0.01 * max(values)
        return values

    monkeypatch.setattr(benchmark, "_against_oracle", skipped)
    monkeypatch.setattr(benchmark, "_speed", skipped)
    monkeypatch.setattr(Model, "trace", wrong_trace if what == "decode" else trace)
    monkeypatch.setattr(Model, "peek", wrong_peek if what == "unfused" else peek)
    report, shape, _ = run()
    assert not report["ok"] and not shape["whole"]["ok"]
    assert (shape["whole"]["decode_rel"] > 1e-4) == (what == "decode")
    assert (shape["whole"]["unfused_rel"] > 1e-4) == (what == "unfused")


def test_an_error_is_reported_and_fails(monkeypatch):
    async def broken(*args):
        raise PagelmError("the fan fell off")

    monkeypatch.setattr(benchmark, "_against_oracle", broken)
    monkeypatch.setattr(benchmark, "_speed", skipped)
    report, shape, said = run()
    assert not report["ok"] and shape["oracle"]["error"] == "PagelmError: the fan fell off"
    assert "oracle: ERROR: PagelmError: the fan fell off" in said and shape["whole"]["ok"]


def test_what_does_not_fit_the_memory_is_skipped():
    report, shape, said = run(SHAPES[0], memory_budget=10 << 20)
    assert not report["ok"] and "of GPU memory" in shape["skipped"] and "skipped" in shape["oracle"]
    assert "skipped: the model needs" in said and "speed" not in shape


def test_what_there_is_no_time_for_is_skipped():
    report, shape, said = run(budget_s=0.001)
    assert not report["ok"] and report["compared"] == 0
    assert "right: nothing was compared; 0 of 2 comparisons made" in benchmark.as_text(report)
    assert "0 s are left" in shape["oracle"]["skipped"] and "oracle: skipped" in said
    assert shape["skipped"] == "there was no time left to load it" and "speed" not in shape


def test_steps_end_with_the_time(monkeypatch):
    async def slow(gpu, shape, clock, say):
        clock._end = 0
        return {"ok": True}

    async def quick(gpu, source, n_ctx, clock):
        return await load_model(gpu, source, n_ctx=n_ctx)

    monkeypatch.setattr(benchmark, "_against_oracle", slow)
    monkeypatch.setattr(benchmark, "_loaded", quick)
    report, shape, said = run()
    assert report["ok"]
    for step in ("whole", "speed"):
        assert "0 s are left" in shape[step]["skipped"] and f"{step}: skipped" in said


def test_bars_are_for_large_shapes_and_missing_one_is_told():
    big = Shape("llama-3.2-1b", 64, 2, 4, 2, 96, 320, n_ctx_train=1024)  # no adapter is fast at so little
    report, shape, said = run(big, budget_s=600)
    assert shape["speed"]["bars_reached"] == {"decode_of_copy": False, "prefill_of_fma": False}
    assert "a GPU should reach 60%" in said and report["ok"]
    assert "slower than a GPU should be: llama-3.2-1b decode_of_copy" in benchmark.as_text(report)


def test_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "SHAPES", (TINY,))
    monkeypatch.setattr(benchmark, "_speed", skipped)
    out = tmp_path / "report.json"
    done = CliRunner().invoke(cli, ["bench-gpu", "tiny", "--budget", "30", "--out", str(out)])
    assert done.exit_code == 0 and "right: yes" in done.stdout
    assert json.loads(out.read_text())["shapes"][0]["name"] == "tiny"
    refused = CliRunner().invoke(cli, ["bench-gpu", "huge"])
    assert refused.exit_code == 2 and "there is no shape 'huge'; allowed: tiny" in refused.stderr
    monkeypatch.setattr(benchmark, "ITSELF_MAX_REL", 0.0)
    assert CliRunner().invoke(cli, ["bench-gpu", "tiny", "--budget", "30", "--json"]).exit_code == 1
