"""The tiny models and llama.cpp's answers for them belong together, and the oracle agrees with them.

Its float32 sums and llama.cpp's differ in order only: NMSE 4e-12 was measured, 1e-9 is allowed.
"""

from dataclasses import replace

import numpy as np
import pytest
from archs import MODELS, gguf_bytes, load, sized
from archs.references import FOLDER
from archs.values import digest

from pagelm.host.oracle import Oracle
from pagelm.sources import MemorySource

ALLOWED = 1e-9
COMPUTED = ["llama"]  # by the oracle


def logits_of(model, ids, step):
    oracle = Oracle(MemorySource(gguf_bytes(model), model.name))
    return np.concatenate([oracle.forward_all(ids[at : at + step]) for at in range(0, len(ids), step)])


def test_every_model_has_a_reference():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_is_of_this_model(name):
    found = load(name).digest
    assert digest(MODELS[name]) == found, (
        "run `python tests/make_arch_references.py` and look at what changed"
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_says_one_thing(name):
    reference = load(name)
    chosen = range(len(reference.ids) - 1, len(reference.all_ids) - 1)
    assert tuple(reference.top_ids[chosen, 0]) == reference.generated
    assert np.allclose(
        reference.top[chosen, 0] - reference.top[chosen, 1], reference.gaps, rtol=1e-3, atol=2e-6
    )
    for position, row in reference.rows.items():
        assert np.exp(row).sum() == pytest.approx(1, abs=1e-5)
        assert np.array_equal(row[reference.top_ids[position]], reference.top[position])
    assert reference.decided() == len(reference.generated)


@pytest.mark.parametrize("step", [80, 7, 1])
@pytest.mark.parametrize("name", COMPUTED)
def test_the_oracle_agrees(name, step):
    reference = load(name)
    logits = logits_of(MODELS[name], reference.all_ids, step)
    assert reference.nmse(logits) < ALLOWED
    assert reference.difference(logits) < 1e-4
    assert tuple(logits[len(reference.ids) - 1 : -1].argmax(1)) == reference.generated


@pytest.mark.parametrize("key, factor", [("rope.freq_base", 1.01), ("attention.layer_norm_rms_epsilon", 0.9)])
def test_a_slightly_wrong_model_does_not_agree(key, factor):
    model, reference = MODELS["llama"], load("llama")
    wrong = replace(model, metadata={**model.metadata, key: model.metadata[key] * factor})
    logits = logits_of(wrong, reference.all_ids, 80)
    assert reference.nmse(logits) > 1e3 * ALLOWED
    assert reference.difference(logits) > 1e-3


def test_a_model_of_other_sizes_has_their_shapes():
    model = sized("qwen3", n_embd=256, n_head=4, d=64, n_ff=512)
    assert model.shapes["blk.2.ffn_down.weight"] == (256, 512)
    assert model.metadata["embedding_length"] == 256
    assert "attention.key_length" not in model.metadata
