"""Hyper-parameters: metadata + ArchSpec -> HParams.

Everything that the forward pass relies on is checked here, once, before any weight is moved. An option
that would change the result and that pagelm does not compute is refused by name, never ignored.
"""

import math
from array import array
from dataclasses import dataclass

from . import keys
from .arch import ArchSpec, spec_for
from .errors import ArchError
from .gguf import Gguf, shown

# What one more zero in a damaged or hostile file must not turn into work: far above any real model.
MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
MAX_EMBD = 1 << 16
MAX_HEADS = 1 << 10
MAX_HEAD_SIZE = 1 << 12
MAX_FF = 1 << 20
MAX_VOCAB = 1 << 24
MAX_CTX = (1 << 31) - 1
MAX_EXPERTS, MAX_EXPERTS_USED = (
    512,
    64,
)  # llama.cpp's LLAMA_MAX_EXPERTS; one invocation looks through all, so often

# Options that must have their neutral value where a file has them, unless the architecture's spec honours
# them: key after the arch's prefix -> that value.
NEUTRAL: dict[str, object] = {
    "expert_count": 0,
    "expert_shared_count": 0,
    "attention.causal": True,
    "attention.shared_kv_layers": 0,
    "attention.temperature_scale": 0.0,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.scale": 0.0,
    "attention.sliding_window": 0,
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "final_logit_softcapping": 0.0,
    "leading_dense_block_count": 0,
    "logit_scale": 1.0,
    "nextn_predict_layers": 0,
    "residual_scale": 1.0,
    "rope.scaling.alpha": 0.0,
    "rope.scaling.yarn_attn_factor": 1.0,
    "rope.scaling.yarn_beta_fast": 32.0,
    "rope.scaling.yarn_beta_slow": 1.0,
    "rope.scaling.yarn_ext_factor": 1.0,
    "rope.scaling.yarn_log_multiplier": 0.0,
    "swiglu_clamp_exp": 0.0,
    "use_parallel_residual": False,
}
ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
YARN_BETA_FAST, YARN_BETA_SLOW = 32.0, 1.0


@dataclass(frozen=True, slots=True)
class Rope:
    """How fast each pair of a head turns; guest/rope.py has the formulas.

    `scale` multiplies every frequency; with `yarn` those of fast pairs keep their own (`n_ctx_orig`: the
    context before scaling). `attn_factor` multiplies cosines and sines. `factors`: tensors that divide the
    frequencies, of contexts up to `n_ctx_orig` and of longer ones.
    """

    freq_base: float
    scale: float = 1.0
    yarn: tuple[float, float] | None = None  # beta_fast, beta_slow
    attn_factor: float = 1.0
    n_ctx_orig: int = 0
    factors: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """What differs between layers: the last tokens that it sees (0: all), and its rope, if it has one."""

    window: int = 0
    rope: int | None = 0


@dataclass(frozen=True, slots=True)
class HParams:
    """Sizes and constants of one model, in llama.cpp's names. Counts are elements.

    The embedding is multiplied by `embedding_scale`, what a block adds by `residual_scale`, scores by
    `attention_scale`, logits by `logit_scale`. Scores and logits that are capped become cap * tanh(s / cap);
    a cap of 0 is none.
    """

    arch: ArchSpec
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    n_ff: int  # of an expert, where there are any
    n_vocab: int
    n_ctx_train: int
    n_rot: int
    norm_eps: float
    ropes: tuple[Rope, ...]
    layers: tuple[Layer, ...]
    attention_scale: float
    n_expert: int = 0
    n_expert_used: int = 0
    expert_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0

    @property
    def n_embd_q(self) -> int:
        """Columns of all query heads together."""
        return self.n_head * self.n_embd_head

    @property
    def n_embd_kv(self) -> int:
        """Columns of all key (or value) heads together."""
        return self.n_head_kv * self.n_embd_head


