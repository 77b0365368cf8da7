"""`pagelm loadtime`: figures from what the page measured, and the command that asks it."""

import json
from typing import Any, ClassVar

import pytest
from command import invoke

from pagelm.host import loadtime
from pagelm.host.loadtime import as_text, summary

LOADS = [
    dict(weights_bytes=3e8, load_s=3, weights_s=2, compile_s=1.5, alone_s=1, alone_compile_s=0.01),
    dict(weights_bytes=3e8, load_s=5, weights_s=3, compile_s=1.25, alone_s=0.5, alone_compile_s=0.03),
    dict(weights_bytes=3e8, load_s=4, weights_s=1, compile_s=1.75, alone_s=0.75, alone_compile_s=0.02),
]


def test_rates_are_of_the_weights_and_medians_of_the_rounds():
    found = summary(LOADS)
    assert found["load_s"] == {"p50": 4, "min": 3, "max": 5}
    assert found["compile_s"]["p50"] == 1.5 and found["compile_again_s"]["p50"] == 0.02
    assert found["weights_mb_s"] == {"p50": 150, "min": 100, "max": 300}
    assert found["weights_alone_mb_s"] == {"p50": 400, "min": 300, "max": 600}


class FakeBrowserLm:
    """Answers `time_loads` with LOADS. `calls`: what was asked, by all of them."""

    calls: ClassVar[list[tuple[str, Any]]] = []
    model_url = None

    @classmethod
    async def start(cls, serve, *, profile):
        cls.calls.append(("start", serve))
        assert profile.is_dir()
        return cls()

    async def call(self, method, args, on_event):
        self.calls.append((method, args))
        for load in LOADS[: args["rounds"]]:
            on_event({"kind": "load", **load})

    async def close(self):
        self.calls.append(("close", None))


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(loadtime, "BrowserLm", FakeBrowserLm)
    monkeypatch.setattr(FakeBrowserLm, "calls", [])
    return FakeBrowserLm


def test_command_times_both_places_and_prints_one_object(fake):
    url = "http://example.org/a.gguf"
    result = invoke("loadtime", url, "--rounds", "2", "--ctx", "64", "--quiet", "--json")
    report = json.loads(result.stdout)
    assert (report["rounds"], report["weights_bytes"]) == (2, 300_000_000)
    assert report["server"] == report["opfs"] == summary(LOADS[:2])
    asked = {"url": url, "rounds": 2, "n_ctx": 64}
    assert fake.calls == [
        ("start", None),
        ("time_loads", {**asked, "stored": False}),
        ("time_loads", {**asked, "stored": True}),
        ("close", None),
    ]


def test_command_prints_a_block_for_each_place(fake):
    text = invoke("loadtime", "http://example.org/a.gguf", "--quiet").stdout
    report = {"rounds": 3, "weights_bytes": 3e8, "server": summary(LOADS), "opfs": summary(LOADS)}
    assert text == as_text(report)
    assert text.count("all of loading   4.00 s (min 3.00, max 5.00)") == 2
    assert "weights alone    400 MB/s (min 300, max 600)" in text
