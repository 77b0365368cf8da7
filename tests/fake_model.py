"""A tiny model on a fake device, and event loops by hand."""

import asyncio

from tiny_gguf import tiny_model

from pagelm.loading import load_model
from pagelm.sources import MemorySource

TINY = tiny_model(n_vocab=400)


EOS = 2  # <|im_end|> in the tiny vocabulary


def load(gpu, data=TINY, **kw):
    return asyncio.run(load_model(gpu, MemorySource(data), **kw))


def run(coroutine):
    return asyncio.run(coroutine)


async def turns(n):
    """Let the other tasks go on from `n` of their waits."""
    for _ in range(n):
        await asyncio.sleep(0)


def fed(gpu):
    """The state's words as they were last written: n_past, n_tokens, …, ids."""
    return list(memoryview(next(b for b in gpu.buffers if b.label == "state").data).cast("I"))
