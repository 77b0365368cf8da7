"""Hyper-parameters and expected tensors on good and odd models; refusals by name are in the corpus too."""

import asyncio
from array import array

import numpy as np
import pytest
import raw_gguf
from archs import MODELS, gguf_bytes
from archs.models import sized
from raw_gguf import F32, F64, STR, U8, U32, U64
from tiny_gguf import tiny_model

from pagelm.arch import ArchSpec, register, spec_for, supported
from pagelm.errors import ArchError, GgufError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import NEUTRAL, HParams, Layer, Rope, hparams_from
from pagelm.sources import FileSource, MemorySource
from pagelm.tensors import operands_of


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


def named(arch: str, **values: object) -> Gguf:
    """The smallest right llama under another name, with keys (dots as __, the prefix left out) set."""
    gguf = parse(raw_gguf.llama().data())
    for key in [key for key in gguf.metadata if key.startswith("llama.")]:
        gguf.metadata[key.replace("llama", arch, 1)] = gguf.metadata.pop(key)
    gguf.metadata["general.architecture"] = arch
    eps = gguf.metadata[f"{arch}.attention.layer_norm_rms_epsilon"]
    gguf.metadata[f"{arch}.attention.layer_norm_epsilon"] = eps
    for key, value in values.items():
        gguf.metadata[f"{arch}.{key.replace('__', '.')}"] = value
    return gguf


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
        norm_eps=float(np.float32(1e-5)),
        ropes=(Rope(10000.0, n_ctx_orig=512),),
        layers=(Layer(),) * 3,
        attention_scale=0.25,
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
        operands_of(hparams_from(gguf), gguf)
    hp = hparams_from(parse(f.data()))
    assert (hp.n_head_kv, hp.n_rot, hp.ropes, hp.n_vocab) == (2, 4, (Rope(10000.0, n_ctx_orig=16),), 8)


@pytest.mark.parametrize(("kind", "value"), [(U8, 2), (U32, 2), (U64, 2)])
def test_counts_may_have_any_integer_width(kind, value):
    assert hparams_from(with_keys(attention__head_count=(kind, value))).n_head == 2


@pytest.mark.parametrize("kind", [F32, F64])
def test_eps_may_have_any_float_width(kind):
    hp = hparams_from(with_keys(attention__layer_norm_rms_epsilon=(kind, 0.5)))
    assert hp.norm_eps == 0.5


@pytest.mark.parametrize("option", NEUTRAL)
def test_options_that_do_nothing_pass_and_others_are_refused_by_name(option):
    """Of an architecture that honours none of them."""
    neutral = NEUTRAL[option]
    assert not spec_for("exaone").options and not spec_for("exaone").windows
    key = "exaone." + option
    gguf = named("exaone")
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

    modules = {p.name for p in files("pagelm.arch").iterdir() if p.name.endswith(".py")} - {"__init__.py"}
    assert {name.removesuffix(".py").replace("_", "-") for name in modules} == set(supported())


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
    assert (hp.n_ff, hp.n_vocab, hp.n_ctx_train, hp.ropes) == (
        1536,
        49152,
        8192,
        (Rope(1e5, n_ctx_orig=8192),),
    )
    assert len(operands_of(hp, gguf)) == 272


# ---- windows ----


def windows(arch: str, n_layer: int, **values: object) -> list[int]:
    hp = hparams_from(named(arch, block_count=n_layer, **values))
    return [layer.window for layer in hp.layers]


def test_windows_of_layers_follow_the_architecture_s_period():
    assert windows("gemma2", 5) == [4096, 0, 4096, 0, 4096]
    assert windows("gemma2", 3, attention__sliding_window=9) == [9, 0, 9]
    assert windows("gemma2", 2, attention__sliding_window=0) == [0, 0]
    assert windows("gemma3", 7) == [0] * 7
    assert windows("gemma3", 7, attention__sliding_window=9) == [9, 9, 9, 9, 9, 0, 9]
    assert windows("olmo2", 5, attention__sliding_window=9) == [9, 9, 9, 0, 9]
    assert windows("llama", 3, attention__sliding_window=9) == [9, 9, 9]
    assert windows("phi3", 3, attention__sliding_window=9) == [0, 0, 0]


