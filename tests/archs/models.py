"""The tiny models as data: metadata keys and tensor shapes of every architecture, and of its options.

Sizes are small, but differ from each other wherever a mistake could hide: n_ff is no multiple of n_embd, all
heads together are wider than it where the architecture allows that, key/value heads are fewer than query
heads. Epsilons are large enough to matter, windows are shorter than the sequence. FACTS.md says what the
options do. `MODELS` has every model in its usual size, `sized` makes one of them in another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Shapes = dict[str, tuple[int, ...]]
Metadata = dict[str, Any]
# Metadata, tensors of a layer (or of every layer, where they differ) by what follows "blk.N.", the others.
Parts = tuple[Metadata, Shapes | list[Shapes], Shapes]

N_VOCAB = 320
N_CTX = 256  # the context that references are made in: llama.cpp rounds every smaller one up to this
WINDOW = 16
# What stays F32 in every file, matrices among it.
ALWAYS_F32 = ("_norm", ".bias", "sinks", "rope_f", "position_embd", "shortconv.conv", "ffn_gate_inp")


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
    types: Mapping[str, str] = field(default_factory=lambda: {"": "F32"})
    gains: Mapping[str, float] = field(default_factory=dict)
    seed: int = 1

    def of_types(self, types: Mapping[str, str]) -> "TinyModel":
        """The same model with matrices of other types: part of a name -> ggml type, tried in order."""
        return replace(self, types=dict.fromkeys(ALWAYS_F32, "F32") | dict(types))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a model; counts are elements."""

    n_embd: int = 64
    n_layer: int = 3
    n_head: int = 4
    n_head_kv: int = 2
    d: int = 16  # a head
    n_rot: int = 0  # 0: d
    n_ff: int = 96
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_exp: int = 0

    @property
    def q(self) -> int:
        return self.n_head * self.d

    @property
    def kv(self) -> int:
        return self.n_head_kv * self.d

    def metadata(self) -> Metadata:
        """The keys that every architecture has."""
        keys = {
            "context_length": 1024,
            "embedding_length": self.n_embd,
            "block_count": self.n_layer,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_head,
            "attention.head_count_kv": self.n_head_kv,
            "vocab_size": N_VOCAB,
        }
        if self.q != self.n_embd:
            keys |= {"attention.key_length": self.d, "attention.value_length": self.d}
        if self.n_expert:
            keys |= {"expert_count": self.n_expert, "expert_used_count": self.n_expert_used}
        return keys


@dataclass(frozen=True, slots=True)
class _Description:
    name: str
    arch: str
    sizes: Sizes
    build: Callable[[Sizes], Parts]
    gains: Mapping[str, float]
    types: Mapping[str, str]
    seed: int

    def model(self, sizes: Sizes) -> TinyModel:
        metadata, layers, shapes = self.build(sizes)
        if isinstance(layers, dict):
            layers = [layers] * sizes.n_layer
        for i, layer in enumerate(layers):
            shapes = shapes | {f"blk.{i}.{part}": shape for part, shape in layer.items()}
        gains = self.gains or ({} if "output.weight" in shapes else TIED_GAINS)
        metadata = sizes.metadata() | metadata
        model = TinyModel(self.name, self.arch, metadata, shapes, gains=gains, seed=self.seed)
        return model.of_types(self.types)


_DESCRIPTIONS: dict[str, _Description] = {}


def tiny(
    name: str,
    sizes: Sizes,
    *,
    arch: str | None = None,
    gains: Mapping[str, float] | None = None,
    types: Mapping[str, str] | None = None,
    seed: int = 1,
) -> Callable[[Callable[[Sizes], Parts]], Callable[[Sizes], Parts]]:
    """Make what is decorated a model. Seeds are such that llama.cpp's greedy tokens are many and decided."""

    def register(build: Callable[[Sizes], Parts]) -> Callable[[Sizes], Parts]:
        _DESCRIPTIONS[name] = _Description(
            name, arch or name, sizes, build, gains or {}, types or {"": "F32"}, seed
        )
        return build

    return register


def sized(name: str, **sizes: int) -> TinyModel:
    """The model `name` with other `Sizes`: for types whose blocks are longer than its rows, say."""
    return _DESCRIPTIONS[name].model(replace(_DESCRIPTIONS[name].sizes, **sizes))


# A tied output favours the token that was just read, so the layers must outweigh the embedding.
TIED_GAINS = {"attn_output.weight": 3.0, "ffn_down.weight": 3.0}
# Without a gate the activations have a mean, which would favour one token everywhere.
UNGATED_GAINS = {"attn_output.weight": 4.0, "attn_v": 1.5, "ffn_down.weight": 1.0}
# Embeddings are multiplied by sqrt(n_embd).
GEMMA_GAINS = TIED_GAINS | {"token_embd": 0.3, "output_norm": 3.5, "post_": 2.0}
# residual_scale takes it away again.
GRANITE_GAINS = {"attn_output.weight": 8.0, "ffn_down.weight": 8.0}

