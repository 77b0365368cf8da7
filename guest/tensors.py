"""Which tensors a model has: the file's table held against what its architecture demands.

A file may keep several operands in one tensor (`attn_qkv`: q, k and v; phi3's `ffn_up`: gate and up). Here each
has its own name, as `Operand`: rows of a tensor of the file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from .errors import ArchError
from .gguf import Gguf, TensorInfo
from .hparams import HParams
from .quants import SUPPORTED


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix (n_rows, n_in), or a vector of `n_rows` elements where `n_in` is 0. Experts lie one after another.

    It is rows `row0` … of the file's `tensor`, of which it may be a part.
    """

    name: str
    tensor: str
    row0: int
    n_rows: int
    n_in: int = 0


def operands_of(hp: HParams, gguf: Gguf) -> dict[str, Operand]:
    """All operands by name, after checking the file's table of tensors.

    `output.weight` may be absent: the output is then tied to `token_embd.weight`. Biases may be absent unless the
    architecture's spec demands them.

    Raises: ArchError naming tensors that are missing, unexpected or of the wrong shape, vectors that
    are not F32, and types that pagelm cannot run.
    """
    expected: dict[str, tuple[int, ...]] = {}
    operands: dict[str, Operand] = {}
    for name, shape, parts in _tensors(hp, gguf):
        expected[name] = shape
        at, vector = 0, _is_vector(name, shape)
        for part, n_rows in parts or ((name, prod(shape) if vector else prod(shape[:-1])),):
            operands[part] = Operand(part, name, at, n_rows, 0 if vector else shape[-1])
            at += n_rows
    _check(hp, gguf, expected)
    return operands


Parts = tuple[tuple[str, int], ...]
Demand = tuple[str, tuple[int, ...], Parts]


def _tensors(hp: HParams, gguf: Gguf) -> Iterator[Demand]:
    """Name in the file, shape, and the operands in it where they are several."""
    spec, there = hp.arch, gguf.tensors

    def matrix(name: str, n_rows: int, n_in: int, parts: Mapping[str, int] | None = None) -> Iterator[Demand]:
        prefix = name[: name.rfind(".") + 1]

        def split(kind: str) -> Parts:
            return tuple((f"{prefix}{part}.{kind}", n) for part, n in (parts or {}).items())

        yield f"{name}.weight", (n_rows, n_in), split("weight")
        if f"{name}.bias" in there or name.removeprefix(prefix) in spec.biases:
            yield f"{name}.bias", (n_rows,), split("bias")

    def norm(name: str, n: int) -> Iterator[Demand]:
        yield f"{name}.weight", (n,), ()
        if spec.norm == "layer" and (f"{name}.bias" in there or name.rsplit(".", 1)[-1] in spec.biases):
            yield f"{name}.bias", (n,), ()

    yield "token_embd.weight", (hp.n_vocab, hp.n_embd), ()
    if spec.positions:
        yield "position_embd.weight", (hp.n_ctx_train, hp.n_embd), ()
    for tensor in dict.fromkeys(name for rope in hp.ropes for name in rope.factors or ()):
        yield tensor, (hp.n_rot // 2,), ()
    for i in range(hp.n_layer):
        b = f"blk.{i}."
        heads = {"attn_q": hp.n_embd_q, "attn_k": hp.n_embd_kv, "attn_v": hp.n_embd_kv}
        if spec.pre_norm:
            yield from norm(b + "attn_norm", hp.n_embd)
        if b + "attn_qkv.weight" in there:
            yield from matrix(b + "attn_qkv", sum(heads.values()), hp.n_embd, heads)
        else:
            for name, n_rows in heads.items():
                yield from matrix(b + name, n_rows, hp.n_embd)
        heads_normed = any(f"{b}attn_{x}_norm.weight" in there for x in "qk")
        for name, n_heads in (("attn_q_norm", hp.n_head), ("attn_k_norm", hp.n_head_kv)):
            if spec.qk_norm == "head":
                yield f"{b}{name}.weight", (hp.n_embd_head,), ()
            elif spec.qk_norm == "row":
                yield f"{b}{name}.weight", (n_heads * hp.n_embd_head,), ()
            elif spec.norm == "layer" and heads_normed:
                yield f"{b}{name}.weight", (n_heads, hp.n_embd_head), ()
        if spec.sinks:
            yield b + "attn_sinks.weight", (hp.n_head,), ()
        yield from matrix(b + "attn_output", hp.n_embd, hp.n_embd_q)
        if spec.post_norm:
            yield from norm(b + "post_attention_norm", hp.n_embd)
        if spec.pre_norm and not (spec.parallel and b + "ffn_norm.weight" not in there):
            yield from norm(b + spec.ffn_norm, hp.n_embd)
        if hp.n_expert:
            yield from matrix(b + "ffn_gate_inp", hp.n_expert, hp.n_embd)
            for name, n_rows, n_in in (
                ("ffn_gate_exps", hp.n_ff, hp.n_embd),
                ("ffn_up_exps", hp.n_ff, hp.n_embd),
                ("ffn_down_exps", hp.n_embd, hp.n_ff),
            ):
                yield f"{b}{name}.weight", (hp.n_expert, n_rows, n_in), ()
                if f"{b}{name}.bias" in there or name in spec.biases:
                    yield f"{b}{name}.bias", (hp.n_expert, n_rows), ()
            continue
        if spec.one_gate_up:
            both = {"ffn_gate": hp.n_ff, "ffn_up": hp.n_ff}
            yield from matrix(b + "ffn_up", 2 * hp.n_ff, hp.n_embd, both)
        else:
            if spec.gated:
                yield from matrix(b + "ffn_gate", hp.n_ff, hp.n_embd)
            yield from matrix(b + "ffn_up", hp.n_ff, hp.n_embd)
        yield from matrix(b + "ffn_down", hp.n_embd, hp.n_ff)
        if spec.post_norm:
            yield from norm(b + "post_ffw_norm", hp.n_embd)
    yield from norm("output_norm", hp.n_embd)
    if "output.weight" in there:  # no pass adds a bias to logits: a file that has one is refused
        yield "output.weight", (hp.n_vocab, hp.n_embd), ()


def _check(hp: HParams, gguf: Gguf, expected: Mapping[str, tuple[int, ...]]) -> None:
    arch = hp.arch.name
    missing = [name for name in expected if name not in gguf.tensors]
    if missing:
        raise ArchError(f"{gguf.name}: {arch} needs {_listed(missing)}, which the file does not have")
    unexpected = [name for name in gguf.tensors if name not in expected]
    if unexpected:
        raise ArchError(
            f"{gguf.name}: {arch} has no use for {_listed(unexpected)}; leaving such tensors out would "
            "change the result"
        )
    for name, shape in expected.items():
        _check_tensor(gguf, gguf.tensors[name], shape)


def _is_vector(name: str, shape: tuple[int, ...]) -> bool:
    # stablelm has a norm for each head, experts have a bias each
    return len(shape) == 1 or name.endswith(("_norm.weight", ".bias"))


def _check_tensor(gguf: Gguf, t: TensorInfo, shape: tuple[int, ...]) -> None:
    if t.shape != shape:
        raise ArchError(f"{gguf.name}: {t.name} has shape {t.shape}; the metadata asks for {shape}")
    if _is_vector(t.name, shape) and t.quant.name != "F32":
        raise ArchError(f"{gguf.name}: {t.name} has type {t.quant.name}; vectors must be F32")
    if not t.quant.runs:
        raise ArchError(f"{gguf.name}: {t.name} has type {t.quant.name}; supported: {', '.join(SUPPORTED)}")


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
