"""Hyper-parameters: metadata + ArchSpec -> HParams, and the tensors that they demand.

Everything that the forward pass relies on is checked here, once, before any weight is moved. An option
that would change the result and that pagelm does not compute is refused by name, never ignored.
"""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from .arch import ArchSpec, spec_for
from .errors import ArchError
from .gguf import Gguf, TensorInfo, shown
from .quants import SUPPORTED
from .string_array import StringArray

# What one more zero in a damaged or hostile file must not turn into work: far above any real model.
MAX_LAYERS = 512  # llama.cpp's LLAMA_MAX_LAYERS
MAX_EMBD = 1 << 16
MAX_HEADS = 1 << 10
MAX_HEAD_SIZE = 1 << 12
MAX_FF = 1 << 20
MAX_VOCAB = 1 << 24
MAX_CTX = (1 << 31) - 1

# Options that must have their neutral value where a file has them: key after the arch's prefix -> that value.
NEUTRAL: dict[str, object] = {
    "expert_count": 0,
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.sliding_window": 0,
    "attn_logit_softcapping": 0.0,
    "embedding_scale": 1.0,
    "final_logit_softcapping": 0.0,
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "rope.scale_linear": 1.0,
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.factor": 1.0,
    "rope.scaling.type": "none",
    "use_parallel_residual": False,
}


@dataclass(frozen=True, slots=True)
class HParams:
    """Sizes and constants of one model, in llama.cpp's names. Counts are elements."""

    arch: ArchSpec
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    n_ff: int
    n_vocab: int
    n_ctx_train: int
    n_rot: int
    rope_freq_base: float
    norm_rms_eps: float

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
    for option, neutral in NEUTRAL.items():
        _check_neutral(gguf, p + option, neutral)

    n_layer = _size(gguf, p + "block_count", MAX_LAYERS)
    n_embd = _size(gguf, p + "embedding_length", MAX_EMBD)
    n_head = _size(gguf, p + "attention.head_count", MAX_HEADS)
    n_head_kv = _size(gguf, p + "attention.head_count_kv", MAX_HEADS, default=n_head)
    if n_head % n_head_kv:
        raise _refused(
            gguf, p + "attention.head_count_kv", f"a divisor of {p}attention.head_count, which is {n_head}"
        )
    n_embd_head = _head_size(gguf, p, n_embd, n_head)
    n_rot = _size(gguf, p + "rope.dimension_count", MAX_HEAD_SIZE, default=n_embd_head)
    if n_rot != n_embd_head:
        raise _refused(
            gguf, p + "rope.dimension_count", f"{n_embd_head}, the head size (no partial rotation)"
        )
    return HParams(
        arch=spec,
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=n_head,
        n_head_kv=n_head_kv,
        n_embd_head=n_embd_head,
        n_ff=_size(gguf, p + "feed_forward_length", MAX_FF),
        n_vocab=_vocab_size(gguf, p, n_embd),
        n_ctx_train=_size(gguf, p + "context_length", MAX_CTX),
        n_rot=n_rot,
        rope_freq_base=_positive(gguf, p + "rope.freq_base", default=10000.0),
        norm_rms_eps=_positive(gguf, p + "attention.layer_norm_rms_epsilon", most=1.0),
    )


def expected_tensors(hp: HParams, gguf: Gguf) -> dict[str, tuple[int, ...]]:
    """Name -> shape (rows, columns) of every tensor that the model has, checked against the file's table.

    `output.weight` may be absent: the output is then tied to `token_embd.weight`.

    Raises: ArchError naming tensors that are missing, unexpected or of the wrong shape, vectors that
    are not F32, and types that pagelm cannot run.
    """
    expected = dict(_tensors(hp))
    if "output.weight" not in gguf.tensors:
        del expected["output.weight"]
    arch = hp.arch.name
    missing = [name for name in expected if name not in gguf.tensors]
    if missing:
        raise ArchError(f"{gguf.name}: {arch} needs {_listed(missing)}, which the file does not have")
    unexpected = [name for name in gguf.tensors if name not in expected]
    if unexpected:
        raise ArchError(
            f"{gguf.name}: {arch} has no use for {_listed(unexpected)}; leaving such tensors out would "
            "change the result (scaled rope, biases and experts are not supported)"
        )
    for name, shape in expected.items():
        _check_tensor(gguf, gguf.tensors[name], shape)
    return expected