RMS = {"attention.layer_norm_rms_epsilon": 2e-3}
LARGE_RMS = {"attention.layer_norm_rms_epsilon": 0.03}  # where what is normed is large
LAYER_NORM = {"attention.layer_norm_epsilon": 2e-3}


def rope(s: Sizes, base: float = 10000.0) -> Metadata:
    return {"rope.dimension_count": s.n_rot or s.d, "rope.freq_base": base}


def scaled(kind: str, factor: float, original: int | None = None) -> Metadata:
    keys: Metadata = {"rope.scaling.type": kind, "rope.scaling.factor": factor}
    return keys if original is None else keys | {"rope.scaling.original_context_length": original}


def ends(s: Sizes, *, tied: bool = False) -> Shapes:
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, s.n_embd), "output_norm.weight": (s.n_embd,)}
    return shapes if tied else shapes | {"output.weight": (N_VOCAB, s.n_embd)}


def norms(s: Sizes, *names: str) -> Shapes:
    return {f"{name}.weight": (s.n_embd,) for name in names}


def attention(s: Sizes) -> Shapes:
    return {
        "attn_q.weight": (s.q, s.n_embd),
        "attn_k.weight": (s.kv, s.n_embd),
        "attn_v.weight": (s.kv, s.n_embd),
        "attn_output.weight": (s.n_embd, s.q),
    }


def fused_attention(s: Sizes) -> Shapes:
    return {"attn_qkv.weight": (s.q + 2 * s.kv, s.n_embd), "attn_output.weight": (s.n_embd, s.q)}


def qk_norms(q: tuple[int, ...], k: tuple[int, ...]) -> Shapes:
    return {"attn_q_norm.weight": q, "attn_k_norm.weight": k}


def ungated_ffn(s: Sizes) -> Shapes:
    return {"ffn_up.weight": (s.n_ff, s.n_embd), "ffn_down.weight": (s.n_embd, s.n_ff)}


def gated_ffn(s: Sizes) -> Shapes:
    return {"ffn_gate.weight": (s.n_ff, s.n_embd), **ungated_ffn(s)}


def experts(s: Sizes) -> Shapes:
    n_ff = s.n_ff_exp or s.n_ff
    return {
        "ffn_gate_inp.weight": (s.n_expert, s.n_embd),
        "ffn_gate_exps.weight": (s.n_expert, n_ff, s.n_embd),
        "ffn_up_exps.weight": (s.n_expert, n_ff, s.n_embd),
        "ffn_down_exps.weight": (s.n_expert, s.n_embd, n_ff),
    }


def with_biases(shapes: Shapes, but: tuple[str, ...] = ()) -> Shapes:
    """A bias beside every weight: as long as a norm, as a matrix has rows, for every expert its own."""
    bias = {
        name.replace("weight", "bias"): shape[: max(1, len(shape) - 1)]
        for name, shape in shapes.items()
        if name not in but
    }
    return shapes | bias


def biased_qkv(s: Sizes) -> Shapes:
    return with_biases(attention(s), but=("attn_output.weight",))


PRE = ("attn_norm", "ffn_norm")
POST = ("post_attention_norm", "post_ffw_norm")


def llama_layer(s: Sizes) -> Shapes:
    return norms(s, *PRE) | attention(s) | gated_ffn(s)


# llama


@tiny("llama", Sizes(d=24), seed=3)
def _(s: Sizes) -> Parts:
    return RMS | rope(s), llama_layer(s), ends(s)


