"""The K types in ggml's arithmetic: quants by hand, products of decoded weights, sums in ggml's order."""

import gguf
import numpy as np
import pytest

from pagelm.host.oracle import ggml_k
from pagelm.host.oracle.exact import K_TYPES
from pagelm.host.oracle.ggml_k import ByLane, Interleaved, quantize_q8_k

SCALES = {  # where a block has d, and dmin
    "Q2_K": slice(80, 84),
    "Q3_K": slice(108, 110),
    "Q4_K": slice(0, 4),
    "Q5_K": slice(0, 4),
    "Q6_K": slice(208, 210),
    "IQ4_XS": slice(0, 2),
}


def blocks(rng, kind, n_rows, n):
    """Random bytes of a matrix with sensible scales, and the values they stand for (n_rows, n), float64."""
    block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][1]
    raw = rng.integers(0, 256, (n_rows * n // 256, block_bytes), dtype=np.uint8)
    at = SCALES[kind]
    scales = rng.uniform(0.001, 0.002, (len(raw), (at.stop - at.start) // 2)).astype(np.float16)
    raw[:, at] = scales.view(np.uint8)
    values = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind]).reshape(n_rows, n)
    return raw.reshape(-1), values.astype(np.float64)


def test_quantize_q8_k_by_hand():
    x = np.zeros((1, 512), np.float32)
    x[0, :6] = [12.7, 0.25, 0.35, -0.25, 0.049, -12.65]  # 0.1 a step, downwards; halves to the even neighbour
    d, quants = quantize_q8_k(x)
    assert d[0] == pytest.approx([-0.1, 0], rel=1e-6)
    assert quants[0, 0, :6].tolist() == [-127, -2, -4, 2, 0, 126]
    assert not quants[0, 0, 6:].any() and not quants[0, 1].any()


def test_the_first_of_two_farthest_numbers_decides_the_sign():
    x = np.zeros((2, 256), np.float32)
    x[0, [3, 9]], x[1, [3, 9]] = [2, -2], [-2, 2]
    d, quants = quantize_q8_k(x)
    assert (d < 0).ravel().tolist() == [True, False]
    assert quants[:, 0, 3].tolist() == [-127, -127] and quants[:, 0, 9].tolist() == [127, 127]


@pytest.mark.parametrize(("kind", "pack"), K_TYPES.items())
@pytest.mark.parametrize("n_tokens", [1, 4, 9])
def test_products_are_those_of_the_decoded_weights(kind, pack, n_tokens, rng):
    raw, weights = blocks(rng, kind, 24, 768)
    x = rng.standard_normal((n_tokens, 768), dtype=np.float32)
    d, quants = quantize_q8_k(x)
    rounded = (d[..., None].astype(np.float64) * quants).reshape(n_tokens, -1)
    want = rounded @ weights.T
    got = pack(raw, 24).matmul(x)
    assert got.dtype == np.float32 and got.shape == want.shape
    size = np.linalg.norm(rounded, axis=1)[:, None] * np.linalg.norm(weights, axis=1)
    assert (np.abs(got - want) / size).max() < 2e-6


def test_q4_k_adds_whole_groups_of_four_tokens_in_smaller_steps(rng):
    raw, _ = blocks(rng, "Q4_K", 64, 768)
    matrix, x = Interleaved.pack_q4_k(raw, 64), rng.standard_normal((7, 768), dtype=np.float32)
    alone = np.concatenate([matrix.matmul(row[None]) for row in x])
    together = matrix.matmul(x)
    assert np.array_equal(together[4:], alone[4:])
    assert not np.array_equal(together[:4], alone[:4])
    assert np.array_equal(together[:4], matrix.matmul(x[:4]))


def test_q6_k_does_not_depend_on_the_batch(rng):
    raw, _ = blocks(rng, "Q6_K", 64, 768)
    matrix, x = ByLane.pack_q6_k(raw, 64), rng.standard_normal((7, 768), dtype=np.float32)
    assert np.array_equal(matrix.matmul(x), np.concatenate([matrix.matmul(row[None]) for row in x]))


def test_lanes_have_four_of_every_32():
    x = np.arange(256)
    got = ggml_k.by_lane(x)
    assert got.shape == (8, 32)
    assert got[0, :8].tolist() == [0, 1, 2, 3, 32, 33, 34, 35] and got[7, -4:].tolist() == [
        252,
        253,
        254,
        255,
    ]
