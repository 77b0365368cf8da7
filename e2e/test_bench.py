"""`pagelm bench` with real peers, a short run of each: that they do what is asked, not how fast they are."""

import json
from pathlib import Path

import pytest
from command import finished

from pagelm.host.bench.peers import npm_package

PINS = Path(__file__).parent.parent / "host" / "bench" / "npm"
OPTIONS = ["--device", "native", "--rounds", "1", "--prompt-tokens", "16", "--gen", "5", "--max-noise", "99"]


def pinned(name, package):
    return json.loads((PINS / name / "package.json").read_text())["dependencies"][package]


@pytest.fixture(scope="module")
def installed():
    """The peers' packages, so that fetching them is not in the time a command is given."""
    for name in ("llama.cpp", "wllama"):
        npm_package(name, name)


@pytest.mark.gpu
@pytest.mark.browser
@pytest.mark.model
@pytest.mark.npm
def test_bench_compares_with_llama_cpp_and_wllama(model_path, installed):
    code, out, err = finished("bench", str(model_path), *OPTIONS, "--peers", "llama.cpp,wllama:1", "--json")
    assert code == 0, err
    got = json.loads(out)
    llama, wllama = got["peers"]["llama.cpp"], got["peers"]["wllama:1"]
    assert llama["version"] == pinned("llama.cpp", "node-llama-cpp")
    assert wllama["version"] == pinned("wllama", "@wllama/wllama")
    for name, peer in got["peers"].items():
        assert (peer["prompt_tokens"], peer["gen"], peer["threads"]) == (16, 5, 1)
        for rate in ("prefill", "decode"):
            assert 0 < peer[f"{rate}_tok_s"]["min"]
            ratio = got[f"{rate}_tok_s"]["p50"] / peer[f"{rate}_tok_s"]["p50"]
            assert got["ratios"][name][rate] == pytest.approx(ratio)
    turns = [line.split(":")[1].strip() for line in err.splitlines() if line.startswith("round 1:")]
    assert turns == ["pagelm", "llama.cpp", "wllama"]


@pytest.mark.browser
@pytest.mark.gpu
@pytest.mark.model
@pytest.mark.npm
@pytest.mark.vendor_sensitive
def test_wllama_without_its_gpu_is_an_error(model_path, installed, monkeypatch):
    monkeypatch.setenv("PAGELM_ADAPTER", "swiftshader")  # it has no shader-f16; wllama would take the CPU
    code, out, err = finished("bench", str(model_path), *OPTIONS, "--peers", "wllama-webgpu", "--json")
    assert (code, out) == (2, "")
    assert "pagelm: peer wllama-webgpu: no layer is on the GPU" in err
