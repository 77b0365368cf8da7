"""Dequantisation: bit for bit what the independent `gguf` package gives, and one hand-made block each."""

import struct
from itertools import product

import gguf
import numpy as np
import pytest
from blocks import EXPONENTS, HALVES, put_halves, size_of

from pagelm.host.oracle import dequant
from pagelm.quants import QUANTS, SUPPORTED

# Scales that hurt: ±0, smallest and largest subnormal, smallest normal, 1, largest, ±inf, NaN.
SCALES = (0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00)
BYTES = (0x00, 0xFF, 0x0F, 0xF0, 0x80, 0x7F)


def same_bits(got, want):
    assert got.dtype == want.dtype == np.float32
    assert got.shape == want.shape
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    assert np.array_equal(got.view(np.uint32)[~nan], want.view(np.uint32)[~nan])


def package(raw, name):
    with np.errstate(all="ignore"):
        return gguf.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(-1)


def test_every_supported_type_has_its_function():
    assert set(dequant.DEQUANT) == set(SUPPORTED)
    for name, function in dequant.DEQUANT.items():
        assert function.__name__ == name.lower()


@pytest.mark.parametrize("name", SUPPORTED)
def test_random_bytes_equal_the_package(name, rng):
    raw = rng.integers(0, 256, 2000 * QUANTS[name].block_bytes, dtype=np.uint8)
    same_bits(dequant.DEQUANT[name](raw), package(raw, name))


@pytest.mark.parametrize("name", HALVES)
def test_extreme_scales_and_quants_equal_the_package(name):
    """Of K-quants the small scales are extreme too: they are among the bits."""
    halves = [*product(SCALES, repeat=len(HALVES[name]))]
    blocks = np.repeat(np.array(BYTES, np.uint8), len(halves))[:, None].repeat(size_of(name)[1], axis=1)
    put_halves(name, blocks, np.tile(np.array(halves, np.uint16).view(np.float16), (len(BYTES), 1)))
    same_bits(dequant.DEQUANT[name](blocks.reshape(-1)), package(blocks.reshape(-1), name))


@pytest.mark.parametrize("name", EXPONENTS)
def test_every_exponent_equals_the_package(name):
    blocks = np.repeat(np.array(BYTES, np.uint8), 256)[:, None].repeat(size_of(name)[1], axis=1)
    blocks[:, EXPONENTS[name]] = np.tile(np.arange(256), len(BYTES))
    same_bits(dequant.DEQUANT[name](blocks.reshape(-1)), package(blocks.reshape(-1), name))


def test_what_the_tests_know_of_blocks_is_every_type_with_blocks():
    assert {*HALVES, *EXPONENTS} == {name for name in SUPPORTED if size_of(name)[0] > 1}


def test_q4_0_block_by_hand():
    # d = 0.5; byte i holds element i in its low half and element 16 + i in its high half.
    raw = np.frombuffer(struct.pack("<e", 0.5) + bytes(range(0xF0, 0x100)), np.uint8)
    assert dequant.q4_0(raw).tolist() == [0.5 * (i - 8) for i in range(16)] + [0.5 * 7] * 16


def test_q4_1_block_by_hand():
    raw = np.frombuffer(struct.pack("<ee", 0.25, -2.0) + bytes(i << 4 | 3 for i in range(16)), np.uint8)
    assert dequant.q4_1(raw).tolist() == [0.25 * 3 - 2] * 16 + [0.25 * i - 2 for i in range(16)]


def test_q8_0_block_by_hand():
    quants = [*range(-16, 15), -128]
    raw = np.frombuffer(struct.pack("<e32b", 2.0, *quants), np.uint8)
    assert dequant.q8_0(raw).tolist() == [2.0 * q for q in quants]


def test_float_types_by_hand():
    assert dequant.f32(np.frombuffer(struct.pack("<2f", 1.5, -0.0), np.uint8)).tolist() == [1.5, -0.0]
    assert dequant.f16(np.frombuffer(struct.pack("<2e", 1.5, 2**-24), np.uint8)).tolist() == [1.5, 2**-24]


def test_part_of_a_block_is_refused():
    with pytest.raises(ValueError):
        dequant.q8_0(np.zeros(35, np.uint8))
