"""Operands: parts of tensors are the rows that the independent `gguf` package finds there."""

import gguf
import numpy as np
import pytest
from archs import MODELS, gguf_bytes
from archs import write as write_model

from pagelm.host.oracle.weights import Weights
from pagelm.sources import MemorySource


def read(path):
    """Tensor -> decoded values, by the `gguf` package."""
    tensors = gguf.GGUFReader(path).tensors
    return {t.name: gguf.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in tensors}


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("name", ["phi3", "gpt2", "stablelm-parallel", "qwen2"])
def test_operands_are_rows_of_the_files_tensors(name, kind, tmp_path):
    model = MODELS[name].of_types({"": kind})
    path = write_model(model, tmp_path / "tiny.gguf")
    weights, there, taken = Weights(path), read(path), {}
    for operand in weights.operands.values():
        got, whole = weights.tensor(operand.name), there[operand.tensor]
        rows = slice(operand.row0, operand.row0 + operand.n_rows)
        want = whole[rows] if operand.n_in else whole.reshape(-1)[rows]
        assert got.dtype == np.float32 and got.shape == weights.shape(operand.name) == want.shape
        assert np.array_equal(got, want)
        taken[operand.tensor] = taken.get(operand.tensor, 0) + got.size
    assert taken == {name: whole.size for name, whole in there.items()}


def test_gate_comes_before_up_and_q_before_k_before_v(tmp_path):
    model = MODELS["phi3"]
    path = write_model(model, tmp_path / "tiny.gguf")
    weights, there = Weights(path), read(path)
    both, qkv = there["blk.0.ffn_up.weight"], there["blk.0.attn_qkv.weight"]
    parts = [weights.tensor(f"blk.0.{name}.weight") for name in ("ffn_gate", "ffn_up")]
    assert np.array_equal(np.concatenate(parts), both) and len(parts[0]) == len(parts[1])
    parts = [weights.tensor(f"blk.0.{name}.weight") for name in ("attn_q", "attn_k", "attn_v")]
    assert np.array_equal(np.concatenate(parts), qkv)


def test_rows_without_decoding_are_those_of_the_whole():
    weights = Weights(MemorySource(gguf_bytes(MODELS["gpt2"].of_types({"": "Q8_0"})), "gpt2.gguf"))
    for name in ("token_embd.weight", "position_embd.weight"):
        before = weights.rows(name, [5, 0, 5])
        assert np.array_equal(before, weights.tensor(name)[[5, 0, 5]])
        assert np.array_equal(before, weights.rows(name, [5, 0, 5]))


def test_a_vector_may_be_absent():
    weights = Weights(MemorySource(gguf_bytes(MODELS["qwen2"]), "qwen2.gguf"))
    assert weights.vector("blk.0.attn_output.bias") is None
    assert weights.vector("blk.0.attn_q.bias") is not None