def _tensors(hp: HParams) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (hp.n_vocab, hp.n_embd)
    for i in range(hp.n_layer):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", (hp.n_embd,)
        yield b + "attn_q.weight", (hp.n_embd_q, hp.n_embd)
        yield b + "attn_k.weight", (hp.n_embd_kv, hp.n_embd)
        yield b + "attn_v.weight", (hp.n_embd_kv, hp.n_embd)
        yield b + "attn_output.weight", (hp.n_embd, hp.n_embd_q)
        yield b + "ffn_norm.weight", (hp.n_embd,)
        yield b + "ffn_gate.weight", (hp.n_ff, hp.n_embd)
        yield b + "ffn_up.weight", (hp.n_ff, hp.n_embd)
        yield b + "ffn_down.weight", (hp.n_embd, hp.n_ff)
    yield "output_norm.weight", (hp.n_embd,)
    yield "output.weight", (hp.n_vocab, hp.n_embd)


def _check_tensor(gguf: Gguf, t: TensorInfo, shape: tuple[int, ...]) -> None:
    if t.shape != shape:
        raise ArchError(f"{gguf.name}: {t.name} has shape {t.shape}; the metadata asks for {shape}")
    if len(shape) == 1 and t.quant.name != "F32":
        raise ArchError(f"{gguf.name}: {t.name} has type {t.quant.name}; vectors must be F32")
    if not t.quant.runs:
        raise ArchError(f"{gguf.name}: {t.name} has type {t.quant.name}; supported: {', '.join(SUPPORTED)}")


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _check_kind(gguf: Gguf) -> None:
    """The header must be a whole model's: no single part of a split one, no adapter, no projector."""
    parts = gguf.uint("split.count", default=0)
    if parts > 1 and parts != len(gguf.parts):
        raise ArchError(
            f"{gguf.name}: split.count is {parts}, and headers of {len(gguf.parts)} of these parts were read;"
            " all are needed (`read_model` in split.py reads them)"
        )
    if gguf.string("general.type", default="model") != "model":
        raise _refused(gguf, "general.type", "'model'")


def _refused(gguf: Gguf, key: str, allowed: str) -> ArchError:
    return ArchError(f"{gguf.name}: {key} is {shown(gguf.metadata[key])}; allowed: {allowed}")


def _check_neutral(gguf: Gguf, key: str, neutral: object) -> None:
    """An option that pagelm does not compute must be absent or do nothing."""
    if key not in gguf.metadata:
        return
    if isinstance(neutral, bool):
        value: object = gguf.flag(key)
    elif isinstance(neutral, str):
        value = gguf.string(key)
    elif isinstance(neutral, int):
        value = gguf.uint(key)
    else:
        value = gguf.number(key)
    if value != neutral:
        raise _refused(gguf, key, f"{shown(neutral)} (anything else is not supported)")


def _size(gguf: Gguf, key: str, most: int, default: int | None = None) -> int:
    """A count from 1 to `most`."""
    if isinstance(gguf.metadata.get(key), array | list | StringArray):
        raise _refused(gguf, key, f"one integer from 1 to {most}; a value per layer is not supported")
    if default is not None and key not in gguf.metadata:
        return default
    value = gguf.uint(key)
    if not 1 <= value <= most:
        raise _refused(gguf, key, f"an integer from 1 to {most}")
    return value


def _positive(gguf: Gguf, key: str, *, default: float | None = None, most: float = 1e12) -> float:
    """A finite number above zero."""
    if default is not None and key not in gguf.metadata:
        return default
    value = gguf.number(key)
    if not (math.isfinite(value) and 0 < value <= most):
        raise _refused(gguf, key, f"a number above 0, at most {most:g}")
    return value


def _head_size(gguf: Gguf, p: str, n_embd: int, n_head: int) -> int:
    """Elements per head: said by the file, or the embedding divided evenly."""
    key, value = p + "attention.key_length", p + "attention.value_length"
    if key in gguf.metadata:
        n = _size(gguf, key, MAX_HEAD_SIZE)
    else:
        n, rest = divmod(n_embd, n_head)
        if rest or not n:
            raise _refused(
                gguf, p + "attention.head_count", f"a divisor of {p}embedding_length, which is {n_embd}"
            )
    if _size(gguf, value, MAX_HEAD_SIZE, default=n) != n:
        raise _refused(gguf, value, f"{n}, the size of a key head")
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
        raise _refused(gguf, key, f"{rows}, the rows of token_embd.weight")
    key = "tokenizer.ggml.tokens"
    if key in gguf.metadata and len(gguf.strings(key)) != rows:
        raise _refused(gguf, key, f"{rows}, the rows of token_embd.weight")
    return rows
