"""Every architecture: the oracle against what llama.cpp computed for tiny random models of it.

Both have a float32 cache and float32 sums, in another order: 3e-11 was the worst NMSE measured where that is
all. llama.cpp looks gelu up in a table of half floats, from which exact gelu is up to 6e-7 away.
"""

from dataclasses import replace

import numpy as np
import pytest
from archs import MODELS, gguf_bytes, load

from pagelm.arch import spec_for, supported
from pagelm.errors import ArchError, LimitError
from pagelm.host.oracle import Oracle, ops
from pagelm.host.oracle.half import round_f16
from pagelm.sources import MemorySource

SAME_SUMS, ROUNDED_GELU = 1e-9, 1e-6
NAMES = [name for name, model in MODELS.items() if model.arch in supported()]

GELU = [name for name in NAMES if spec_for(MODELS[name].arch).activation == "gelu"]


def oracle_of(model, **options):
    return Oracle(MemorySource(gguf_bytes(model), f"{model.name}.gguf"), **options)


def logits_of(name, model=None, step=None):
    """Of every position of the reference, `step` tokens a pass."""
    reference = load(name)
    oracle, ids = oracle_of(model or MODELS[name], n_ctx=reference.n_ctx), reference.all_ids
    step = step or len(ids)
    return np.concatenate([oracle.forward_all(ids[at : at + step]) for at in range(0, len(ids), step)])


def without(model, key):
    return replace(model, metadata={k: v for k, v in model.metadata.items() if k != key})


def test_there_is_a_model_of_every_architecture():
    assert {MODELS[name].arch for name in NAMES} == set(supported())


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_llama_cpps(name):
    reference, logits = load(name), logits_of(name)
    assert reference.nmse(logits) < (ROUNDED_GELU if name in GELU else SAME_SUMS)
    assert reference.difference(logits) < (2e-2 if name in GELU else 1e-4)
    assert tuple(logits[len(reference.ids) - 1 : -1].argmax(1)) == reference.generated


@pytest.mark.parametrize("name", GELU)
def test_gelus_table_is_what_is_between_them(name, monkeypatch):
    """With the table in the oracle too, what is left is as much as between two orders of summation.

    A difference in the last bit takes another entry of the table now and then.
    """
    exact, gelu = load(name).nmse(logits_of(name)), ops.gelu

    def of_halves(x):
        """ggml_vec_gelu_f32."""
        return np.where(x <= -10, 0, np.where(x >= 10, x, round_f16(gelu(round_f16(x)))))

    monkeypatch.setattr(ops, "gelu", of_halves)
    assert load(name).nmse(logits_of(name)) < exact / 3


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "gpt2", "phi3-long", "stablelm-parallel"])
@pytest.mark.parametrize("step", [1, 7])
def test_any_cut_of_the_tokens_gives_the_same(name, step):
    whole = logits_of(name)
    assert np.abs(logits_of(name, step=step) - whole).max() < 1e-4 * np.abs(whole).max()


def test_a_window_changes_what_lies_behind_it():
    model, key = MODELS["mistral"], "attention.sliding_window"
    got, whole, size = logits_of("mistral"), logits_of("mistral", without(model, key)), model.metadata[key]
    assert np.allclose(got[:size], whole[:size], atol=1e-4)
    assert (np.abs(got[size:] - whole[size:]).max(axis=1) > 0.1).all()
    wide = replace(model, metadata={**model.metadata, key: len(got)})
    assert np.array_equal(logits_of("mistral", wide), whole)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("gemma2", "attn_logit_softcapping", 4.2),
        ("gemma2", "final_logit_softcapping", 6.1),
        ("gemma2", "attention.sliding_window", 17),
        ("gemma3", "rope.scaling.factor", 7.0),
        ("gemma3", "rope.freq_base_swa", 11000.0),
        ("granite", "embedding_scale", 3.1),
        ("granite", "attention.scale", 0.41),
        ("granite", "residual_scale", 0.31),
        ("granite", "logit_scale", 1.61),
        ("llama-yarn", "rope.scaling.factor", 4.1),
        ("llama-yarn", "rope.scaling.original_context_length", 300),
        ("olmo3", "attention.sliding_window", 15),
        ("phi3-long", "rope.scaling.attn_factor", 1.2),
        ("phi3-long", "rope.scaling.original_context_length", 1000),  # the other factors
        ("stablelm", "rope.dimension_count", 10),
        ("starcoder2", "attention.layer_norm_epsilon", 3e-3),
    ],
)
def test_a_slightly_wrong_option_is_seen(name, key, value):
    """What the agreement is worth: each of these is far outside of what is allowed."""
    model, reference = MODELS[name], load(name)
    right = reference.nmse(logits_of(name))
    wrong = reference.nmse(logits_of(name, replace(model, metadata={**model.metadata, key: value})))
    assert wrong > 10 * (ROUNDED_GELU if name in GELU else SAME_SUMS) and wrong > 30 * right