def hparams_from(gguf: Gguf) -> HParams:
    """Read and check the hyper-parameters.

    Raises: GgufError for a key that is missing or has the wrong type; ArchError for a value that makes
    no sense or is not supported. Both name the key.
    """
    _check_kind(gguf)
    spec = spec_for(gguf.string("general.architecture"))
    p = spec.name + "."
    for option, neutral in (NEUTRAL | dict(spec.neutral)).items():
        honoured = {"attention.sliding_window": spec.windows, "expert_count": spec.experts}
        if option not in spec.options and not honoured.get(option):
            keys.check_neutral(gguf, p + option, neutral)

    n_layer = keys.size(gguf, p + "block_count", MAX_LAYERS)
    n_embd = keys.size(gguf, p + "embedding_length", MAX_EMBD)
    n_head = keys.size(gguf, p + "attention.head_count", MAX_HEADS)
    n_head_kv = keys.size(gguf, p + "attention.head_count_kv", MAX_HEADS, default=n_head)
    if n_head % n_head_kv:
        raise keys.refused(
            gguf, p + "attention.head_count_kv", f"a divisor of {p}attention.head_count, which is {n_head}"
        )
    n_embd_head = _head_size(gguf, p, n_embd, n_head)
    for key in (p + "attention.key_length_swa", p + "attention.value_length_swa"):
        if gguf.uint(key, default=n_embd_head) != n_embd_head:
            raise keys.refused(gguf, key, f"{n_embd_head}, the head size of the other layers")
    n_ctx_train = keys.size(gguf, p + "context_length", MAX_CTX)
    ropes, layers = _layers(gguf, spec, n_layer, n_ctx_train)
    wide = n_layer == spec.wide_scale_layers
    read = _Options(gguf, spec)
    n_expert = gguf.uint(p + "expert_count", default=0) if spec.experts else 0
    if n_expert > MAX_EXPERTS:
        raise keys.refused(gguf, p + "expert_count", f"an integer up to {MAX_EXPERTS}")
    if n_expert:
        _check_routing(gguf, spec)
    return HParams(
        arch=spec,
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=n_head,
        n_head_kv=n_head_kv,
        n_embd_head=n_embd_head,
        n_ff=_hidden_size(gguf, spec, n_expert),
        n_vocab=_vocab_size(gguf, p, n_embd),
        n_ctx_train=n_ctx_train,
        n_rot=_n_rot(gguf, spec, n_embd_head),
        norm_eps=keys.positive(
            gguf, p + f"attention.layer_norm_{'rms_' if spec.norm == 'rms' else ''}epsilon", most=1.0
        ),
        ropes=ropes,
        layers=layers,
        n_expert=n_expert,
        n_expert_used=keys.size(gguf, p + "expert_used_count", min(n_expert, MAX_EXPERTS_USED))
        if n_expert
        else 0,
        expert_scale=keys.scale(gguf, p + "expert_weights_scale", 1.0) or 1.0 if n_expert else 1.0,
        attention_scale=read("attention.scale") or (n_embd // n_head if wide else n_embd_head) ** -0.5,
        embedding_scale=math.sqrt(n_embd) if spec.scaled_embedding else read("embedding_scale") or 1.0,
        residual_scale=read("residual_scale") or 1.0,
        logit_scale=1 / (read("logit_scale") or 1.0),
        attention_cap=read("attn_logit_softcapping"),
        logit_cap=read("final_logit_softcapping"),
    )


class _Options:
    """Reads options that an architecture may honour; 0 where it does not."""

    def __init__(self, gguf: Gguf, spec: ArchSpec) -> None:
        self._gguf, self._spec = gguf, spec

    def __call__(self, option: str) -> float:
        """Its value, finite and not negative. Raises: GgufError, ArchError."""
        if option not in self._spec.options:
            return 0.0
        key = f"{self._spec.name}.{option}"
        return keys.scale(self._gguf, key, self._spec.options[option])


def _check_routing(gguf: Gguf, spec: ArchSpec) -> None:
    """How a router weighs experts is the spec's; a file that says otherwise is refused."""
    p, over_all = spec.name + ".", spec.experts is not None and spec.experts.over_all
    key = p + "expert_weights_norm"
    if gguf.flag(key, default=not over_all) == over_all:
        raise keys.refused(gguf, key, f"{shown(not over_all)} (anything else is not supported)")
    for name, allowed in (("expert_gating_func", (0, 1, 3)), ("expert_group_count", (0, 1))):  # no sigmoid
        if gguf.uint(p + name, default=0) not in allowed:
            named = ", ".join(map(str, allowed))
            raise keys.refused(gguf, p + name, f"{named} (anything else is not supported)")


def _hidden_size(gguf: Gguf, spec: ArchSpec, n_expert: int) -> int:
    """Elements of the hidden row of a feed-forward block, or of an expert."""
    p = spec.name + "."
    sizes = spec.experts.size if spec.experts and n_expert else ("feed_forward_length",)
    key = next((size for size in sizes if p + size in gguf.metadata), sizes[0])
    n_ff = keys.size(gguf, p + key, MAX_FF)
    for size in (key, "embedding_length") if n_expert else ():  # whole tiles of rows
        if gguf.uint(p + size) % 32:
            raise keys.refused(gguf, p + size, "a multiple of 32, with experts")
    return n_ff


def _n_rot(gguf: Gguf, spec: ArchSpec, n_embd_head: int) -> int:
    """Elements of a head that rope turns."""
    if spec.rope == "none":
        return 0
    key = f"{spec.name}.rope.dimension_count"
    n_rot = keys.size(gguf, key, MAX_HEAD_SIZE, default=n_embd_head)
    if spec.partial_rope and (n_rot % 2 or n_rot > n_embd_head):
        raise keys.refused(gguf, key, f"an even number up to {n_embd_head}, the head size")
    if not spec.partial_rope and n_rot != n_embd_head:
        raise keys.refused(gguf, key, f"{n_embd_head}, the head size (no partial rotation)")
    return n_rot


def _layers(
    gguf: Gguf, spec: ArchSpec, n_layer: int, n_ctx_train: int
) -> tuple[tuple[Rope, ...], tuple[Layer, ...]]:
    """The ropes, at most two, and each layer's window and rope."""
    rope = _rope(gguf, spec, n_ctx_train)
    windows, p = spec.windows, spec.name + "."
    key = p + "attention.sliding_window"
    size = gguf.uint(key, default=windows.size, most=MAX_CTX) if windows else 0
    if not windows or not size:
        windowed = [False] * n_layer
        ropes = [rope]
    else:
        windowed = _windowed(gguf, p, n_layer, windows.period)
        base = windows.freq_base or rope.freq_base
        base = keys.positive(gguf, p + "rope.freq_base_swa", default=base)
        if base == 1 and rope.yarn and windows.scaled:
            raise keys.refused(gguf, p + "rope.freq_base_swa", "any number above 0 but 1, with yarn")
        plain = Rope(base, n_ctx_orig=rope.n_ctx_orig)
        local = Rope(base, rope.scale, rope.yarn, rope.attn_factor, rope.n_ctx_orig, rope.factors)
        ropes = list(dict.fromkeys([rope, local if windows.scaled else plain]))
    layers = [
        Layer(
            size if windowed[i] else 0,
            None
            if spec.rope == "none" or (spec.rope_period and (i + 1) % spec.rope_period == 0)
            else len(ropes) - 1
            if windowed[i]
            else 0,
        )
        for i in range(n_layer)
    ]
    return (tuple(ropes) if spec.rope != "none" else ()), tuple(layers)


def _windowed(gguf: Gguf, p: str, n_layer: int, period: int) -> list[bool]:
    """For each layer whether it has a window: by a list in the file, or all but the last of each `period`."""
    key = p + "attention.sliding_window_pattern"
    found = gguf.metadata.get(key)
    if isinstance(found, list | array):
        if len(found) != n_layer or any(value not in (0, 1) for value in found):
            raise keys.refused(gguf, key, f"an integer, or true or false for each of {n_layer} layers")
        return [bool(value) for value in found]
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or found < 0):
        raise gguf.error(key, f"an integer from 0, or true or false for each of {n_layer} layers")
    period = gguf.uint(key, default=period)
    return [not period or i % period < period - 1 for i in range(n_layer)]


