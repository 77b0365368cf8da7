"""Random values for a `TinyModel`, the same bits everywhere and always, and its GGUF file.

A value is a sum of four 16-bit numbers (nearly normal, never beyond 3.5 deviations) from numpy's PCG64, whose
bits do not change between versions as those of its distributions may. A tensor's values depend on its name,
its shape and the model's seed only.
"""

import hashlib
import json
import os
from pathlib import Path
from zlib import crc32

import gguf
import numpy as np
from tiny_gguf import quant_of, quantize, vocabulary, write_gguf

from archs.models import N_VOCAB, TinyModel

DEVIATION = (4 * (2**32 - 1) / 12) ** 0.5  # of the sum of four uniform 16-bit integers

# Part of a tensor's name -> (mean, deviation); matrices have (0, gain / sqrt(columns)). The first that fits.
SPREADS = {
    "norm.bias": (0.0, 0.1),
    ".bias": (0.0, 0.3),
    "_norm.weight": (1.0, 0.25),
    "attn_sinks": (0.0, 1.0),
    "rope_factors_short": (1.2, 0.05),
    "rope_f": (4.0, 0.9),
    "token_embd": (0.0, 0.3),
    "position_embd": (0.0, 0.3),
    "shortconv.conv": (0.0, 0.6),
}
# Matrices: queries and keys that make attention choose, outputs that make logits differ.
GAINS = {"attn_output": 1.0, "output": 2.5, "attn_q.": 1.5, "attn_k.": 1.5, "attn_qkv": 1.3, "gate_inp": 2.0}


def values(model: TinyModel) -> dict[str, np.ndarray]:
    """Tensor -> float32 array, before any quantisation."""
    return {name: _tensor(model, name, shape) for name, shape in model.shapes.items()}


def _tensor(model: TinyModel, name: str, shape: tuple[int, ...]) -> np.ndarray:
    bits = np.random.PCG64([model.seed, crc32(name.encode())]).random_raw(int(np.prod(shape)))
    quarters = bits.reshape(-1, 1) >> np.array([0, 16, 32, 48], np.uint64) & np.uint64(0xFFFF)
    unit = (quarters.sum(1).astype(np.float64) - 2 * 65535) / DEVIATION
    mean, deviation = _spread(name, shape)
    gain = next((g for part, g in model.gains.items() if part in name), 1.0)
    return ((mean + deviation * unit) * gain).astype(np.float32).reshape(shape)


def _spread(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    for part, spread in SPREADS.items():
        if part in name:
            return spread
    gain = next((g for part, g in GAINS.items() if part in name), 1.0)
    return 0.0, gain / shape[-1] ** 0.5


def stored(model: TinyModel) -> dict[str, tuple[str, np.ndarray]]:
    """Tensor -> ggml type and the values that the file holds, decoded to float32."""
    result = {}
    for name, x in values(model).items():
        kind = quant_of(name, model.types) if x.ndim > 1 else "F32"
        if kind != "F32":
            raw, quant = quantize(x, kind)
            with np.errstate(all="ignore"):  # the package computes with scales that it then throws away
                x = gguf.quants.dequantize(raw, quant)
        result[name] = kind, x
    return result


def metadata(model: TinyModel) -> dict[str, object]:
    """All keys of the file: the model's, and a byte-level vocabulary that llama.cpp and pagelm can load."""
    tokens, types, merges = vocabulary(N_VOCAB)
    return {
        "general.name": "tiny random model",  # llama.cpp expects tokens of some models by this name
        **{f"{model.arch}.{key}": value for key, value in model.metadata.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def gguf_bytes(model: TinyModel) -> bytes:
    """The file."""
    return write_gguf(None, model.arch, metadata(model), values(model), quant=model.types)


def write(model: TinyModel, path: str | os.PathLike[str]) -> Path:
    """The file at `path`, which is returned."""
    write_gguf(path, model.arch, metadata(model), values(model), quant=model.types)
    return Path(path)


def write_decoded(model: TinyModel, path: str | os.PathLike[str]) -> Path:
    """As `write`, but every tensor F32 with the values that it has after its quantisation.

    llama.cpp rounds activations to 8 bits before it multiplies them with quantised weights. With this file it
    does not: what it computes is then the model, not its own approximation of it.
    """
    arrays = {name: x for name, (_, x) in stored(model).items()}
    write_gguf(path, model.arch, metadata(model), arrays, quant="F32")
    return Path(path)


def digest(model: TinyModel) -> str:
    """sha256 of all that the file says: metadata and tensors with their types, in any order."""
    sha = hashlib.sha256(json.dumps([model.arch, metadata(model)], sort_keys=True).encode())
    for name, (kind, x) in sorted(stored(model).items()):
        sha.update(json.dumps([name, kind, x.shape]).encode())
        sha.update(np.ascontiguousarray(x, "<f4").tobytes())
    return sha.hexdigest()