PRE_NORM = (
    "attn_norm attn_q attn_k attn_v rope_q rope_k kv_store attn_scores attn_softmax attn_values attn_output "
    "attn_residual ffn_norm ffn_gate ffn_up swiglu ffn_down ffn_residual"
)
LABELS = {
    "llama": PRE_NORM,
    "phi3": PRE_NORM,  # one tensor for q, k and v, one for gate and up
    "llama-bias": "attn_norm attn_q attn_q_bias attn_k attn_k_bias attn_v attn_v_bias rope_q rope_k kv_store "
    "attn_scores attn_softmax attn_values attn_output attn_output_bias attn_residual ffn_norm ffn_gate "
    "ffn_gate_bias ffn_up ffn_up_bias swiglu ffn_down ffn_down_bias ffn_residual",
    "gemma3": "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm rope_q rope_k kv_store attn_scores "
    "attn_softmax attn_values attn_output post_attention_norm attn_residual ffn_norm ffn_gate ffn_up geglu "
    "ffn_down post_ffw_norm ffn_residual",
    "olmo2": "attn_q attn_k attn_v attn_q_norm attn_k_norm rope_q rope_k kv_store attn_scores attn_softmax "
    "attn_values attn_output post_attention_norm attn_residual ffn_gate ffn_up swiglu ffn_down post_ffw_norm "
    "ffn_residual",
    "gpt2": "attn_norm attn_q attn_q_bias attn_k attn_k_bias attn_v attn_v_bias kv_store attn_scores "
    "attn_softmax attn_values attn_output attn_output_bias attn_residual ffn_norm ffn_up ffn_up_bias gelu "
    "ffn_down ffn_down_bias ffn_residual",
    "stablelm-parallel": "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm rope_q rope_k kv_store "
    "attn_scores attn_softmax attn_values attn_output attn_residual ffn_gate ffn_up swiglu ffn_down "
    "ffn_residual",
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_are_those_of_the_architecture(name):
    oracle = oracle_of(MODELS[name], n_ctx=64)
    first = [label for label in oracle.labels() if label.startswith("blk.0.")]
    assert first == [f"blk.0.{op}" for op in LABELS[name].split()]
    start = ["embed", "embed_positions"] if name == "gpt2" else ["embed"]
    assert oracle.labels()[: len(start) + 1] == [*start, first[0]]
    assert oracle.labels()[-3:] == ["output_norm", "output", "argmax"]


def test_a_layer_without_rope_has_no_label_for_it():
    labels = oracle_of(MODELS["smollm3"]).labels()
    turned = [label for label in labels if label.endswith(("rope_q", "rope_k"))]
    assert turned == [f"blk.{i}.rope_{x}" for i in (0, 1, 2, 4) for x in "qk"]


@pytest.mark.parametrize("name", NAMES)
def test_trace_holds_what_the_labels_say(name):
    reference, trace = load(name), {}
    oracle = oracle_of(MODELS[name], n_ctx=reference.n_ctx)
    logits = oracle.forward(reference.ids, trace=trace)
    assert list(trace) == oracle.labels()
    hp, weights = oracle.hparams, oracle.weights
    assert np.array_equal(trace["output"], logits) and trace["argmax"] == [reference.generated[0]]
    stream = trace["embed_positions" if hp.arch.positions else "embed"]
    for i in range(hp.n_layer):
        at = f"blk.{i}."
        for op, added in (
            ("attn_residual", ("post_attention_norm", "attn_output_bias", "attn_output")),
            ("ffn_residual", ("post_ffw_norm", "ffn_down_bias", "ffn_down", "ffn_moe_out")),
        ):
            block = next(trace[at + label] for label in added if at + label in trace)
            assert np.allclose(trace[at + op], stream + np.float32(hp.residual_scale) * block, atol=1e-6)
            stream = trace[at + op]
        for label in oracle.labels():
            if label.startswith(at) and label.endswith("_bias"):
                op = label.removesuffix("_bias")
                assert np.array_equal(trace[label], trace[op] + weights.tensor(f"{op}.bias"))
        weights_of_keys = trace[at + "attn_softmax"]
        seen = hp.layers[i].window or len(reference.ids)
        assert np.array_equal(weights_of_keys > 0, np.isfinite(trace[at + "attn_scores"]))
        assert (weights_of_keys[:, -seen:] > 0).all() and not weights_of_keys[:, :-seen].any()
        stored = trace[at + "kv_store"]
        made = [at + op for op in ("attn_k", "attn_k_bias", "attn_k_norm", "rope_k") if at + op in trace]
        assert np.array_equal(stored[: hp.n_embd_kv], trace[made[-1]])


def test_learned_positions_end():
    model = MODELS["gpt2"]
    end = model.shapes["position_embd.weight"][0]
    assert oracle_of(model).n_ctx == end
    assert oracle_of(model, n_ctx=end - 1).n_ctx == end - 1
    with pytest.raises(
        LimitError, match=f"gpt2.gguf has vectors for {end} positions; a context of {end + 1}"
    ):
        oracle_of(model, n_ctx=end + 1)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("stablelm", "architecture 'stablelm'"),
        ("mixtral", "experts"),
        ("gpt2", "architecture 'gpt2'"),
        ("mistral", "a sliding window"),
        ("llama-yarn", "the scaling of rope"),
        ("phi3-long", "the scaling of rope"),
    ],
)
def test_exact_mode_refuses_what_it_does_not_follow(name, what):
    with pytest.raises(ArchError, match=f"{name}.gguf: ggml-exact mode does not follow {what}"):
        oracle_of(MODELS[name], exact=True)
    oracle_of(MODELS["llama"], exact=True)
    oracle_of(MODELS[name])
