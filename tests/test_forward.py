"""The two passes as data: what they ask the kernels for."""

import asyncio

import pytest
from tiny_gguf import tiny_model

from pagelm.adapt import NARROW, Choice
from pagelm.device import Limits
from pagelm.forward import baseline, fused, verifying
from pagelm.gguf import read_gguf
from pagelm.hparams import HParams, hparams_from
from pagelm.kernels import SHARES, variants
from pagelm.sources import MemorySource
from pagelm.weights import Matrices, matrices_of


@pytest.mark.parametrize(
    "choice",
    [
        *NARROW.values(),
        Choice("quad", "registers", 64),
        Choice("quad", "registers", 64, 2),
        Choice("quad", "registers", 64, 1),
    ],
)
@pytest.mark.parametrize("share", SHARES)
def test_every_variant_of_a_model_shaped_as_the_default_one_is_listed(share, choice):
    """What `variants` lists is compiled and compared with numpy: nothing else may run there."""
    choice = choice if share == "quad" else choice.alone()
    data = tiny_model(quant="Q4_1", n_vocab=4096, n_embd=576, n_head=9, n_head_kv=3, n_ff=1536, n_layer=1)
    gguf = asyncio.run(read_gguf(MemorySource(data)))
    hp = hparams_from(gguf)
    matrices, vectors = matrices_of(hp, gguf, Limits.default(), choice.scales)
    made = hp, matrices, {v.buffer for v in vectors}
    ops = baseline(*made, n_ctx=64)
    for prompt in (True, False):
        ops += fused(*made, n_ctx=64, choice=choice, prompt=prompt)
    ops += verifying(*made, n_ctx=64, choice=choice)
    assert {op.variant for op in ops} <= set(variants())


def made_of(data: bytes) -> tuple[HParams, Matrices, set[str]]:
    gguf = asyncio.run(read_gguf(MemorySource(data)))
    hp = hparams_from(gguf)
    matrices, vectors = matrices_of(hp, gguf, Limits.default())
    return hp, matrices, {v.buffer for v in vectors}


def test_a_layer_takes_six_dispatches():
    ops = fused(*made_of(tiny_model(n_layer=3)), n_ctx=128, choice=Choice("quad", "loop", 8), prompt=False)
    assert len(ops) == 3 * 6 + 3  # embed, output, argmax


@pytest.mark.parametrize(("n_ctx", "dispatches"), [(128, 5), (129, 6)])
def test_a_layer_takes_five_dispatches_where_one_stretch_has_the_whole_context(n_ctx, dispatches):
    choice = Choice("quad", "registers", 8, stretch=128)
    ops = fused(*made_of(tiny_model(n_layer=1)), n_ctx=n_ctx, choice=choice, prompt=False)
    assert len(ops) == dispatches + 3
    (attention,) = (op for op in ops if op.variant.kernel == "attention")
    assert (attention.buffers[-1] == "att") == (dispatches == 5)