def _rope(gguf: Gguf, spec: ArchSpec, n_ctx_train: int) -> Rope:
    """The rope of layers without a window."""
    p = spec.name + ".rope."
    kind = gguf.string(p + "scaling.type", default="linear")
    if kind not in ROPE_SCALINGS:
        raise keys.refused(gguf, p + "scaling.type", ", ".join(ROPE_SCALINGS))
    key = p + ("scaling.factor" if p + "scaling.factor" in gguf.metadata else "scale_linear")
    factor = gguf.number(key, default=1.0) or 1.0  # 0 means none
    if not (math.isfinite(factor) and 0 < factor <= 1e6):
        raise keys.refused(gguf, key, "a number above 0, at most 1e6")
    if kind == "yarn" and factor < 1:
        raise keys.refused(gguf, key, "a number from 1, with yarn")
    freq_base = keys.positive(gguf, p + "freq_base", default=10000.0)
    if kind == "yarn" and freq_base == 1:
        raise keys.refused(gguf, p + "freq_base", "any number above 0 but 1, with yarn")
    factors = None
    if "rope_freqs.weight" in gguf.tensors and spec.rope_factors:
        factors = ("rope_freqs.weight", "rope_freqs.weight")
    elif spec.rope_factors and any(f"rope_factors_{n}.weight" in gguf.tensors for n in ("long", "short")):
        factors = ("rope_factors_short.weight", "rope_factors_long.weight")
    return Rope(
        freq_base=freq_base,
        scale=1.0 if kind == "none" else 1 / factor,
        yarn=(YARN_BETA_FAST, YARN_BETA_SLOW) if kind == "yarn" else None,
        attn_factor=keys.positive(gguf, p + "scaling.attn_factor", default=1.0),
        n_ctx_orig=keys.size(gguf, p + "scaling.original_context_length", MAX_CTX, default=n_ctx_train),
        factors=factors,
    )


