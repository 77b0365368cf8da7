"""Synthetic models: what the independent `gguf` package reads of them; their numbers; reads in any pieces."""

import asyncio
from dataclasses import replace

import gguf
import numpy as np
import pytest

from pagelm.errors import SourceError
from pagelm.gguf import read_gguf
from pagelm.host.bench_gpu import n_weights
from pagelm.host.synthetic import SHAPES, Shape, SyntheticSource
from pagelm.hparams import hparams_from
from pagelm.tensors import operands_of
from pagelm.tokenizer import tokenizer_from

TINY = Shape("tiny", 64, 2, 4, 2, 96, 320, n_ctx_train=256)


def whole(shape):
    source = SyntheticSource(shape)
    return source.bytes(0, source.size)


@pytest.mark.parametrize("quant", ["Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_gguf_package_reads_it(tmp_path, quant, tied):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(whole(replace(TINY, quant=quant, tied=tied)))
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.architecture"] == "llama" and fields["llama.feed_forward_length"] == 96
    assert len(fields["tokenizer.ggml.tokens"]) == 320
    assert len({t.name for t in reader.tensors}) == len(reader.tensors) == 2 * 9 + 2 + (not tied)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.isfinite(values).all()
        if values.ndim == 1:
            assert values.mean() == pytest.approx(1, abs=0.1)
            continue
        scaled = values * values.shape[1] ** 0.5
        # -8 … 7 has its mean at -0.5, which is 0.11 of its deviation; what else there is, is chance
        mean, chance = (-0.11 if tensor.tensor_type.name == "Q4_0" else 0), 5 / values.size**0.5
        assert abs(scaled.mean() - mean) < chance and abs(scaled.std() - 1) < chance + 0.05, tensor.name
        assert len(np.unique(values, axis=0)) == len(values), "equal rows would make equal logits"
    a, b = (next(t for t in reader.tensors if t.name == f"blk.{i}.ffn_up.weight") for i in (0, 1))
    assert not np.array_equal(a.data, b.data)


def test_it_is_the_same_in_every_run_and_in_any_pieces():
    data, source = whole(TINY), SyntheticSource(TINY)
    at, rng = 0, np.random.default_rng(3)
    parts = []
    while at < source.size:
        n = min(int(rng.integers(1, 3000)), source.size - at)
        parts.append(asyncio.run(source.read(at, n)))
        at += n
    assert b"".join(parts) == data
    with pytest.raises(SourceError, match="synthetic tiny, 2 layers: bytes"):
        source.bytes(source.size - 1, 2)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_shapes_are_models_that_pagelm_takes(shape):
    """Headers alone; the largest has 5 GB."""
    found = asyncio.run(read_gguf(SyntheticSource(shape)))
    hp = hparams_from(found)
    operands = operands_of(hp, found)
    assert (hp.n_embd, hp.n_layer, hp.n_ff, hp.n_vocab) == (
        shape.n_embd,
        shape.n_layer,
        shape.n_ff,
        shape.n_vocab,
    )
    assert n_weights(shape) == sum(operand.n_rows * operand.n_in for operand in operands.values())
    text = "Straße 🙂 \n"
    tokenizer = tokenizer_from(found.metadata)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_rows_differ_in_the_largest_matrix():
    """No two rows of 151,936 begin at the same block of the pool."""
    shape = SHAPES[-1]
    source = SyntheticSource(shape)
    found = asyncio.run(read_gguf(source))
    info = found.tensors["output.weight"]
    row = info.nbytes // shape.n_vocab
    starts = {source.bytes(found.at(info) + i * row, 34) for i in range(shape.n_vocab)}
    assert len(starts) == shape.n_vocab
