"""Hyper-parameters and expected tensors on good and odd models; refusals by name are in the corpus too."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import raw_gguf
from raw_gguf import F32, F64, STR, U8, U32, U64
from tiny_gguf import tiny_model

from pagelm.arch import ArchSpec, register, spec_for, supported
from pagelm.errors import ArchError, GgufError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import NEUTRAL, HParams, expected_tensors, hparams_from
from pagelm.quants import QUANTS, SUPPORTED
from pagelm.sources import FileSource, MemorySource


def parse(data: bytes) -> Gguf:
    return asyncio.run(read_gguf(MemorySource(data)))


def of(**options) -> HParams:
    return hparams_from(parse(tiny_model(**options)))


def with_keys(**values: tuple[int, object]) -> Gguf:
    """The smallest right llama, with keys (dots as __, the prefix left out) set."""
    f = raw_gguf.llama()
    for key, (kind, value) in values.items():
        f.set("llama." + key.replace("__", "."), kind, value)
    return parse(f.data())


def test_hparams_are_what_the_file_says():
    hp = of(n_embd=64, n_layer=3, n_head=4, n_head_kv=2, n_ff=96, n_vocab=320, n_ctx_train=512)
    assert hp == HParams(
        arch=spec_for("llama"),
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_head_kv=2,
        n_embd_head=16,
        n_ff=96,
        n_vocab=320,
        n_ctx_train=512,
        n_rot=16,
        rope_freq_base=10000.0,
        norm_rms_eps=float(np.float32(1e-5)),
    )
    assert (hp.n_embd_q, hp.n_embd_kv) == (64, 32)


def test_head_size_may_be_explicit_and_need_not_divide_the_embedding():
    hp = of(n_embd=64, n_head=3, n_head_kv=1, n_embd_head=32)
    assert (hp.n_embd_head, hp.n_rot, hp.n_embd_q, hp.n_embd_kv) == (32, 32, 96, 32)


@pytest.mark.parametrize(
    ("named", "n", "sizes"),
    [
        ("head_count", 2, dict(embedding_length=2, attention__head_count=1, feed_forward_length=1)),
        ("head_count", 1, dict(embedding_length=1, attention__head_count=1)),
        ("head_count", 15, dict(embedding_length=60, attention__head_count=4)),
        ("head_count", 4100, dict(embedding_length=4100, attention__head_count=1)),
        ("key_length", 2, dict(attention__key_length=2)),
        ("key_length", 66, dict(attention__key_length=66)),
    ],
)
def test_heads_that_are_no_multiple_of_4_are_refused(named, n, sizes):
    gguf = with_keys(**{key: (U32, value) for key, value in sizes.items()})
    message = f"llama.attention.{named} makes heads of {n} elements; allowed: multiples of 4 up to 4096"
    with pytest.raises(ArchError, match=message):
        hparams_from(gguf)


@pytest.mark.parametrize("sizes", [dict(n_embd=4, n_head=1, n_head_kv=1), dict(n_embd=1, n_embd_head=4)])
def test_the_smallest_sizes_are_accepted(sizes):
    hp = of(quant="F32", n_ff=1, **sizes)
    assert (hp.n_embd_head, hp.n_ff, hp.n_embd) == (4, 1, sizes["n_embd"])


def test_keys_with_a_default_may_be_missing():
    f = raw_gguf.llama()
    f.drop("llama.attention.head_count_kv", "llama.rope.dimension_count", "llama.rope.freq_base")
    f.drop("llama.vocab_size", "tokenizer.ggml.tokens")
    with pytest.raises(ArchError, match=r"attn_k\.weight has shape \(4, 8\); the metadata asks for \(8, 8\)"):
        gguf = parse(f.data())
        expected_tensors(hparams_from(gguf), gguf)
    hp = hparams_from(parse(f.data()))
    assert (hp.n_head_kv, hp.n_rot, hp.rope_freq_base, hp.n_vocab) == (2, 4, 10000.0, 8)


@pytest.mark.parametrize(("kind", "value"), [(U8, 2), (U32, 2), (U64, 2)])
def test_counts_may_have_any_integer_width(kind, value):
    assert hparams_from(with_keys(attention__head_count=(kind, value))).n_head == 2


@pytest.mark.parametrize("kind", [F32, F64])
def test_eps_may_have_any_float_width(kind):
    hp = hparams_from(with_keys(attention__layer_norm_rms_epsilon=(kind, 0.5)))
    assert hp.norm_rms_eps == 0.5


@pytest.mark.parametrize("option", NEUTRAL)
def test_options_that_do_nothing_pass_and_others_are_refused_by_name(option):
    neutral = NEUTRAL[option]
    key = "llama." + option
    gguf = parse(raw_gguf.llama().data())
    gguf.metadata[key] = neutral
    assert isinstance(hparams_from(gguf), HParams)
    gguf.metadata[key] = {bool: not neutral, int: 7, float: 7.5, str: "linear"}[type(neutral)]
    with pytest.raises(ArchError, match=f"{key} is .*; allowed: .* not supported"):
        hparams_from(gguf)
    gguf.metadata[key] = [True]
    with pytest.raises(GgufError, match=f"{key} is an array"):
        hparams_from(gguf)


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("block_count", 512, 513),
        ("context_length", 2**31 - 1, 2**31),
        ("feed_forward_length", 2**20, 2**20 + 1),
    ],
)
def test_bounds_from_both_sides(key, good, bad):
    assert isinstance(hparams_from(with_keys(**{key: (U32, good)})), HParams)
    with pytest.raises(ArchError, match=f"llama.{key} is {bad}; allowed: an integer from 1 to {good}"):
        hparams_from(with_keys(**{key: (U32, bad)}))


@pytest.mark.parametrize("tied", [True, False])
def test_expected_tensors_are_those_of_the_file(tied):
    gguf = parse(tiny_model(tied=tied, n_layer=3))
    expected = expected_tensors(hparams_from(gguf), gguf)
    assert expected == {t.name: t.shape for t in gguf.tensors.values()}
    assert ("output.weight" in expected) is not tied


def test_missing_tensors_are_named_with_their_number():
    gguf = parse(raw_gguf.llama().set("llama.block_count", U32, 3).data())
    with pytest.raises(ArchError) as e:
        expected_tensors(hparams_from(gguf), gguf)
    assert "blk.1.attn_norm.weight" in str(e.value) and "and 12 more" in str(e.value)


@pytest.mark.parametrize("quant", SUPPORTED)
def test_every_running_type_is_accepted(quant):
    gguf = parse(tiny_model(quant=quant, n_embd=256, n_ff=256))
    assert expected_tensors(hparams_from(gguf), gguf)


@pytest.mark.parametrize("quant", ["Q8_1", "Q8_K"])
def test_types_without_kernels_are_refused_with_the_list(quant):
    gguf = parse(tiny_model())
    name = "blk.0.ffn_up.weight"
    gguf.tensors[name] = replace(gguf.tensors[name], quant=QUANTS[quant])
    with pytest.raises(ArchError, match=f"blk.0.ffn_up.weight has type {quant}; supported: F32"):
        expected_tensors(hparams_from(gguf), gguf)


def test_odd_size_of_rows_is_refused_by_the_parser():
    f = raw_gguf.llama_tensor("blk.0.ffn_down.weight", kind=raw_gguf.T_Q8_0, nbytes=34)
    with pytest.raises(GgufError, match="rows of 4 elements; Q8_0 needs multiples of 32"):
        parse(f.data())


def test_unsupported_architecture_lists_the_supported():
    assert "llama" in supported()
    with pytest.raises(ArchError, match="architecture 'mamba' is not supported; supported: .*llama"):
        spec_for("mamba")
    with pytest.raises(ArchError) as e:
        spec_for("x" * 10_000)
    assert len(str(e.value)) < 300


def test_architecture_cannot_be_registered_twice():
    with pytest.raises(AssertionError, match="llama is registered twice"):
        register(ArchSpec(name="llama"))


def test_every_architecture_has_its_own_module():
    from importlib.resources import files

    names = {p.name.removesuffix(".py") for p in files("pagelm.arch").iterdir() if p.name.endswith(".py")}
    assert names - {"__init__"} == set(supported())


def test_general_type_model_is_fine():
    f = raw_gguf.llama().set("general.type", STR, "model")
    assert isinstance(hparams_from(parse(f.data())), HParams)


@pytest.mark.model
def test_default_model_has_what_it_should(model_path):
    source = FileSource(model_path)
    gguf = asyncio.run(read_gguf(source))
    source.close()
    hp = hparams_from(gguf)
    assert (hp.n_embd, hp.n_layer, hp.n_head, hp.n_head_kv, hp.n_embd_head) == (576, 30, 9, 3, 64)
    assert (hp.n_ff, hp.n_vocab, hp.n_ctx_train, hp.rope_freq_base) == (1536, 49152, 8192, 100000.0)
    assert len(expected_tensors(hp, gguf)) == 272