def test_the_period_may_be_a_number_or_a_list_in_the_file():
    sized = {"attention__sliding_window": 9}
    assert windows("gemma2", 4, **sized, attention__sliding_window_pattern=3) == [9, 9, 0, 9]
    assert windows("gemma2", 3, **sized, attention__sliding_window_pattern=1) == [0, 0, 0]
    assert windows("gemma2", 3, **sized, attention__sliding_window_pattern=0) == [9, 9, 9]
    listed = [False, True, True]
    assert windows("gemma2", 3, **sized, attention__sliding_window_pattern=listed) == [0, 9, 9]
    with pytest.raises(
        ArchError,
        match="sliding_window_pattern is .*; allowed: an integer, or true or false for each of 4",
    ):
        windows("gemma2", 4, **sized, attention__sliding_window_pattern=listed)


@pytest.mark.parametrize(("pattern", "error"), [([2, 0, 0], ArchError), (True, GgufError), (2.0, GgufError)])
def test_a_pattern_that_is_none_is_refused(pattern, error):
    given = array("i", pattern) if isinstance(pattern, list) else pattern
    with pytest.raises(
        error, match="sliding_window_pattern is .*; allowed: an integer.* or true or false for"
    ):
        windows("gemma2", 3, attention__sliding_window=9, attention__sliding_window_pattern=given)


@pytest.mark.parametrize(
    ("arch", "key", "value", "allowed"),
    [
        ("qwen3moe", "expert_gating_func", 2, "0, 1, 3"),
        ("qwen3moe", "expert_weights_norm", False, "true"),
        ("olmoe", "expert_weights_norm", True, "false"),
        ("qwen3moe", "expert_group_count", 2, "0, 1"),
        ("qwen3moe", "expert_shared_count", 1, "0"),
        ("gemma3", "attention__key_length_swa", 12, "4, the head size of the other layers"),
        ("llama", "rope__scaling__yarn_beta_fast", 16.0, "32.0"),
    ],
)
def test_what_would_change_the_result_is_refused(arch, key, value, allowed):
    experts = {
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "embedding_length": 32,
    }
    keys = experts | {"feed_forward_length": 32} if arch in ("qwen3moe", "olmoe") else {}
    with pytest.raises(ArchError, match=f"{key.replace('__', '.')} is .*; allowed: {allowed}"):
        hparams_from(named(arch, **keys, **{key: value}))


@pytest.mark.parametrize("key", ["rope__freq_base", "rope__freq_base_swa"])
def test_yarn_has_no_base_of_1(key):
    keys = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "attention__sliding_window": 9}
    with pytest.raises(ArchError, match=f"{key.replace('__', '.')} is 1.0; allowed: .* with yarn"):
        hparams_from(named("llama", **keys, **{key: 1.0}))


def test_layers_with_a_window_may_have_a_rope_of_their_own():
    keys = {"attention__sliding_window": 9, "rope__scaling__factor": 8.0, "block_count": 6}
    hp = hparams_from(named("gemma3", **keys, rope__freq_base=1e6))
    whole, local = hp.ropes
    assert (whole.freq_base, whole.scale) == (1e6, 1 / 8)
    assert (local.freq_base, local.scale) == (10000.0, 1.0)
    assert [layer.rope for layer in hp.layers] == [1, 1, 1, 1, 1, 0]
    hp = hparams_from(named("gemma3", **keys, rope__freq_base=1e6, rope__freq_base_swa=500.0))
    assert [rope.freq_base for rope in hp.ropes] == [1e6, 500.0]
    hp = hparams_from(named("olmo2", **keys, rope__freq_base=1e6))
    assert [(rope.freq_base, rope.scale) for rope in hp.ropes] == [(1e6, 1 / 8), (1e6, 1.0)]
    assert [layer.rope for layer in hp.layers] == [1, 1, 1, 0, 1, 1]
    for arch in ("gemma2", "llama"):  # theirs is the same
        hp = hparams_from(named(arch, **keys))
        assert len(hp.ropes) == 1 and {layer.rope for layer in hp.layers} == {0}
    with pytest.raises(ArchError, match="gemma3.rope.freq_base_swa is -1.0; allowed: a number above 0"):
        hparams_from(named("gemma3", **keys, rope__freq_base_swa=-1.0))


def test_layers_may_have_no_rope():
    hp = hparams_from(named("smollm3", block_count=9))
    assert [layer.rope for layer in hp.layers] == [0, 0, 0, None, 0, 0, 0, None, 0]
    hp = hparams_from(named("gpt2", block_count=2))
    assert (hp.ropes, hp.n_rot, {layer.rope for layer in hp.layers}) == ((), 0, {None})


# ---- rope ----


