"""The peer wllama: what it is asked, and what becomes of one that fails, hangs, dies or cheats.

An object stands in for its page; it answers as wllama.js does.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pagelm.host.bench.peers import PeerError, Task

TASK = Task(Path("m.gguf"), (1, 2, 3, 4), "text", gen=100, n_ctx=512)


class FakePage:
    """Answers load and generate with what it is given; an exception is raised, None means never."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.listeners = {}

    def on(self, event, listener):
        self.listeners[event] = listener

    async def goto(self, url):
        pass

    async def evaluate(self, code, argument):
        self.asked.append(argument)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            await asyncio.sleep(60)
        return answer


LOADED = {"threads": 2, "libllama": "b1", "adapter": "acme gpu", "log": ["offloaded 3/3 layers to GPU"]}
TOOK = {"first": 2000.0, "total": 5000.0, "prompt_tokens": 4, "gen": 100}


def run_wllama(page, *, gpu=False, threads=2, during=lambda peer: None):
    from pagelm.host.bench.wllama import Wllama

    async def main():
        peer = Wllama("wllama", TASK, page, AsyncExitStack())
        await peer._load("http://x/", threads, gpu)
        asyncio.get_running_loop().call_later(0.05, during, peer)
        return peer, await peer.generate()

    return asyncio.run(main())


@pytest.mark.playwright
def test_wllama_is_asked_for_the_same_and_timed():
    page = FakePage(LOADED | {"log": []}, TOOK)
    peer, sample = run_wllama(page)
    assert (sample.prefill_tok_s, sample.decode_tok_s) == (2.0, 33.0)
    assert page.asked == [{"threads": 2, "gpu": False, "n_ctx": 512}, ["text", 100]]
    assert peer.about == {"engine": "llama.cpp b1", "threads": 2, "device": "CPU (wasm)"}


@pytest.mark.playwright
def test_wllama_on_webgpu_says_where_its_layers_are():
    peer, _ = run_wllama(FakePage(LOADED, TOOK), gpu=True)
    assert peer.about["device"] == "WebGPU (acme gpu), 3 of 3 layers"


@pytest.mark.playwright
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([LOADED | {"log": ["all on device CPU"]}], "no layer is on the GPU.*shader-f16.*acme gpu"),
        ([LOADED | {"log": ["offloaded 1/3 layers to GPU"]}], "1 of 3 layers are on the GPU"),
        ([LOADED | {"threads": 1}], "it uses 1 threads where 2 were asked for"),
        ([LOADED, TOOK | {"prompt_tokens": 5}], "it read 5 and generated 100 tokens where 4 and 100 were"),
        ([LOADED, TOOK | {"gen": 7}], "it read 4 and generated 7 tokens"),
    ],
)
def test_wllama_that_does_something_else_is_an_error(answers, told):
    with pytest.raises(PeerError, match=f"peer wllama: {told}"):
        run_wllama(FakePage(*answers), gpu=True)


@pytest.mark.playwright
def test_wllama_that_fails_is_an_error():
    from playwright.async_api import Error

    with pytest.raises(PeerError, match="peer wllama: no such model while loading the model"):
        run_wllama(FakePage(Error("no such model\n  at page")))


@pytest.mark.playwright
def test_wllama_whose_page_crashes_is_an_error():
    with pytest.raises(PeerError, match="peer wllama: its page crashed while generating"):
        run_wllama(FakePage(LOADED, None), during=lambda peer: peer._page.listeners["crash"](None))


@pytest.mark.playwright
def test_wllama_that_hangs_is_an_error(monkeypatch):
    from pagelm.host.bench import wllama

    monkeypatch.setattr(wllama, "GENERATE_S", 0.1)
    with pytest.raises(PeerError, match="peer wllama: it hangs: no answer in 0.1 s while generating"):
        run_wllama(FakePage(LOADED, None))
