"""The peer llama.cpp: what it is asked, and what becomes of one that fails, hangs, dies or cheats.

A script of a few lines stands in for its process.
"""

import asyncio
import sys
import time
from pathlib import Path

import pytest

from pagelm.host.bench.llama_cpp import LlamaCpp
from pagelm.host.bench.peers import PeerError, Task

TASK = Task(Path("m.gguf"), (1, 2, 3, 4), "text", gen=100, n_ctx=512)

READY = {
    "version": "3",
    "release": "b1",
    "threads": 2,
    "devices": ["GPU"],
    "log": "offloaded 3/3 layers to GPU",
}


def run_llama(script, *, gpu=False, ready=READY, load_s=20.0, generate_s=20.0, task=TASK):
    """LlamaCpp and a sample of it, with a Python script that knows `ready` and `say` in place of Node's."""
    head = f"import json, sys, time, os, signal\nready = {{'ready': {ready!r}}}\n"
    head += "say = lambda m: print(json.dumps(m), flush=True)\n"

    async def main():
        command = [sys.executable, "-c", head + script]
        peer = await LlamaCpp.start("llama.cpp:2", task, command, gpu=gpu, load_s=load_s)
        try:
            return peer, await peer.generate(generate_s)
        finally:
            await peer.close()
            assert peer._process.returncode is not None

    return asyncio.run(main())


ANSWER = "for n in sys.stdin: say({'first_s': 2.0, 'total_s': 5.0, 'gen': int(n)})"


def test_llama_cpp_is_asked_for_tokens_and_timed():
    peer, sample = run_llama(f"print('noise of a library')\nsay(ready)\n{ANSWER}")
    assert (sample.prefill_tok_s, sample.decode_tok_s) == (2.0, 33.0)
    assert (peer.version, peer.about["threads"], peer.about["device"]) == ("3", 2, "CPU")


def test_llama_cpp_on_vulkan_says_where_its_layers_are():
    peer, sample = run_llama(f"say(ready)\n{ANSWER}", gpu=True)
    assert peer.about["device"] == "Vulkan (GPU), 3 of 3 layers"
    assert sample.gen == 100


def test_fewer_tokens_are_asked_of_a_software_gpu():
    _, sample = run_llama(
        f"say(ready)\n{ANSWER}", gpu=True, ready=READY | {"devices": ["llvmpipe (LLVM 15)"]}
    )
    assert sample.gen == 24


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"devices": []}, "no layer is on the GPU.*devices: none; VK_ICD_FILENAMES"),
        ({"log": ""}, "no layer is on the GPU.*devices: GPU"),
        ({"log": "offloaded 0/3 layers to GPU"}, "no layer is on the GPU"),
        ({"log": "offloaded 2/3 layers to GPU"}, "2 of 3 layers are on the GPU"),
    ],
)
def test_vulkan_without_all_layers_on_it_is_an_error(change, told):
    with pytest.raises(PeerError, match=f"peer llama.cpp:2: {told}"):
        run_llama(f"say(ready)\n{ANSWER}", gpu=True, ready=READY | change)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("sys.exit(3)", r"it died \(exit code 3\) while loading the model"),
        ("say({'error': 'no such file'})", "no such file while loading the model"),
        ("say(ready); sys.stdin.readline(); sys.exit(4)", r"it died \(exit code 4\) while generating"),
        ("say(ready); sys.exit(5)", r"it died \(exit code 5\) while generating"),
        (
            "say(ready); sys.stdin.readline(); os.kill(os.getpid(), 9)",
            r"it died \(signal 9\) while generating",
        ),
        ("say(ready); say({'first_s': 1, 'total_s': 2, 'gen': 99})", "it generated 99 of 100 tokens"),
    ],
)
def test_llama_cpp_that_fails_is_an_error_that_says_how(script, told):
    with pytest.raises(PeerError, match=f"peer llama.cpp:2: {told}"):
        run_llama(script)


@pytest.mark.parametrize(
    ("script", "told"),
    [("time.sleep(60)", "loading the model"), ("say(ready); time.sleep(60)", "generating")],
)
def test_llama_cpp_that_hangs_is_an_error_and_ends(script, told):
    began = time.monotonic()
    with pytest.raises(PeerError, match=f"peer llama.cpp:2: it hangs: no answer in .* while {told}"):
        run_llama(script, load_s=0.3 if told == "loading the model" else 20, generate_s=0.3)
    assert time.monotonic() - began < 20


def test_second_environment_variable_is_the_users_if_set(monkeypatch):
    show = "say(ready | {'ready': ready['ready'] | {'version': os.environ.get('GGML_VK_VISIBLE_DEVICES')}})"
    monkeypatch.delenv("GGML_VK_VISIBLE_DEVICES", raising=False)
    assert run_llama(f"{show}\n{ANSWER}", gpu=True)[0].version == "0"
    assert run_llama(f"{show}\n{ANSWER}", gpu=False)[0].version is None
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "1")
    assert run_llama(f"{show}\n{ANSWER}", gpu=True)[0].version == "1"


def test_missing_node_is_an_error_that_names_the_peer(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerError, match="peer llama.cpp: node, which runs it, was not found"):
        asyncio.run(LlamaCpp.open("llama.cpp", TASK, threads=None, gpu=False))