@tiny("llama3", Sizes(n_head=6), arch="llama", seed=6)
def _(s: Sizes) -> Parts:
    """Tied, with rope factors."""
    return RMS | rope(s, 5e5), llama_layer(s), ends(s, tied=True) | {"rope_freqs.weight": (s.d // 2,)}


@tiny("llama-linear", Sizes(d=24), arch="llama", seed=4)
def _(s: Sizes) -> Parts:
    return RMS | rope(s) | scaled("linear", 4.0), llama_layer(s), ends(s)


@tiny("llama-yarn", Sizes(d=32), arch="llama")
def _(s: Sizes) -> Parts:
    return RMS | rope(s, 2000.0) | scaled("yarn", 4.0, 512), llama_layer(s), ends(s)


@tiny("mistral", Sizes(n_head_kv=1), arch="llama")
def _(s: Sizes) -> Parts:
    """llama.cpp does not use the window of this architecture."""
    return RMS | rope(s) | {"attention.sliding_window": WINDOW}, llama_layer(s), ends(s)


@tiny("llama-bias", Sizes(d=24), arch="llama", seed=3)
def _(s: Sizes) -> Parts:
    return RMS | rope(s), norms(s, *PRE) | with_biases(attention(s) | gated_ffn(s)), ends(s)


@tiny("smollm3", Sizes(n_layer=5))
def _(s: Sizes) -> Parts:
    return RMS | rope(s, 5e6), llama_layer(s), ends(s, tied=True)


@tiny("granite", Sizes(), gains=GRANITE_GAINS, seed=13)
def _(s: Sizes) -> Parts:
    scales = {"embedding_scale": 3.0, "attention.scale": 0.4, "residual_scale": 0.3, "logit_scale": 1.6}
    return LARGE_RMS | rope(s) | scales, llama_layer(s), ends(s, tied=True)


@tiny("exaone", Sizes())
def _(s: Sizes) -> Parts:
    return RMS | rope(s), llama_layer(s), ends(s) | {"rope_freqs.weight": (s.d // 2,)}


# qwen, olmo


@tiny("qwen2", Sizes(), seed=3)
def _(s: Sizes) -> Parts:
    return RMS | rope(s, 1e6), norms(s, *PRE) | biased_qkv(s) | gated_ffn(s), ends(s, tied=True)


@tiny("qwen3", Sizes(d=32), seed=2)
def _(s: Sizes) -> Parts:
    return RMS | rope(s, 1e6), llama_layer(s) | qk_norms((s.d,), (s.d,)), ends(s)


def olmo2_layer(s: Sizes) -> Shapes:
    return norms(s, *POST) | attention(s) | gated_ffn(s) | qk_norms((s.q,), (s.kv,))


@tiny("olmo2", Sizes(), seed=4)
def _(s: Sizes) -> Parts:
    return RMS | rope(s, 5e5), olmo2_layer(s), ends(s)


@tiny("olmo3", Sizes(n_layer=5), arch="olmo2")
def _(s: Sizes) -> Parts:
    options = scaled("yarn", 4.0, 256) | {"attention.sliding_window": WINDOW}
    return RMS | rope(s) | options, olmo2_layer(s), ends(s)


# gemma


@tiny("gemma", Sizes(n_head=3, n_head_kv=1, d=32), gains=GEMMA_GAINS)
def _(s: Sizes) -> Parts:
    return LARGE_RMS | rope(s), llama_layer(s), ends(s, tied=True)


@tiny("gemma2", Sizes(n_layer=4, d=32), gains=GEMMA_GAINS, seed=9)
def _(s: Sizes) -> Parts:
    caps = {"attn_logit_softcapping": 4.0, "final_logit_softcapping": 6.0}
    options = caps | {"attention.sliding_window": WINDOW}
    return LARGE_RMS | rope(s) | options, llama_layer(s) | norms(s, *POST), ends(s, tied=True)


@tiny("gemma3", Sizes(n_layer=7, d=32), gains=GEMMA_GAINS, seed=13)
def _(s: Sizes) -> Parts:
    options = scaled("linear", 8.0) | {"attention.sliding_window": WINDOW}
    layer = llama_layer(s) | norms(s, *POST) | qk_norms((s.d,), (s.d,))
    return LARGE_RMS | rope(s, 5e4) | options, layer, ends(s, tied=True)


# phi3


def phi3_layer(s: Sizes) -> Shapes:
    ffn: Shapes = {"ffn_up.weight": (2 * s.n_ff, s.n_embd), "ffn_down.weight": (s.n_embd, s.n_ff)}
    return norms(s, *PRE) | fused_attention(s) | ffn


def longrope(s: Sizes, original: int) -> Parts:
    """Partial rotation, too."""
    options = {"rope.scaling.original_context_length": original, "rope.scaling.attn_factor": 1.19}
    factors: Shapes = {f"rope_factors_{which}.weight": (s.n_rot // 2,) for which in ("long", "short")}
    metadata = RMS | rope(s) | options | {"attention.sliding_window": 0}
    return metadata, phi3_layer(s), ends(s, tied=True) | factors


@tiny("phi3", Sizes(n_head_kv=4))
def _(s: Sizes) -> Parts:
    """llama.cpp does not use the window of this architecture."""
    options = {"rope.scaling.original_context_length": 1024, "attention.sliding_window": WINDOW}
    return RMS | rope(s) | options, phi3_layer(s), ends(s)


@tiny("phi3-long", Sizes(n_head=2, n_head_kv=1, d=32, n_rot=24), arch="phi3", seed=5)
def _(s: Sizes) -> Parts:
    return longrope(s, N_CTX - 1)


@tiny("phi3-short", Sizes(n_head=2, n_head_kv=1, d=32, n_rot=24), arch="phi3", seed=3)
def _(s: Sizes) -> Parts:
    return longrope(s, N_CTX)


# with layer norms


@tiny("starcoder2", Sizes(), gains=UNGATED_GAINS, seed=14)
def _(s: Sizes) -> Parts:
    layer = with_biases(norms(s, *PRE) | attention(s) | ungated_ffn(s))
    return LAYER_NORM | rope(s, 1e5), layer, ends(s, tied=True) | {"output_norm.bias": (s.n_embd,)}


@tiny("gpt2", Sizes(n_head_kv=4), gains=UNGATED_GAINS)
def _(s: Sizes) -> Parts:
    layer = with_biases(norms(s, *PRE) | fused_attention(s) | ungated_ffn(s))
    more: Shapes = {"position_embd.weight": (N_CTX, s.n_embd), "output_norm.bias": (s.n_embd,)}
    return LAYER_NORM | {"context_length": N_CTX}, layer, ends(s, tied=True) | more


@tiny("stablelm", Sizes(n_head=2, n_head_kv=1, d=32, n_rot=8))
def _(s: Sizes) -> Parts:
    layer = with_biases(norms(s, *PRE)) | biased_qkv(s) | gated_ffn(s)
    metadata = LAYER_NORM | rope(s) | {"use_parallel_residual": False}
    return metadata, layer, ends(s) | {"output_norm.bias": (s.n_embd,)}


@tiny("stablelm-parallel", Sizes(n_rot=8), arch="stablelm", seed=2)
def _(s: Sizes) -> Parts:
    per_head = qk_norms((s.n_head, s.d), (s.n_head_kv, s.d))
    layer = with_biases(norms(s, "attn_norm")) | attention(s) | gated_ffn(s) | per_head
    metadata = LAYER_NORM | rope(s) | {"use_parallel_residual": True}
    return metadata, layer, ends(s) | {"output_norm.bias": (s.n_embd,)}


# with convolutions


@tiny("lfm2", Sizes(n_layer=5), seed=2)
def _(s: Sizes) -> Parts:
    conv: Shapes = {
        "shortconv.conv.weight": (s.n_embd, 3),
        "shortconv.in_proj.weight": (3 * s.n_embd, s.n_embd),
        "shortconv.out_proj.weight": (s.n_embd, s.n_embd),
    }
    kinds = [s.n_head_kv if i in (2, s.n_layer - 1) else 0 for i in range(s.n_layer)]
    mixers = [attention(s) | qk_norms((s.d,), (s.d,)) if kind else conv for kind in kinds]
    layers = [norms(s, *PRE) | mixer | gated_ffn(s) for mixer in mixers]
    options = {"attention.head_count_kv": kinds, "shortconv.l_cache": 3}
    others: Shapes = {"token_embd.weight": (N_VOCAB, s.n_embd), "token_embd_norm.weight": (s.n_embd,)}
    return RMS | rope(s, 1e6) | options, layers, others


# with experts


@tiny("mixtral", Sizes(n_expert=5, n_expert_used=2), arch="llama")
def _(s: Sizes) -> Parts:
    return RMS | rope(s), norms(s, *PRE) | attention(s) | experts(s), ends(s)


@tiny("qwen3moe", Sizes(d=32, n_expert=8, n_expert_used=3, n_ff_exp=32), seed=3)
def _(s: Sizes) -> Parts:
    layer = norms(s, *PRE) | attention(s) | qk_norms((s.d,), (s.d,)) | experts(s)
    return RMS | rope(s, 1e6) | {"expert_feed_forward_length": s.n_ff_exp}, layer, ends(s)


@tiny("olmoe", Sizes(n_head_kv=4, n_ff=32, n_expert=8, n_expert_used=3), seed=5)
def _(s: Sizes) -> Parts:
    layer = norms(s, *PRE) | attention(s) | qk_norms((s.q,), (s.kv,)) | experts(s)
    return RMS | rope(s), layer, ends(s)


@tiny(
    "gpt-oss",
    Sizes(n_layer=4, d=32, n_expert=6, n_expert_used=2, n_ff_exp=64),
    gains={"_exps.weight": 2.0},
    types={"_exps": "MXFP4", "": "F32"},
    seed=2,
)
def _(s: Sizes) -> Parts:
    sinks: Shapes = {"attn_sinks.weight": (s.n_head,)}
    layer = norms(s, "attn_norm", "post_attention_norm") | with_biases(attention(s) | experts(s)) | sinks
    options = {"attention.sliding_window": WINDOW, "expert_feed_forward_length": s.n_ff_exp}
    return RMS | rope(s, 150000.0) | scaled("yarn", 4.0, 256) | options, layer, ends(s)


MODELS = {name: found.model(found.sizes) for name, found in _DESCRIPTIONS.items()}
