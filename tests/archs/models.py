"""The tiny models as data: metadata keys and tensor shapes of every architecture, and of its options.

Sizes are small, but differ from each other wherever a mistake could hide: n_head * n_embd_head is not n_embd, n_ff is no multiple
of it, key/value heads are fewer than query heads, epsilons are large enough to matter, windows are shorter than
the sequence. What the options mean is in FACTS.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Shapes = dict[str, tuple[int, ...]]

N_VOCAB = 320
N_CTX = 256  # the context that references are made in; what llama.cpp rounds every smaller one up to
F32_ALWAYS = {".bias": "F32", "_norm": "F32", "sinks": "F32", "rope_f": "F32", "position_embd": "F32", "conv.weight": "F32"}


@dataclass(frozen=True, slots=True)
class TinyModel:
    """One model. `metadata`: keys after the architecture's prefix. `shapes`: tensor -> (…, rows, columns).

    `types`: part of a tensor's name -> ggml type, tried in order. `gains`: part of a name -> factor of what
    `values.py` would take, where an architecture needs other weights to give logits of ordinary size.
    """

    name: str
    arch: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, str] = field(default_factory=lambda: F32_ALWAYS | {"": "F32"})
    gains: Mapping[str, float] = field(default_factory=dict)
    seed: int = 1

    def of_types(self, types: Mapping[str, str]) -> "TinyModel":
        """The same model with matrices of other types; vectors stay F32."""
        return replace(self, types=F32_ALWAYS | dict(types))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model; counts are elements."""

    n_embd: int = 64
    n_layer: int = 3
    n_head: int = 4
    n_head_kv: int = 2
    d: int = 24  # elements of a head
    n_ff: int = 96
    n_expert: int = 0
    n_ff_exp: int = 0

    @property
    def q(self) -> int:
        return self.n_head * self.d

    @property
    def kv(self) -> int:
        return self.n_head_kv * self.d

    def metadata(self) -> dict[str, Any]:
        """The keys that every architecture has."""
        return {
            "context_length": 1024,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "vocab_size": N_VOCAB,
        }


RMS = {"attention.layer_norm_rms_epsilon": 2e-3}
LAYER_NORM = {"attention.layer_norm_epsilon": 2e-3}


def rope(n_rot: int, base: float = 10000.0) -> dict[str, Any]:
    return {"rope.dimension_count": n_rot, "rope.freq_base": base}


def heads(s: Sizes) -> dict[str, Any]:
    return {"attention.key_length": s.d, "attention.value_length": s.d}


def model(
    name: str, s: Sizes, metadata: Mapping[str, Any], layer: Callable[[Sizes], Shapes], ends: Shapes, **more: Any
) -> TinyModel:
    """`layer(s)`: the tensors of every layer, by what follows "blk.N."; `ends`: the others."""
    arch = more.pop("arch", name)
    shapes = {f"blk.{i}.{part}": shape for i in range(s.n_layer) for part, shape in layer(s).items()}
    return TinyModel(name, arch, s.metadata() | dict(metadata), {**ends, **shapes}, **more)


def ends(s: Sizes, *, tied: bool = False, bias: bool = False) -> Shapes:
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, s.n_embd), "output_norm.weight": (s.n_embd,)}
    if bias:
        shapes["output_norm.bias"] = (s.n_embd,)
    if not tied:
        shapes["output.weight"] = (N_VOCAB, s.n_embd)
    return shapes


def biases(shapes: Shapes, *parts: str) -> Shapes:
    """A bias for every one of `parts`, as long as its weight has rows (norms: columns)."""
    return {f"{part}.bias": shapes[f"{part}.weight"][:1] for part in parts}


def attention(s: Sizes) -> Shapes:
    return {
        "attn_q.weight": (s.q, s.n_embd),
        "attn_k.weight": (s.kv, s.n_embd),
        "attn_v.weight": (s.kv, s.n_embd),
        "attn_output.weight": (s.n_embd, s.q),
    }


def gated_ffn(s: Sizes) -> Shapes:
    return {
        "ffn_gate.weight": (s.n_ff, s.n_embd),
        "ffn_up.weight": (s.n_ff, s.n_embd),
        "ffn_down.weight": (s.n_embd, s.n_ff),
    }


def norms(s: Sizes, *names: str) -> Shapes:
    return {f"{name}.weight": (s.n_embd,) for name in names}


