"""Models of any size without a file: a GGUF header and weights that are made when they are read.

For measuring speed, and for correctness where a real model of that shape is not at hand. The weights are
random, the same in every run, and of a size that keeps activations ordinary; what is generated is nonsense.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelm.quants import QUANTS
from pagelm.sources import check_range
from pagelm.tokenizer.text import BYTE_ALPHABET

ALIGNMENT = 32
POOL = 1_000_003  # blocks that tensors take theirs from, each from another place: a prime, so that no two
# rows of a matrix begin at the same one
_KINDS: dict[type, tuple[int, str]] = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a llama-architecture model and its tensor types: of matrices, and of the token embeddings.

    `tied`: the output is the token embeddings; else a matrix of their type.
    """

    name: str
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_ff: int
    n_vocab: int
    quant: str = "Q4_0"
    embedding: str = "Q8_0"
    tied: bool = True
    n_ctx_train: int = 4096

    def with_layers(self, n_layer: int) -> "Shape":
        """The same in every other size."""
        return replace(self, n_layer=n_layer)


SHAPES = (
    Shape("smollm2-135m", 576, 30, 9, 3, 1536, 49152, quant="Q4_1"),
    Shape("llama-3.2-1b", 2048, 16, 32, 8, 8192, 128256),
    Shape("qwen3-8b", 4096, 36, 32, 8, 12288, 151936, tied=False),
)


class SyntheticSource:
    """A `device.Source` of a model of this shape."""

    def __init__(self, shape: Shape) -> None:
        """Raises: KeyError for a type that is not made here; the shapes' own are F32, Q4_0, Q4_1, Q8_0."""
        self.name = f"synthetic {shape.name}, {shape.n_layer} layers"
        self._tensors = _tensors(shape)
        self._header, self._starts = _header(shape, self._tensors)
        last = self._tensors[-1]
        self.size = self._starts[-1] + last.nbytes

    async def read(self, at: int, nbytes: int) -> bytes:
        return self.bytes(at, nbytes)

    def bytes(self, at: int, nbytes: int) -> bytes:
        """As `read`, at once. What lies between tensors is zero."""
        check_range(self.name, self.size, at, nbytes)
        out = np.zeros(nbytes, np.uint8)
        head = self._header[at : at + nbytes]
        out[: len(head)] = np.frombuffer(head, np.uint8)
        end = at + nbytes
        i = max(0, bisect_right(self._starts, at) - 1)
        while i < len(self._tensors) and self._starts[i] < end:
            start, tensor = self._starts[i], self._tensors[i]
            a, b = max(at, start), min(end, start + tensor.nbytes)
            if a < b:
                tensor.write(out[a - at : b - at], a - start)
            i += 1
        return out.tobytes()

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]  # rows, columns
    quant: str
    number: int

    @property
    def nbytes(self) -> int:
        return QUANTS[self.quant].nbytes(int(np.prod(self.shape)))

    def write(self, out: NDArray[np.uint8], at: int) -> None:
        """Fill `out` with the tensor's bytes from byte `at` on."""
        pool = _pool(self.quant, self.shape[-1])
        first = self.number * 104_729 * QUANTS[self.quant].block_bytes  # each tensor begins elsewhere
        while len(out):
            place = (first + at) % len(pool)
            n = min(len(out), len(pool) - place)
            out[:n] = pool[place : place + n]
            out, at = out[n:], at + n


@cache
def _pool(quant: str, n_columns: int) -> NDArray[np.uint8]:
    """Blocks of random weights for rows of so many columns, of deviation 1 / sqrt(n_columns); F32: near 1."""
    rng = np.random.default_rng(list(f"{quant}{n_columns}".encode()))
    if quant == "F32":
        return (1 + rng.standard_normal(POOL, np.float32) / 10).view(np.uint8)
    # deviation of what a block's numbers are before they are scaled: 0 … 15, or -128 … 127
    spread = {"Q4_0": 16, "Q4_1": 16, "Q8_0": 256}[quant] / 12**0.5
    nbytes = QUANTS[quant].block_bytes
    blocks = np.frombuffer(rng.bytes(POOL * nbytes), np.uint8).reshape(POOL, nbytes).copy()
    d = rng.uniform(0.7, 1.3, POOL) / (spread * n_columns**0.5)
    scales = [d] if quant != "Q4_1" else [d, -7.5 * d]
    for i, scale in enumerate(scales):
        blocks[:, 2 * i : 2 * i + 2] = scale.astype("<f2").view(np.uint8).reshape(POOL, 2)
    return blocks.reshape(-1)


def _tensors(shape: Shape) -> list[_Tensor]:
    head = shape.n_embd // shape.n_head
    kv = head * shape.n_head_kv
    named: dict[str, tuple[int, ...]] = {"token_embd": (shape.n_vocab, shape.n_embd)}
    for i in range(shape.n_layer):
        layer = {
            "attn_norm": (shape.n_embd,),
            "attn_q": (shape.n_embd, shape.n_embd),
            "attn_k": (kv, shape.n_embd),
            "attn_v": (kv, shape.n_embd),
            "attn_output": (shape.n_embd, shape.n_embd),
            "ffn_norm": (shape.n_embd,),
            "ffn_gate": (shape.n_ff, shape.n_embd),
            "ffn_up": (shape.n_ff, shape.n_embd),
            "ffn_down": (shape.n_embd, shape.n_ff),
        }
        named |= {f"blk.{i}.{name}": sizes for name, sizes in layer.items()}
    named["output_norm"] = (shape.n_embd,)
    if not shape.tied:
        named["output"] = (shape.n_vocab, shape.n_embd)

    def quant(name: str, sizes: tuple[int, ...]) -> str:
        if len(sizes) == 1:
            return "F32"
        return shape.embedding if name in ("token_embd", "output") else shape.quant

    return [_Tensor(f"{n}.weight", s, quant(n, s), i) for i, (n, s) in enumerate(named.items())]


def _header(shape: Shape, tensors: Sequence[_Tensor]) -> tuple[bytes, list[int]]:
    """The file up to the weights, and where each tensor starts. Format: ggml's docs/gguf.md, version 3."""
    values: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": shape.name,
        "llama.block_count": shape.n_layer,
        "llama.context_length": shape.n_ctx_train,
        "llama.embedding_length": shape.n_embd,
        "llama.feed_forward_length": shape.n_ff,
        "llama.attention.head_count": shape.n_head,
        "llama.attention.head_count_kv": shape.n_head_kv,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": _tokens(shape.n_vocab),
        "tokenizer.ggml.merges": ["Ġ t"],  # a vocabulary needs one
        "tokenizer.ggml.add_bos_token": False,
    }
    offsets, end = [], 0
    for tensor in tensors:
        offsets.append(end)
        end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    parts += [_text(key) + _value(value) for key, value in values.items()]
    for tensor, offset in zip(tensors, offsets, strict=True):
        dims = tensor.shape[::-1]  # the file has the innermost first
        parts.append(_text(tensor.name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims))
        parts.append(struct.pack("<IQ", QUANTS[tensor.quant].ggml_type, offset))
    header = b"".join(parts)
    header += bytes(-len(header) % ALIGNMENT)
    return header, [len(header) + offset for offset in offsets]


def _tokens(n_vocab: int) -> list[str]:
    """A token for every byte, so that any text can be encoded; the rest are numbers."""
    return [*BYTE_ALPHABET, "Ġt", *(f"token{i}" for i in range(257, n_vocab))]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):  # of strings, all that is needed
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    kind, code = _KINDS[type(value)]
    return struct.pack("<I", kind) + struct.pack(code, value)
