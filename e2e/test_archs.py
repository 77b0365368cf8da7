"""Every architecture in Chromium: llama.cpp's greedy tokens, the oracle's logits; tiny random models."""

import numpy as np
import pytest
from archs import MODELS, gguf_bytes, load

from pagelm.arch import supported
from pagelm.host.oracle import Oracle
from pagelm.sources import MemorySource

pytestmark = [pytest.mark.browser, pytest.mark.vendor_sensitive]
PLAINEST = {model.arch: name for name, model in reversed(MODELS.items()) if model.arch in supported()}


def test_there_is_a_model_of_each():
    assert set(PLAINEST) == set(supported())


@pytest.mark.parametrize("arch", supported())
def test_tokens_are_llama_cpps_and_logits_the_oracles(browser_lm, arch):
    """48 tokens and 32 after them, past every window; logits within 1e-5 of the largest at each step."""
    reference, data = load(PLAINEST[arch]), gguf_bytes(MODELS[PLAINEST[arch]])
    browser_lm.load(data, n_ctx=reference.n_ctx)
    steps = browser_lm.trace(list(reference.ids), len(reference.generated))
    oracle = Oracle(MemorySource(data), n_ctx=reference.n_ctx)
    want = oracle.forward_all(reference.all_ids)[len(reference.ids) - 1 :]
    decided = reference.decided()
    assert decided >= 24
    assert tuple(token for token, _ in steps[:decided]) == reference.generated[:decided]
    for (_, got), logits in zip(steps[:decided], want, strict=False):
        assert np.abs(got - logits).max() <= 1e-5 * np.abs(logits).max()