def experts(s: Sizes, n_ff: int) -> Shapes:
    return {
        "ffn_gate_inp.weight": (s.n_expert, s.n_embd),
        "ffn_gate_exps.weight": (s.n_expert, n_ff, s.n_embd),
        "ffn_up_exps.weight": (s.n_expert, n_ff, s.n_embd),
        "ffn_down_exps.weight": (s.n_expert, s.n_embd, n_ff),
    }


def llama_layer(s: Sizes) -> Shapes:
    return norms(s, "attn_norm", "ffn_norm") | attention(s) | gated_ffn(s)


def llama(name: str, s: Sizes, extra: Mapping[str, Any], *, tied: bool = False, base: float = 10000.0) -> TinyModel:
    metadata = RMS | heads(s) | rope(s.d, base) | dict(extra)
    return model(name, s, metadata, llama_layer, ends(s, tied=tied), arch="llama")


def llamas() -> list[TinyModel]:
    plain = Sizes()
    llama3 = llama("llama3", Sizes(n_head=6, n_head_kv=2, d=16), {}, tied=True, base=500000.0)
    linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 256}
    return [
        llama("llama", plain, {}),
        replace(llama3, shapes={**llama3.shapes, "rope_freqs.weight": (8,)}),
        llama("llama-linear", plain, linear),
        llama("llama-yarn", Sizes(d=32), yarn),
        # llama.cpp does not read the window of this architecture
        llama("mistral", Sizes(n_head=4, n_head_kv=1, d=16), {"attention.sliding_window": 16}),
        model("llama-bias", plain, RMS | heads(plain) | rope(plain.d), biased_llama_layer, ends(plain), arch="llama"),
    ]


def biased_llama_layer(s: Sizes) -> Shapes:
    shapes = llama_layer(s)
    parts = "attn_q attn_k attn_v attn_output ffn_gate ffn_up ffn_down".split()
    return shapes | biases(shapes, *parts)


def qwen2() -> TinyModel:
    s = Sizes(d=16)
    def layer(s: Sizes) -> Shapes:
        shapes = llama_layer(s)
        return shapes | biases(shapes, "attn_q", "attn_k", "attn_v")

    return model("qwen2", s, RMS | rope(s.d, 1e6), layer, ends(s, tied=True))


def qwen3_attention(s: Sizes) -> Shapes:
    return attention(s) | {"attn_q_norm.weight": (s.d,), "attn_k_norm.weight": (s.d,)}


def qwen3() -> TinyModel:
    s = Sizes(d=32)
    def layer(s: Sizes) -> Shapes:
        return llama_layer(s) | qwen3_attention(s)

    return model("qwen3", s, RMS | heads(s) | rope(s.d, 1e6), layer, ends(s))


GEMMA_GAINS = {"token_embd": 0.4, "output_norm": 2.5}  # embeddings are multiplied by sqrt(n_embd)


def gemma() -> TinyModel:
    s = Sizes(n_head=3, n_head_kv=1, d=32)
    return model("gemma", s, RMS | heads(s) | rope(s.d), llama_layer, ends(s, tied=True), gains=GEMMA_GAINS)


def gemma2_layer(s: Sizes) -> Shapes:
    return llama_layer(s) | norms(s, "post_attention_norm", "post_ffw_norm")


def gemma2() -> TinyModel:
    s = Sizes(n_layer=4, d=32)
    caps = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0, "attention.sliding_window": 16}
    return model(
        "gemma2", s, RMS | heads(s) | rope(s.d) | caps, gemma2_layer, ends(s, tied=True), gains=GEMMA_GAINS
    )


