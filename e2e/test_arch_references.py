"""llama.cpp, asked again, says what the references of the tiny models say."""

import numpy as np
import pytest
from archs import MODELS, load
from archs.values import write_decoded
from make_arch_references import LlamaCpp


@pytest.fixture(scope="module")
def llama_cpp():
    with LlamaCpp() as process:
        yield process


@pytest.mark.npm
@pytest.mark.parametrize("name", ["llama", "olmo3", "qwen3moe"])
def test_llama_cpp_says_it_again(llama_cpp, name, tmp_path):
    reference = load(name)
    answer = llama_cpp.answer(write_decoded(MODELS[name], tmp_path / f"{name}.gguf"), list(reference.ids))
    assert answer["version"] == reference.producer["node-llama-cpp"]
    assert tuple(answer["generated"]) == reference.generated
    logits = np.log(answer["rows"])
    assert reference.nmse(logits) < 1e-10  # other CPUs sum in another order
    assert reference.difference(logits) < 1e-4
