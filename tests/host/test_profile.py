"""The profile for people: rows, shares, gaps, rounded clocks, the trace, and the command."""

import asyncio
import json

import pytest
from click.testing import CliRunner
from fake_lm import FakeLm, cpu_lm
from tiny_gguf import tiny_model

from pagelm.errors import DeviceError
from pagelm.host import profile as profiling
from pagelm.host.cli import cli

OPS = [
    {"label": "blk.0.swiglu", "kernel": "gate_up.q4_1", "bytes": 3000, "flops": 8000},
    {"label": "blk.0.ffn_residual", "kernel": "project.q4_1", "bytes": 500, "flops": 2000},
    {"label": "blk.1.swiglu", "kernel": "gate_up.q4_1", "bytes": 3000, "flops": 8000},
    {"label": "blk.1.ffn_residual", "kernel": "project.q4_1", "bytes": 500, "flops": 2000},
    {"label": "argmax", "kernel": "argmax", "bytes": 100, "flops": 0},
]


def spans(start, *took):
    found = []
    for ns in took:
        found.append([start, start + ns])
        start += ns + 5
    return found


class ProfiledLm(FakeLm):
    resolution_ns = 1

    async def profile(self, prompt_ids, tokens):
        self.asked = (len(prompt_ids), tokens)
        return {
            "peaks": {"copy_bytes_s": 20e9, "fma_flops_s": 100e9},
            "depth": 2,
            "resolution_ns": self.resolution_ns,
            "prompt": {
                "n_past": 96,
                "n_tokens": 32,
                "ops": OPS,
                "passes": [spans(0, 1000, 100, 1200, 100, 50)],
                "whole": [[3000, 5400]],
            },
            "decode": {
                "n_past": 130,
                "first": 128,
                "n_tokens": 1,
                "ops": OPS,
                "passes": [
                    spans(6000, 200, 50, 200, 50, 10),
                    spans(7000, 900, 50, 200, 50, 10),
                    spans(9000, 220, 50, 200, 40, 10),
                ],
                "whole": [[20000, 21000], [21400, 22400], [22300, 23300]],  # the last two overlap
                "wall_s": 2e-6,
                "plain_wall_s": 1.5e-6,
            },
        }


def report_of(lm=None, **options):
    return asyncio.run(profiling.profile(lm or ProfiledLm(), **options))


def test_kinds_are_added_up_over_layers_and_medians_taken_over_passes():
    rows = {row["kind"]: row for row in report_of()["decode"]["kernels"]}
    assert list(rows) == ["swiglu", "ffn_residual", "argmax", "all"]
    assert [rows[kind]["count"] for kind in rows] == [2, 2, 1, 5]
    assert [rows[kind]["ns"] for kind in rows] == [420, 100, 10, 520]  # of 400, 1100, 420; 100, 100, 90; …
    assert rows["swiglu"]["share"] == pytest.approx(420 / 530)
    assert sum(row["share"] for row in rows.values()) == pytest.approx(2)
    assert rows["swiglu"]["bytes_s"] == pytest.approx(6000 / 420e-9)
    assert rows["swiglu"]["of_copy"] == pytest.approx(6000 / 420e-9 / 20e9)
    assert rows["swiglu"]["of_fma"] == pytest.approx(16000 / 420e-9 / 100e9)
    assert rows["argmax"]["flops_s"] == rows["argmax"]["of_fma"] == 0


def test_a_start_read_too_early_counts_for_the_one_before_alone():
    assert profiling.durations([(100, 200), (150, 260), (260, 300), (310, 310)]) == [100, 60, 40, 0]
    assert profiling.durations([(100, 400), (150, 260)]) == [300, 0]


def test_a_rounded_clock_gets_means():
    class Rounded(ProfiledLm):
        resolution_ns = 65536

    report = report_of(Rounded())
    assert report["decode"]["kernels"][0]["ns"] == pytest.approx((400 + 1100 + 420) / 3)
    assert "multiples of 65.536 µs" in profiling.as_text(report)
    assert "multiples of" not in profiling.as_text(report_of())


def test_gaps_lie_between_tokens_and_are_never_negative():
    assert report_of()["decode"]["gaps_ms"] == [400e-6, 0]


def test_text_has_every_kernel_and_the_gaps():
    text = profiling.as_text(report_of(prompt_tokens=40))
    lines = text.splitlines()
    assert "copies 20.00 GB/s, computes 100.0 GFLOP/s" in text
    assert "prompt: the last 32 tokens, from position 96" in lines
    assert "decode: a token at position 130" in lines
    row = lines[lines.index("decode: a token at position 130") + 2].split()
    assert row == ["swiglu", "2", "0.000", "79.2%", "0.01", "14.29", "71%", "0.0", "38.10", "38%"]
    assert "  idle from one token's pass to the next: 0.000 ms (min 0.000, max 0.000)" in lines


def test_trace_has_every_dispatch_token_and_gap():
    trace = json.loads(json.dumps(profiling.trace_of(report_of())))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    by_lane = {lane: [e for e in events if e["tid"] == lane] for lane in profiling.LANES}
    assert {lane: len(found) for lane, found in by_lane.items()} == {1: 5, 2: 1, 3: 15, 4: 3, 5: 1}
    assert by_lane[1][0] == {
        "ph": "X",
        "pid": 1,
        "tid": 1,
        "cat": "prompt",
        "name": "blk.0.swiglu",
        "ts": 0.0,
        "dur": 1.0,
        "args": {"kernel": "gate_up.q4_1", "bytes": 3000, "flops": 8000},
    }
    assert [e["name"] for e in by_lane[4]] == [f"1 token(s) at position {n}" for n in (128, 129, 130)]
    assert (by_lane[5][0]["ts"], by_lane[5][0]["dur"]) == (21.0, 0.4)
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert names == profiling.LANES


def test_the_cpu_has_nothing_to_profile(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path)
    with pytest.raises(DeviceError, match="cpu has no kernels to time; choose --device browser or native"):
        report_of(cpu_lm(path))


@pytest.mark.gpu
def test_the_command_prints_tables_and_writes_the_trace(tmp_path):
    path, trace = tmp_path / "tiny.gguf", tmp_path / "trace.json"
    tiny_model(path)
    given = ["bench", str(path), "--device", "native", "--quiet", "--prompt-tokens", "20", "--gen", "3"]
    done = CliRunner().invoke(cli, [*given, "--trace", str(trace)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "decode: a token at position 21" in done.stdout and "ffn_residual" in done.stdout
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["tid"] == 4 for e in events) == 3
    done = CliRunner().invoke(cli, [*given, "--profile", "--json"], catch_exceptions=False)
    report = json.loads(done.stdout)
    refused = CliRunner().invoke(cli, [*given, "--trace", str(tmp_path / "nowhere" / "trace.json")])
    assert refused.exit_code == 2 and "nowhere is no directory; make it first" in refused.stderr
    assert {"prompt", "decode", "copy_bytes_s", "fma_flops_s", "adapter", "raw"} <= report.keys()