def _check_kind(gguf: Gguf) -> None:
    """The header must be a whole model's: no single part of a split one, no adapter, no projector."""
    parts = gguf.uint("split.count", default=0)
    if parts > 1 and parts != len(gguf.parts):
        raise ArchError(
            f"{gguf.name}: split.count is {parts}, and headers of {len(gguf.parts)} of these parts were read;"
            " all are needed (`read_model` in split.py reads them)"
        )
    if gguf.string("general.type", default="model") != "model":
        raise keys.refused(gguf, "general.type", "'model'")


def _head_size(gguf: Gguf, p: str, n_embd: int, n_head: int) -> int:
    """Elements per head: said by the file, or the embedding divided evenly."""
    key, value = p + "attention.key_length", p + "attention.value_length"
    if key in gguf.metadata:
        n = keys.size(gguf, key, MAX_HEAD_SIZE)
    else:
        n, rest = divmod(n_embd, n_head)
        if rest or not n:
            raise keys.refused(
                gguf, p + "attention.head_count", f"a divisor of {p}embedding_length, which is {n_embd}"
            )
    if keys.size(gguf, value, MAX_HEAD_SIZE, default=n) != n:
        raise keys.refused(gguf, value, f"{n}, the size of a key head")
    if n % 4 or n > MAX_HEAD_SIZE:  # the attention kernels read heads four elements at a time
        where = key if key in gguf.metadata else p + "attention.head_count"
        raise ArchError(
            f"{gguf.name}: {where} makes heads of {n} elements; allowed: multiples of 4 up to {MAX_HEAD_SIZE}"
        )
    return n


def _vocab_size(gguf: Gguf, p: str, n_embd: int) -> int:
    """Rows of the embedding; metadata and tokenizer must agree with it."""
    t = gguf.tensors.get("token_embd.weight")
    if t is None:
        raise ArchError(f"{gguf.name}: token_embd.weight is missing; is this a vocabulary without a model?")
    if len(t.shape) != 2 or t.shape[1] != n_embd or not 1 <= t.shape[0] <= MAX_VOCAB:
        raise ArchError(
            f"{gguf.name}: token_embd.weight has shape {t.shape}; allowed: (1 to {MAX_VOCAB}, {n_embd})"
        )
    rows = t.shape[0]
    key = p + "vocab_size"
    if key in gguf.metadata and gguf.uint(key) != rows:
        raise keys.refused(gguf, key, f"{rows}, the rows of token_embd.weight")
    key = "tokenizer.ggml.tokens"
    if key in gguf.metadata and len(gguf.strings(key)) != rows:
        raise keys.refused(gguf, key, f"{rows}, the rows of token_embd.weight")
    return rows
