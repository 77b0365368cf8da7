"""Tiny random models of every type: the page's logits against the numpy oracle."""

import numpy as np
import pytest
from tiny_gguf import tiny_model

from pagelm.host.oracle import Oracle

pytestmark = [pytest.mark.browser, pytest.mark.vendor_sensitive]

PROMPT = [(i * 37 + 11) % 390 for i in range(40)]
MODELS = {
    "f32": dict(quant="F32"),
    "f16": dict(quant="F16"),
    "q4_0": dict(quant="Q4_0"),
    "q4_1": dict(quant="Q4_1"),
    "q8_0": dict(quant="Q8_0"),
    "odd-sizes": dict(quant="F32", n_embd=40, n_head=2, n_head_kv=1, n_ff=50),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_the_oracle(browser_lm, tmp_path, name):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, **MODELS[name])
    browser_lm.load(path.read_bytes(), n_ctx=64)  # bytes: a source without a stream
    steps = browser_lm.trace(PROMPT, 8)
    oracle = Oracle(path)
    logits = oracle.forward(PROMPT)
    assert len(steps) == 8
    for token, got in steps:
        assert np.abs(got - logits).max() <= 1e-5 * np.abs(logits).max()
        assert token == int(logits.argmax())
        logits = oracle.forward([token])


def test_memory_is_given_back_when_a_model_is_closed(browser_lm, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400)
    for _ in range(3):
        browser_lm.loaded = None
        info = browser_lm.load(path.read_bytes())
        assert info["memory_used"] == info["plan"]["total"] - info["plan"]["staging"]
        browser_lm.call("close")
    browser_lm.loaded = None
