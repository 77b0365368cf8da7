"""Small random models as GGUF files, written by the independent `gguf` package.

    data = tiny_model()                                   # bytes of a llama with Q8_0 matrices
    data = tiny_model(path, quant={"ffn_down": "Q4_0", "": "F16"}, n_layer=3, seed=7)

Weights are normal with deviation 1/sqrt(row length), norms near 1, so logits are of ordinary size.
"""

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import gguf
import numpy as np
from blocks import random_blocks

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant\n"
)
# Real merges come from counts; these are enough for several merge levels, ties and spaces.
WORDS = "the and ing hello world one two ther Ġt Ġa Ġthe Ġand Ġhello Ġworld er in on re ab abab ĊĊ".split()


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each byte. Source: openai/gpt-2 src/encoder.py, bytes_to_unicode."""
    keep = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    extra = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(extra)) for b in range(256)]


def vocabulary(n_vocab: int) -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges of a byte-level BPE with `n_vocab` tokens.

    Specials first, then the 256 bytes, then what the merges make; the rest are unused tokens.
    """
    if n_vocab < len(SPECIALS) + 256:
        raise ValueError(f"{n_vocab} tokens cannot hold {len(SPECIALS)} specials and 256 bytes")
    tokens = [*SPECIALS, *byte_alphabet()]
    types = [gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.NORMAL] * 256
    merges: list[str] = []
    known = set(tokens)
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if len(tokens) < n_vocab and word[:end] not in known:
                known.add(word[:end])
                tokens.append(word[:end])
                types.append(gguf.TokenType.NORMAL)
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
    while len(tokens) < n_vocab:
        tokens.append(f"<unused{len(tokens)}>")
        types.append(gguf.TokenType.UNUSED)
    return tokens, [int(t) for t in types], merges


def quantize(x: np.ndarray, quant: str) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
    """`x` (…, rows, columns) f32 as raw blocks of type `quant`, and that type for the writer.

    Of types that the package cannot write, random blocks of the same shape, of deviation 1/sqrt(columns).
    """
    kind = gguf.GGMLQuantizationType[quant]
    try:
        with np.errstate(all="ignore"):  # the package divides by zero in zero blocks, on purpose
            return gguf.quants.quantize(x, kind), kind
    except NotImplementedError:
        n_in, r = x.shape[-1], np.random.default_rng([x.size, int(1e6 * abs(x.flat[0]))])
        return random_blocks(quant, r, x.size // n_in, n_in).reshape(*x.shape[:-1], -1), kind


def quant_of(name: str, quant: str | Mapping[str, str]) -> str:
    """The type of matrix `name`: the value of the first key that occurs in the name."""
    if isinstance(quant, str):
        return quant
    return next(q for part, q in quant.items() if part in name)


def tiny_model(
    out: str | os.PathLike[str] | BinaryIO | None = None,
    *,
    arch: str = "llama",
    quant: str | Mapping[str, str] = "Q8_0",
    n_embd: int = 64,
    n_layer: int = 2,
    n_head: int = 4,
    n_head_kv: int = 2,
    n_embd_head: int | None = None,
    n_ff: int = 96,
    n_vocab: int = 320,
    n_ctx_train: int = 256,
    rope_freq_base: float = 10000.0,
    norm_rms_eps: float = 1e-5,
    tied: bool = True,
    tokenizer: str = "gpt2",
    pre: str = "smollm",
    alignment: int = 32,
    metadata: Mapping[str, object] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
    seed: int = 1,
) -> bytes:
    """The bytes of a random model, also written to `out` (a path or an open file) if given.

    quant: one type for all matrices, or {part of a tensor's name: type} tried in order ("" fits all).
    metadata: keys to add or replace; None leaves one out. tensors: f32 arrays to add or replace; None
    leaves one out.
    """
    rng = np.random.default_rng(seed)
    explicit_head = n_embd_head is not None
    n_embd_head = n_embd_head or n_embd // n_head
    values: dict[str, object] = {
        "general.name": f"tiny {arch}",
        f"{arch}.block_count": n_layer,
        f"{arch}.context_length": n_ctx_train,
        f"{arch}.embedding_length": n_embd,
        f"{arch}.feed_forward_length": n_ff,
        f"{arch}.attention.head_count": n_head,
        f"{arch}.attention.head_count_kv": n_head_kv,
        f"{arch}.attention.layer_norm_rms_epsilon": float(norm_rms_eps),
        f"{arch}.rope.dimension_count": n_embd_head,
        f"{arch}.rope.freq_base": float(rope_freq_base),
        f"{arch}.vocab_size": n_vocab,
    }
    if explicit_head:
        values |= {f"{arch}.attention.key_length": n_embd_head, f"{arch}.attention.value_length": n_embd_head}
    tokens, types, merges = vocabulary(n_vocab)
    values |= {
        "tokenizer.ggml.model": tokenizer,
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    values |= metadata or {}

    q, kv = n_head * n_embd_head, n_head_kv * n_embd_head
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, n_embd)}
    for i in range(n_layer):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (n_embd,),
            f"blk.{i}.attn_q.weight": (q, n_embd),
            f"blk.{i}.attn_k.weight": (kv, n_embd),
            f"blk.{i}.attn_v.weight": (kv, n_embd),
            f"blk.{i}.attn_output.weight": (n_embd, q),
            f"blk.{i}.ffn_norm.weight": (n_embd,),
            f"blk.{i}.ffn_gate.weight": (n_ff, n_embd),
            f"blk.{i}.ffn_up.weight": (n_ff, n_embd),
            f"blk.{i}.ffn_down.weight": (n_embd, n_ff),
        }
    shapes["output_norm.weight"] = (n_embd,)
    if not tied:
        shapes["output.weight"] = (n_vocab, n_embd)
    arrays: dict[str, np.ndarray | None] = {}
    for name, shape in shapes.items():
        x = rng.standard_normal(shape, dtype=np.float32)
        arrays[name] = 1 + x / 10 if len(shape) == 1 else x / np.float32(shape[-1] ** 0.5)
    arrays |= dict(tensors or {})
    return write_gguf(out, arch, values, arrays, quant=quant, alignment=alignment)


def write_gguf(
    out: str | os.PathLike[str] | BinaryIO | None,
    arch: str,
    values: Mapping[str, object],
    arrays: Mapping[str, np.ndarray | None],
    *,
    quant: str | Mapping[str, str] = "F32",
    alignment: int = 32,
) -> bytes:
    """A file of metadata `values` and f32 `arrays`; matrices are quantised, vectors stay F32.

    Integers become uint32 (int32 in arrays), floats float32; None leaves the entry out.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        writer = gguf.GGUFWriter(path, arch)
        if alignment != 32:
            writer.add_custom_alignment(alignment)
        for key, value in values.items():
            if isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif isinstance(value, str):
                writer.add_string(key, value)
            elif value is not None:
                writer.add_array(key, value)
        for name, x in arrays.items():
            if x is not None:
                kind = quant_of(name, quant) if x.ndim > 1 else "F32"
                raw, kind = quantize(np.ascontiguousarray(x, dtype=np.float32), kind)
                writer.add_tensor(name, raw, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        data = path.read_bytes()
    if isinstance(out, str | os.PathLike):
        Path(out).write_bytes(data)
    elif isinstance(out, io.IOBase):
        out.write(data)
    return data
