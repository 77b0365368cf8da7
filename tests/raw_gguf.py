"""GGUF files in pieces, packed by hand from the specification, so that each piece can be made wrong.

Neither pagelm nor the `gguf` package is used here.
"""

import struct
from dataclasses import dataclass, field
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q4_0, T_Q4_1, T_Q8_0, T_Q2_K, T_Q6_K, T_I8 = 0, 1, 2, 3, 8, 10, 14, 24


def text(s: str | bytes, length: int | None = None) -> bytes:
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def array(kind: int, values: Any, count: int | None = None) -> bytes:
    if kind == STR:
        body = b"".join(map(text, values))
    else:
        body = struct.pack(f"<{len(values)}{CODES.get(kind, 'B')}", *values)
    return struct.pack("<IQ", kind, len(values) if count is None else count) + body


def scalar(kind: int, value: Any) -> bytes:
    if kind == STR:
        return text(value)
    if kind == ARR:
        return bytes(value)
    return struct.pack("<" + CODES.get(kind, "B"), value)


@dataclass
class Tensor:
    name: str | bytes
    dims: tuple[int, ...]  # as in the file: innermost first
    kind: int = T_F32
    offset: int | None = None  # None: the right one
    n_dims: int | None = None
    name_length: int | None = None
    nbytes: int | None = None  # of data in the file and in the next offset; None: the right number


@dataclass
class File:
    """A GGUF file in pieces. `at` gives the position of every field after `data()` was called."""

    kv: dict[Any, tuple[int, bytes]] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    n_tensors: int | None = None
    n_kv: int | None = None
    alignment: int = 32
    order: str = "<"
    at: dict[str, int] = field(default_factory=dict)

    def set(self, key: str, kind: int, value: Any) -> "File":
        self.kv[key] = (kind, scalar(kind, value))
        return self

    def drop(self, *keys: str) -> "File":
        for key in keys:
            del self.kv[key]
        return self

    def data(self, *, cut: int | None = None, trailing: bytes = b"", fill: bool = True) -> bytes:
        out = bytearray(self.magic)
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_kv = len(self.kv) if self.n_kv is None else self.n_kv
        self.at = {"header.magic": 0, "header.version": 4, "header.n_tensors": 8, "header.n_kv": 16}
        out += struct.pack(self.order + "IQQ", self.version, n_tensors, n_kv)
        for i, (key, (kind, payload)) in enumerate(self.kv.items()):
            # A key may be given as raw bytes with its length, and as (key, number) to repeat one.
            name = key[0] if isinstance(key, tuple) else key
            self.at[f"kv[{i}].key"] = self.at[f"kv[{i}].key.length"] = len(out)
            out += name if isinstance(name, bytes) else text(name)
            self.at[f"metadata {name}.type"] = len(out)
            self.at[f"metadata {name}"] = self.at[f"metadata {name}.length"] = len(out) + 4
            self.at[f"metadata {name}.element_type"] = len(out) + 4
            self.at[f"metadata {name}.count"] = len(out) + 8
            self.at[f"metadata {name}.elements"] = len(out) + 16
            out += struct.pack("<I", kind) + payload
        end, body = 0, bytearray()
        for i, t in enumerate(self.tensors):
            self.at[f"tensor[{i}].name"] = self.at[f"tensor[{i}].name.length"] = len(out)
            out += text(t.name, t.name_length)
            self.at[f"tensor {t.name}.n_dims"] = len(out)
            out += struct.pack("<I", len(t.dims) if t.n_dims is None else t.n_dims)
            self.at[f"tensor {t.name}.shape"] = len(out)
            out += struct.pack(f"<{len(t.dims)}Q", *t.dims)
            self.at[f"tensor {t.name}.type"] = len(out)
            out += struct.pack("<I", t.kind)
            self.at[f"tensor {t.name}.offset"] = self.at[f"tensor {t.name}.data"] = len(out)
            end = -(-end // self.alignment) * self.alignment
            out += struct.pack("<Q", end if t.offset is None else t.offset)
            end += self.nbytes(t)
            if fill:
                body += bytes(end - len(body))
        if self.tensors and fill:
            out += bytes(-len(out) % self.alignment) + body
        out += trailing
        return bytes(out[: len(out) if cut is None else cut])

    @staticmethod
    def nbytes(t: Tensor) -> int:
        if t.nbytes is not None:
            return t.nbytes
        n = 1
        for d in t.dims:
            n *= d
        blocks = {T_F16: (2, 1), T_Q4_0: (18, 32), T_Q4_1: (20, 32), T_Q8_0: (34, 32)}
        blocks |= {T_Q2_K: (84, 256), T_Q6_K: (210, 256), T_I8: (1, 1)}
        size, block = blocks.get(t.kind, (4, 1))
        return n // block * size


def one(kind: int = U32, payload: bytes = b"\1\0\0\0", key: Any = "k", **options: Any) -> File:
    """One key-value and no tensor."""
    return File(kv={key: (kind, payload)}, **options)


def table(*tensors: Tensor, **options: Any) -> File:
    return File(tensors=list(tensors), **options)


N_VOCAB, N_EMBD, N_FF, N_LAYER = 8, 8, 4, 1
VOCAB = ["<|endoftext|>", "<|im_end|>", "a", "b", "c", "ab", "bc", "abc"]


def llama() -> File:
    """A whole model that is right, as small as it can be; the control case of the stages after "gguf"."""
    f = File()
    f.set("general.architecture", STR, "llama")
    for key, value in {
        "block_count": N_LAYER,
        "context_length": 16,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
        "rope.dimension_count": 4,
        "vocab_size": N_VOCAB,
    }.items():
        f.set("llama." + key, U32, value)
    f.set("llama.attention.layer_norm_rms_epsilon", F32, 1e-5).set("llama.rope.freq_base", F32, 1e4)
    f.set("tokenizer.ggml.model", STR, "gpt2").set("tokenizer.ggml.pre", STR, "smollm")
    f.set("tokenizer.ggml.tokens", ARR, array(STR, VOCAB))
    f.set("tokenizer.ggml.token_type", ARR, array(I32, [3, 3] + [1] * 6))
    f.set("tokenizer.ggml.merges", ARR, array(STR, ["a b", "b c", "ab c"]))
    f.set("tokenizer.ggml.bos_token_id", U32, 0).set("tokenizer.ggml.eos_token_id", U32, 1)
    f.tensors.append(Tensor("token_embd.weight", (N_EMBD, N_VOCAB)))
    for name, dims in {
        "attn_norm": (N_EMBD,),
        "attn_q": (N_EMBD, 8),
        "attn_k": (N_EMBD, 4),
        "attn_v": (N_EMBD, 4),
        "attn_output": (8, N_EMBD),
        "ffn_norm": (N_EMBD,),
        "ffn_gate": (N_EMBD, N_FF),
        "ffn_up": (N_EMBD, N_FF),
        "ffn_down": (N_FF, N_EMBD),
    }.items():
        f.tensors.append(Tensor(f"blk.0.{name}.weight", dims))
    f.tensors.append(Tensor("output_norm.weight", (N_EMBD,)))
    return f


def llama_tensor(name: str, **changes: Any) -> File:
    """llama() with one tensor changed; `gone=True` leaves it out."""
    f = llama()
    i = next(i for i, t in enumerate(f.tensors) if t.name == name)
    if changes.pop("gone", False):
        del f.tensors[i]
    else:
        f.tensors[i] = Tensor(**({"name": name, "dims": f.tensors[i].dims} | changes))
    return f
