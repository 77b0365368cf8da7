"""Blocks of any tensor type: where their scales are, random ones, and ones that are hard on a kernel.

Facts: ggml/src/ggml-common.h of llama.cpp. What blocks stand for, the `gguf` package says.
"""

import gguf
import numpy as np

# Bytes of a block where its f16 are: scales, or a scale and a minimum.
HALVES = {
    **{quant: (0,) for quant in ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS")},
    **{quant: (0, 2) for quant in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")},
    **{"Q6_K": (208,), "Q3_K": (108,), "Q2_K": (80, 82)},
}
EXPONENTS = {"MXFP4": 0}  # bytes where there is the exponent of a power of two instead
HARD_HALVES = np.array([0.0, -0.0, 6e-8, -6e-5, 1.0, -1.0, 1000.0, -60000.0], np.float16)
HARD_EXPONENTS = np.array([0, 1, 2, 3, 100, 128, 140], np.uint8)


def size_of(quant: str) -> tuple[int, int]:
    """Elements and bytes of a block."""
    elements, nbytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[quant]]
    return elements, nbytes


def values_of(quant: str, raw: np.ndarray) -> np.ndarray:
    """What rows of blocks (n_rows, bytes) stand for, (n_rows, n_in) float32."""
    data = raw.view({"F32": np.float32, "F16": np.float16}.get(quant, np.uint8))
    with np.errstate(all="ignore"):
        values: np.ndarray = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[quant])
    return values


def put_halves(quant: str, blocks: np.ndarray, halves: np.ndarray) -> None:
    """Set the scales of blocks (n, bytes) to f16 numbers (n, n_halves)."""
    for i, at in enumerate(HALVES[quant]):
        blocks[:, at : at + 2] = halves[:, i].astype(np.float16).view(np.uint8).reshape(-1, 2)


def random_blocks(quant: str, r: np.random.Generator, n_rows: int, n_in: int) -> np.ndarray:
    """Rows (n_rows, bytes) of random bits with scales of either sign; the weights' deviation is 1/sqrt(n_in)."""
    elements, nbytes = size_of(quant)
    n = n_rows * n_in // elements
    blocks = r.integers(0, 256, (n, nbytes), dtype=np.uint8)
    if quant in EXPONENTS:
        blocks[:, EXPONENTS[quant]] = np.round(126 - np.log2(n_in) / 2) + r.integers(-1, 2, n)
    else:
        halves = r.uniform(0.5, 1, (n, len(HALVES[quant]))) * r.choice([-1, 1], (n, 1))
        put_halves(quant, blocks, halves)
        factor = n_in**-0.5 / np.sqrt(np.mean(values_of(quant, blocks).astype(np.float64) ** 2))
        put_halves(quant, blocks, factor * halves)
    return blocks.reshape(n_rows, -1)


def adversarial(quant: str, r: np.random.Generator, n_rows: int, n_in: int) -> np.ndarray:
    """Rows of the file: blocks with zero, tiny (subnormal), negative and extreme scales, all-zero and all-one
    bits; of plain types any bits that are numbers."""
    elements, nbytes = size_of(quant)
    n = n_rows * n_in // elements
    blocks = r.integers(0, 256, (n, nbytes), dtype=np.uint8)
    if elements == 1:
        blocks[:, -1] &= 0xBF  # no exponent of ones
        return blocks.reshape(n_rows, -1)
    blocks[1 % n], blocks[2 % n] = 0, 255
    if quant in EXPONENTS:
        blocks[:, EXPONENTS[quant]] = r.choice(HARD_EXPONENTS, n)
    else:
        put_halves(quant, blocks, r.choice(HARD_HALVES, (n, len(HALVES[quant]))))
    return blocks.reshape(n_rows, -1)