def gemma3() -> TinyModel:
    s = Sizes(n_layer=7, d=32)
    def layer(s: Sizes) -> Shapes:
        return gemma2_layer(s) | qwen3_attention(s)

    options = {"attention.sliding_window": 16, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    return model(
        "gemma3", s, RMS | heads(s) | rope(s.d, 1e6) | options, layer, ends(s, tied=True), gains=GEMMA_GAINS
    )


def phi3_layer(s: Sizes) -> Shapes:
    return norms(s, "attn_norm", "ffn_norm") | {
        "attn_qkv.weight": (s.q + 2 * s.kv, s.n_embd),
        "attn_output.weight": (s.n_embd, s.q),
        "ffn_up.weight": (2 * s.n_ff, s.n_embd),
        "ffn_down.weight": (s.n_embd, s.n_ff),
    }


def phi3s() -> list[TinyModel]:
    s, wide = Sizes(n_head=4, n_head_kv=4, d=16), Sizes(n_head=2, n_head_kv=1, d=32)
    n_rot = 24
    factors: Shapes = {"rope_factors_long.weight": (n_rot // 2,), "rope_factors_short.weight": (n_rot // 2,)}

    def longrope(name: str, original: int) -> TinyModel:
        options = {"rope.scaling.original_context_length": original, "rope.scaling.attn_factor": 1.19}
        metadata = RMS | rope(n_rot) | options | {"attention.sliding_window": 0}
        return model(name, wide, metadata, phi3_layer, ends(wide, tied=True) | factors, arch="phi3")

    # llama.cpp does not use the window of this architecture
    options = {"rope.scaling.original_context_length": 1024, "attention.sliding_window": 16}
    return [
        model("phi3", s, RMS | rope(s.d) | options, phi3_layer, ends(s)),
        longrope("phi3-long", N_CTX - 1),
        longrope("phi3-short", N_CTX),
    ]


def smollm3() -> TinyModel:
    s = Sizes(n_layer=5, d=16)
    return model("smollm3", s, RMS | rope(s.d, 5e6), llama_layer, ends(s, tied=True))


def olmo2_layer(s: Sizes) -> Shapes:
    qk: Shapes = {"attn_q_norm.weight": (s.q,), "attn_k_norm.weight": (s.kv,)}
    return norms(s, "post_attention_norm", "post_ffw_norm") | attention(s) | gated_ffn(s) | qk


def olmo2s() -> list[TinyModel]:
    s = Sizes(d=16)
    deep = replace(s, n_layer=5)
    olmo3 = {
        "attention.sliding_window": 16,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 256,
    }
    return [
        model("olmo2", s, RMS | rope(s.d, 500000.0), olmo2_layer, ends(s)),
        model("olmo3", deep, RMS | rope(s.d, 500000.0) | olmo3, olmo2_layer, ends(s), arch="olmo2"),
    ]


def granite() -> TinyModel:
    s = Sizes(d=16)
    scales = {"embedding_scale": 3.0, "attention.scale": 0.4, "residual_scale": 0.3, "logit_scale": 1.6}
    return model("granite", s, RMS | rope(s.d) | scales, llama_layer, ends(s, tied=True))


def plain_ffn(s: Sizes) -> Shapes:
    shapes: Shapes = {"ffn_up.weight": (s.n_ff, s.n_embd), "ffn_down.weight": (s.n_embd, s.n_ff)}
    return shapes | biases(shapes, "ffn_up", "ffn_down")


def layer_norms(s: Sizes, *names: str) -> Shapes:
    shapes = norms(s, *names)
    return shapes | biases(shapes, *names)


def starcoder2() -> TinyModel:
    s = Sizes(d=16)
    def layer(s: Sizes) -> Shapes:
        shapes = attention(s)
        with_biases = shapes | biases(shapes, "attn_q", "attn_k", "attn_v", "attn_output")
        return layer_norms(s, "attn_norm", "ffn_norm") | with_biases | plain_ffn(s)

    return model("starcoder2", s, LAYER_NORM | rope(s.d, 1e5), layer, ends(s, tied=True, bias=True))


def gpt2() -> TinyModel:
    s = Sizes(n_head=4, n_head_kv=4, d=16)
    def layer(s: Sizes) -> Shapes:
        shapes: Shapes = {"attn_qkv.weight": (3 * s.n_embd, s.n_embd), "attn_output.weight": (s.n_embd, s.n_embd)}
        with_biases = shapes | biases(shapes, "attn_qkv", "attn_output")
        return layer_norms(s, "attn_norm", "ffn_norm") | with_biases | plain_ffn(s)

    positions: Shapes = {"position_embd.weight": (N_CTX, s.n_embd)}
    metadata = LAYER_NORM | {"context_length": N_CTX}
    return model("gpt2", s, metadata, layer, ends(s, tied=True, bias=True) | positions)


def stablelms() -> list[TinyModel]:
    s = Sizes(n_head=2, n_head_kv=1, d=32)
    metadata = LAYER_NORM | rope(8)

    def layer(s: Sizes) -> Shapes:
        shapes = layer_norms(s, "attn_norm", "ffn_norm") | attention(s) | gated_ffn(s)
        return shapes | biases(shapes, "attn_q", "attn_k", "attn_v")

    def parallel_layer(s: Sizes) -> Shapes:
        per_head: Shapes = {"attn_q_norm.weight": (s.n_head, s.d), "attn_k_norm.weight": (s.n_head_kv, s.d)}
        return layer_norms(s, "attn_norm") | attention(s) | gated_ffn(s) | per_head

    wide = Sizes(n_head=4, n_head_kv=2, d=16)
    sequential, parallel = ({"use_parallel_residual": value} for value in (False, True))
    return [
        model("stablelm", s, metadata | sequential, layer, ends(s, bias=True)),
        model(
            "stablelm-parallel", wide, metadata | parallel, parallel_layer, ends(wide, bias=True), arch="stablelm"
        ),
    ]


def exaone() -> TinyModel:
    s = Sizes(d=16)
    return model("exaone", s, RMS | rope(s.d), llama_layer, ends(s) | {"rope_freqs.weight": (s.d // 2,)})


def lfm2() -> TinyModel:
    s = Sizes(n_layer=5, d=16)
    head_count_kv = [0, 0, s.n_head_kv, 0, s.n_head_kv]
    conv: Shapes = {
        "shortconv.conv.weight": (s.n_embd, 3),
        "shortconv.in_proj.weight": (3 * s.n_embd, s.n_embd),
        "shortconv.out_proj.weight": (s.n_embd, s.n_embd),
    }
    shapes = {k: v for k, v in ends(s, tied=True).items() if k != "output_norm.weight"}
    shapes["token_embd_norm.weight"] = (s.n_embd,)
    for i, kv in enumerate(head_count_kv):
        mixer = qwen3_attention(s) if kv else conv
        layer = norms(s, "attn_norm", "ffn_norm") | mixer | gated_ffn(s)
        shapes |= {f"blk.{i}.{part}": shape for part, shape in layer.items()}
    metadata = s.metadata() | RMS | rope(s.d, 1e6)
    metadata |= {"attention.head_count_kv": head_count_kv, "shortconv.l_cache": 3}
    return TinyModel("lfm2", "lfm2", metadata, shapes)


def moe(s: Sizes, used: int) -> dict[str, Any]:
    return {"expert_count": s.n_expert, "expert_used_count": used}


def mixtral() -> TinyModel:
    s = Sizes(d=16, n_expert=5)
    def layer(s: Sizes) -> Shapes:
        return norms(s, "attn_norm", "ffn_norm") | attention(s) | experts(s, s.n_ff)

    return model("mixtral", s, RMS | rope(s.d) | moe(s, 2), layer, ends(s), arch="llama")


def qwen3moe() -> TinyModel:
    s = Sizes(d=32, n_expert=8, n_ff_exp=32)
    def layer(s: Sizes) -> Shapes:
        return norms(s, "attn_norm", "ffn_norm") | qwen3_attention(s) | experts(s, s.n_ff_exp)

    metadata = RMS | heads(s) | rope(s.d, 1e6) | moe(s, 3) | {"expert_feed_forward_length": s.n_ff_exp}
    return model("qwen3moe", s, metadata, layer, ends(s))


def olmoe() -> TinyModel:
    s = Sizes(n_head_kv=4, d=16, n_ff=32, n_expert=8)
    def layer(s: Sizes) -> Shapes:
        qk: Shapes = {"attn_q_norm.weight": (s.q,), "attn_k_norm.weight": (s.kv,)}
        return norms(s, "attn_norm", "ffn_norm") | attention(s) | qk | experts(s, s.n_ff)

    return model("olmoe", s, RMS | rope(s.d) | moe(s, 3), layer, ends(s))


def gpt_oss() -> TinyModel:
    s = Sizes(n_layer=4, d=32, n_expert=6, n_ff_exp=64)
    def layer(s: Sizes) -> Shapes:
        shapes = attention(s)
        exps = experts(s, s.n_ff_exp)
        return (
            norms(s, "attn_norm", "post_attention_norm")
            | shapes
            | biases(shapes, "attn_q", "attn_k", "attn_v", "attn_output")
            | {"attn_sinks.weight": (s.n_head,)}
            | exps
            | {part.replace("weight", "bias"): shape[:-1] for part, shape in exps.items()}
        )

    options = {
        "attention.sliding_window": 16,
        "expert_feed_forward_length": s.n_ff_exp,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 256,
    }
    metadata = RMS | heads(s) | rope(s.d, 150000.0) | moe(s, 2) | options
    tiny = model("gpt-oss", s, metadata, layer, ends(s), gains={"_exps.weight": 2.0})
    return tiny.of_types({"_exps": "MXFP4", "": "F32"})


MODELS = {
    tiny.name: tiny
    for tiny in [
        *llamas(),
        qwen2(),
        qwen3(),
        gemma(),
        gemma2(),
        gemma3(),
        *phi3s(),
        smollm3(),
        *olmo2s(),
        granite(),
        starcoder2(),
        gpt2(),
        *stablelms(),
        exaone(),
        lfm2(),
        mixtral(),
        qwen3moe(),
        olmoe(),
        gpt_oss(),
    ]
}