def rope_of(arch: str = "llama", **values: object) -> Rope:
    (rope,) = hparams_from(named(arch, **values)).ropes
    return rope


def test_rope_scaling_is_read():
    assert rope_of() == Rope(10000.0, n_ctx_orig=16)
    assert rope_of(rope__scaling__factor=4.0).scale == 0.25  # linear where the file does not say
    assert rope_of(rope__scale_linear=4.0).scale == 0.25
    assert rope_of(rope__scale_linear=4.0, rope__scaling__factor=2.0).scale == 0.5
    assert rope_of(rope__scaling__factor=0.0).scale == 1.0
    assert rope_of(rope__scaling__type="none", rope__scaling__factor=4.0).scale == 1.0
    for kind in ("linear", "longrope"):
        assert rope_of(rope__scaling__type=kind, rope__scaling__factor=4.0) == Rope(1e4, 0.25, n_ctx_orig=16)
    keys = {"rope__scaling__original_context_length": 8, "rope__scaling__attn_factor": 1.5}
    yarn = rope_of(rope__scaling__type="yarn", rope__scaling__factor=4.0, **keys)
    assert yarn == Rope(1e4, 0.25, yarn=(32.0, 1.0), attn_factor=1.5, n_ctx_orig=8)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("scaling.type", "dynamic", "none, linear, yarn, longrope"),
        ("scaling.factor", -1.0, "a number above 0, at most 1e6"),
        ("scaling.factor", float("nan"), "a number above 0, at most 1e6"),
        ("scale_linear", 1e7, "a number above 0, at most 1e6"),
        ("scaling.attn_factor", 0.0, "a number above 0"),
        ("scaling.original_context_length", 0, "an integer from 1"),
        ("scaling.yarn_ext_factor", 0.5, "1.0 .anything else is not supported"),
        ("scaling.yarn_attn_factor", 0.5, "1.0 .anything else"),
        ("scaling.yarn_log_multiplier", 0.1, "0.0 .anything else"),
    ],
)
def test_rope_scaling_that_makes_no_sense_is_refused_by_name(key, value, allowed):
    with pytest.raises(ArchError, match=f"llama.rope.{key} is .*; allowed: {allowed}"):
        rope_of(**{"rope." + key: value})


def test_yarn_does_not_shorten_a_context():
    with pytest.raises(
        ArchError, match=r"llama.rope.scaling.factor is 0.5; allowed: a number from 1, with yarn"
    ):
        rope_of(rope__scaling__type="yarn", rope__scaling__factor=0.5)


@pytest.mark.parametrize("arch", ["phi3", "stablelm"])
def test_some_turn_a_part_of_a_head(arch):
    assert hparams_from(named(arch, rope__dimension_count=2)).n_rot == 2
    for n_rot in (6, 3):
        match = f"{arch}.rope.dimension_count is {n_rot}; allowed: an even number up to 4, the head size"
        with pytest.raises(ArchError, match=match):
            hparams_from(named(arch, rope__dimension_count=n_rot))


# ---- options ----


def test_granite_s_four_scales():
    hp = hparams_from(
        named("granite", embedding_scale=12.0, attention__scale=0.015, residual_scale=0.22, logit_scale=8.0)
    )
    scales = hp.embedding_scale, hp.attention_scale, hp.residual_scale, hp.logit_scale
    assert scales == (12.0, 0.015, 0.22, 1 / 8)
    hp = hparams_from(named("granite"))
    scales = hp.embedding_scale, hp.attention_scale, hp.residual_scale, hp.logit_scale
    assert scales == (1.0, 4**-0.5, 1.0, 1.0)
    with pytest.raises(
        ArchError, match="granite.rope.scaling.finetuned is false; allowed: true .anything else"
    ):
        hparams_from(named("granite", rope__scaling__finetuned=False))


def test_gemma_s_scales_and_caps():
    hp = hparams_from(named("gemma"))
    assert (hp.embedding_scale, hp.attention_cap, hp.logit_cap) == (8**0.5, 0.0, 0.0)
    hp = hparams_from(named("gemma2"))
    assert (hp.embedding_scale, hp.attention_cap, hp.logit_cap) == (8**0.5, 50.0, 30.0)
    hp = hparams_from(named("gemma2", attn_logit_softcapping=3.0, final_logit_softcapping=0.0))
    assert (hp.attention_cap, hp.logit_cap) == (3.0, 0.0)
    assert hparams_from(named("gemma3")).logit_cap == 0.0
    assert hparams_from(named("gemma3", final_logit_softcapping=7.0)).logit_cap == 7.0
    with pytest.raises(ArchError, match="gemma3.attn_logit_softcapping is 3.0; allowed: 0.0 .anything else"):
        hparams_from(named("gemma3", attn_logit_softcapping=3.0))


