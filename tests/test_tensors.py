"""Operands: what an architecture needs of a file's table of tensors, and what it refuses, by name."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import raw_gguf
from archs import MODELS, gguf_bytes
from raw_gguf import U32
from tiny_gguf import tiny_model

from pagelm.arch import supported
from pagelm.errors import ArchError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import hparams_from
from pagelm.quants import QUANTS, SUPPORTED
from pagelm.sources import MemorySource
from pagelm.tensors import Operand, operands_of

DENSE = [
    name
    for name, model in MODELS.items()
    if model.arch in supported() and "expert_count" not in model.metadata
]


def parse(data: bytes) -> Gguf:
    return asyncio.run(read_gguf(MemorySource(data)))


def model(name: str) -> Gguf:
    """One of the tiny models, for a test to change its table."""
    return parse(gguf_bytes(MODELS[name]))


def operands(gguf: Gguf) -> dict[str, Operand]:
    return operands_of(hparams_from(gguf), gguf)


def refusal(gguf: Gguf) -> str:
    with pytest.raises(ArchError) as e:
        operands(gguf)
    return str(e.value)


def add(gguf: Gguf, name: str, like: str, **changes: object) -> None:
    gguf.tensors[name] = replace(gguf.tensors[like], name=name, **changes)


@pytest.mark.parametrize("name", DENSE)
def test_operands_cover_every_tensor_of_every_architecture_once(name):
    gguf = model(name)
    rows: dict[str, list[tuple[int, int]]] = {}
    for key, operand in operands(gguf).items():
        assert operand.name == key
        shape = gguf.tensors[operand.tensor].shape
        assert operand.n_in in (0, shape[-1])
        rows.setdefault(operand.tensor, []).append((operand.row0, operand.n_rows))
    assert set(rows) == set(gguf.tensors)
    for tensor, parts in rows.items():
        shape, at = gguf.tensors[tensor].shape, 0
        for row0, n_rows in parts:
            assert row0 == at
            at += n_rows
        vector = len(shape) == 1 or "_norm" in tensor
        assert at == (np.prod(shape) if vector else shape[0])


@pytest.mark.parametrize("tied", [True, False])
def test_operands_are_the_tensors_of_a_file_that_keeps_each_by_itself(tied):
    gguf = parse(tiny_model(tied=tied, n_layer=3))
    found = operands(gguf)
    assert {name: (o.n_rows, o.n_in) if o.n_in else (o.n_rows,) for name, o in found.items()} == {
        t.name: t.shape for t in gguf.tensors.values()
    }
    assert all(o.tensor == o.name and o.row0 == 0 for o in found.values())
    assert ("output.weight" in found) is not tied


def test_fused_projections_are_several_operands():
    """q, k and v one after another, the gate before what it opens."""
    gguf = model("phi3-long")  # 2 heads of 32, 1 of keys and of values
    found = operands(gguf)
    qkv, up = "blk.1.attn_qkv.weight", "blk.1.ffn_up.weight"
    parts = [found[f"blk.1.attn_{x}.weight"] for x in "qkv"]
    assert [(o.tensor, o.row0, o.n_rows, o.n_in) for o in parts] == [
        (qkv, 0, 64, 64),
        (qkv, 64, 32, 64),
        (qkv, 96, 32, 64),
    ]
    n_ff = gguf.tensors[up].shape[0] // 2
    gate, opened = found["blk.1.ffn_gate.weight"], found[up]
    assert [(o.tensor, o.row0, o.n_rows) for o in (gate, opened)] == [(up, 0, n_ff), (up, n_ff, n_ff)]
    assert qkv not in found and "rope_factors_long.weight" in found and "rope_factors_short.weight" in found


def test_fused_biases_are_parts_too():
    found = operands(model("gpt2"))  # 4 heads of 16, all with keys and values of their own
    parts = [found[f"blk.0.attn_{x}.bias"] for x in "qkv"]
    assert [(o.tensor, o.row0, o.n_rows, o.n_in) for o in parts] == [
        ("blk.0.attn_qkv.bias", 64 * i, 64, 0) for i in range(3)
    ]
    assert found["position_embd.weight"].n_in == 64


def test_a_fused_projection_of_another_size_is_refused():
    gguf = model("phi3")
    name = "blk.0.attn_qkv.weight"
    rows, n_in = gguf.tensors[name].shape
    add(gguf, name, name, shape=(rows - 1, n_in))
    assert f"{name} has shape ({rows - 1}, {n_in}); the metadata asks for ({rows}, {n_in})" in refusal(gguf)


def test_missing_tensors_are_named_with_their_number():
    message = refusal(parse(raw_gguf.llama().set("llama.block_count", U32, 3).data()))
    assert "llama needs blk.1.attn_norm.weight" in message and "and 12 more" in message


def test_unexpected_tensors_are_named():
    gguf = model("qwen3")
    for name in ("blk.0.attn_rel_b.weight", "rope_freqs.weight"):
        add(gguf, name, "output_norm.weight")
    assert "qwen3 has no use for blk.0.attn_rel_b.weight, rope_freqs.weight; leaving such" in refusal(gguf)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("qwen2", "blk.1.attn_k.bias"),
        ("starcoder2", "blk.0.ffn_down.bias"),
        ("gpt2", "output_norm.bias"),
        ("stablelm", "blk.2.attn_norm.bias"),
        ("qwen3", "blk.0.attn_q_norm.weight"),
        ("olmo2", "blk.0.attn_k_norm.weight"),
        ("gemma2", "blk.1.post_ffw_norm.weight"),
        ("gpt2", "position_embd.weight"),
        ("phi3-long", "rope_factors_short.weight"),
        ("llama", "blk.0.ffn_norm.weight"),
    ],
)
def test_what_an_architecture_demands_is_missed_by_name(name, tensor):
    gguf = model(name)
    del gguf.tensors[tensor]
    assert f"{MODELS[name].arch} needs {tensor}, which the file does not have" in refusal(gguf)


def test_biases_of_projections_are_optional_in_a_llama():
    gguf = model("llama-bias")
    biases = [name for name in gguf.tensors if name.endswith(".bias")]
    assert {name.split(".")[2] for name in biases} >= {"attn_q", "attn_output", "ffn_gate", "ffn_down"}
    found = operands(gguf)
    for name in biases:
        weight = found[name.replace(".bias", ".weight")]
        assert found[name] == Operand(name, name, 0, weight.n_rows)
        del gguf.tensors[name]
        assert name not in operands(gguf)


@pytest.mark.parametrize(
    "name", ["output.bias", "output_norm.bias", "blk.0.attn_norm.bias", "token_embd.bias"]
)
def test_biases_that_no_pass_adds_are_refused(name):
    gguf = model("llama")
    add(gguf, name, "output_norm.weight", shape=(MODELS["llama"].shapes["token_embd.weight"][0],))
    assert f"llama has no use for {name}" in refusal(gguf)


def test_a_layer_norm_s_bias_may_be_missing_where_the_architecture_does_not_demand_it():
    gguf = model("stablelm")
    del gguf.tensors["blk.0.ffn_norm.bias"]
    assert "blk.0.ffn_norm.bias" not in operands(gguf)


def test_norms_of_heads():
    d = {name: MODELS[name].metadata.get("attention.key_length") for name in ("qwen3",)}["qwen3"]
    found = operands(model("qwen3"))
    assert found["blk.0.attn_q_norm.weight"].n_rows == found["blk.0.attn_k_norm.weight"].n_rows == d
    found = operands(model("olmo2"))  # 4 heads of 16, 2 of keys
    assert [found[f"blk.0.attn_{x}_norm.weight"].n_rows for x in "qk"] == [64, 32]
    gguf = model("stablelm-parallel")  # the same, a row for each head
    assert gguf.tensors["blk.0.attn_q_norm.weight"].shape == (4, 16)
    found = operands(gguf)
    assert [found[f"blk.0.attn_{x}_norm.weight"] for x in "qk"] == [
        Operand(name, name, 0, n)
        for name, n in (("blk.0.attn_q_norm.weight", 64), ("blk.0.attn_k_norm.weight", 32))
    ]
    assert "blk.0.ffn_norm.weight" not in found


@pytest.mark.parametrize("kept", ["attn_q_norm", "attn_k_norm"])
def test_norms_of_queries_and_keys_come_together(kept):
    gguf = model("stablelm-parallel")
    (gone,) = {"attn_q_norm", "attn_k_norm"} - {kept}
    del gguf.tensors[f"blk.1.{gone}.weight"]
    assert f"stablelm needs blk.1.{gone}.weight" in refusal(gguf)


def test_vectors_must_be_f32():
    for name, tensor in (
        ("llama", "blk.0.attn_norm.weight"),
        ("stablelm-parallel", "blk.0.attn_q_norm.weight"),
    ):
        gguf = model(name)
        add(gguf, tensor, tensor, quant=QUANTS["F16"])
        assert f"{tensor} has type F16; vectors must be F32" in refusal(gguf)


def test_rope_factors_are_one_for_each_pair():
    gguf = model("llama3")
    n = gguf.tensors["rope_freqs.weight"].shape[0]
    add(gguf, "rope_freqs.weight", "rope_freqs.weight", shape=(n + 1,))
    assert f"rope_freqs.weight has shape ({n + 1},); the metadata asks for ({n},)" in refusal(gguf)


@pytest.mark.parametrize("quant", SUPPORTED)
def test_every_running_type_is_accepted(quant):
    gguf = parse(tiny_model())
    for name in ("blk.0.ffn_up.weight", "token_embd.weight"):
        add(gguf, name, name, quant=QUANTS[quant])
    assert operands(gguf)


@pytest.mark.parametrize("quant", [name for name, row in QUANTS.items() if not row.runs][:3])
def test_types_without_kernels_are_refused_with_the_list(quant):
    gguf = parse(tiny_model())
    name = "blk.0.ffn_up.weight"
    add(gguf, name, name, quant=QUANTS[quant])
    assert f"{name} has type {quant}; supported: F32, F16" in refusal(gguf)