@pytest.mark.parametrize(("arch", "n_layer"), [("gemma2", 46), ("gemma3", 62)])
def test_the_largest_gemmas_scale_attention_by_the_embedding_s_share(arch, n_layer):
    sizes = {"attention__key_length": 16, "attention__value_length": 16, "rope__dimension_count": 16}
    assert hparams_from(named(arch, block_count=n_layer, **sizes)).attention_scale == 0.5
    assert hparams_from(named(arch, block_count=n_layer - 1, **sizes)).attention_scale == 0.25


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan"), 1e13])
def test_options_that_make_no_sense_are_refused_by_name(value):
    with pytest.raises(
        ArchError, match="granite.residual_scale is .*; allowed: 0, or a number from 1e-30 to 1e12"
    ):
        hparams_from(named("granite", residual_scale=value))


def test_the_epsilon_s_key_is_that_of_the_norm():
    gguf = named("starcoder2")
    del gguf.metadata["starcoder2.attention.layer_norm_rms_epsilon"]
    gguf.metadata["starcoder2.attention.layer_norm_epsilon"] = 0.25
    assert hparams_from(gguf).norm_eps == 0.25
    gguf = named("qwen3")
    del gguf.metadata["qwen3.attention.layer_norm_rms_epsilon"]
    with pytest.raises(GgufError, match="qwen3.attention.layer_norm_rms_epsilon"):
        hparams_from(gguf)


def experts(name: str = "mixtral", **values: object) -> HParams:
    """One of the tiny models with experts, with keys (the prefix left out) set, or left out where None."""
    gguf = parse(gguf_bytes(MODELS[name]))
    for key, value in values.items():
        gguf.metadata.pop(f"{MODELS[name].arch}.{key}", None)
        if value is not None:
            gguf.metadata[f"{MODELS[name].arch}.{key}"] = value
    return hparams_from(gguf)


def test_experts_are_read_and_their_hidden_rows():
    hp = experts()
    assert (hp.n_expert, hp.n_expert_used, hp.n_ff, hp.expert_scale) == (5, 2, 96, 1.0)
    hp = experts("qwen3moe", expert_weights_scale=2.5)
    assert (hp.n_expert, hp.n_expert_used, hp.n_ff, hp.expert_scale) == (8, 3, 32, 2.5)
    assert experts("qwen3moe", expert_feed_forward_length=64).n_ff == 64
    assert experts(expert_used_count=5).n_expert_used == 5
    hp = experts(expert_count=0, expert_used_count=None)
    assert (hp.n_expert, hp.n_expert_used) == (0, 0)


def test_how_many_experts_a_token_has_must_be_said():
    with pytest.raises(GgufError, match="llama.expert_used_count"):
        experts(expert_used_count=None)


@pytest.mark.parametrize(
    ("name", "key", "value", "allowed"),
    [
        ("mixtral", "expert_used_count", 6, "an integer from 1 to 5"),
        ("mixtral", "expert_used_count", 0, "an integer from 1 to 5"),
        ("mixtral", "expert_count", 513, "an integer up to 512"),
        ("mixtral", "expert_weights_scale", float("nan"), "0, or a number from 1e-30 to 1e"),
        ("mixtral", "feed_forward_length", 80, "a multiple of 32, with experts"),
        ("qwen3moe", "expert_feed_forward_length", 16, "a multiple of 32, with experts"),
    ],
)
def test_experts_that_make_no_sense_are_refused_by_name(name, key, value, allowed):
    message = f"{MODELS[name].arch}.{key} is {value}; allowed: {allowed}"
    with pytest.raises(ArchError, match=message):
        experts(name, **{key: value})


def test_rows_of_experts_are_whole_tiles():
    model = sized("mixtral", n_embd=48, d=12)
    with pytest.raises(
        ArchError, match="llama.embedding_length is 48; allowed: a multiple of 32, with experts"
    ):
        hparams_from(parse(gguf_bytes(model)))


def test_an_architecture_without_experts_refuses_them():
    with pytest.raises(ArchError, match="phi3.expert_count is 4; allowed: 0"):
        hparams_from(named("phi3", expert_count=4))
