"""float16 conversions: every value, and both sides of every rounding boundary, without trusting numpy.

`half.py` converts with numpy; the truths here are `struct` (CPython's C code) and the rule itself.
"""

import struct
from fractions import Fraction

import numpy as np

from pagelm.host.oracle.half import f16_to_f32, f32_to_f16, round_bf16, round_f16

ALL = np.arange(1 << 16, dtype=np.uint16)
NAN = (ALL & 0x7C00 == 0x7C00) & (ALL & 0x3FF != 0)
INF = 0x7C00


def value(bits):
    """The exact value of a finite float16's bits, by the format's definition."""
    exponent, fraction = bits >> 10 & 31, bits & 1023
    size = (
        Fraction(fraction, 1 << 24)
        if exponent == 0
        else Fraction(1024 + fraction, 1024) * Fraction(2) ** (exponent - 15)
    )
    return -size if bits >> 15 else size


def test_all_values_widen_exactly():
    got = f16_to_f32(ALL)
    assert got.dtype == np.float32
    want = np.array(struct.unpack(f"<{len(ALL)}e", ALL.astype("<u2").tobytes()))
    assert np.array_equal(np.isnan(got), NAN)
    assert np.array_equal(got[~NAN].astype(np.float64), want[~NAN])
    assert np.array_equal(np.signbit(got[~NAN]), ALL[~NAN] >> 15 == 1)


def test_all_values_match_the_definition():
    got = f16_to_f32(ALL)
    for bits in range(0, 1 << 16, 1):
        if bits & 0x7C00 != 0x7C00:
            assert Fraction(float(got[bits])) == value(bits), hex(bits)


def test_all_values_come_back():
    assert np.array_equal(f32_to_f16(f16_to_f32(ALL))[~NAN], ALL[~NAN])
    assert np.isnan(f16_to_f32(f32_to_f16(f16_to_f32(ALL[NAN])))).all()
    assert np.array_equal(round_f16(f16_to_f32(ALL[~NAN])), f16_to_f32(ALL[~NAN]))


def test_every_boundary_rounds_to_nearest_even_from_both_sides():
    low = np.arange(0x7BFF, dtype=np.uint16)  # each finite magnitude but the largest, with its neighbour
    high = low + np.uint16(1)
    middle = (f16_to_f32(low).astype(np.float64) + f16_to_f32(high)) / 2
    exact = middle.astype(np.float32)
    assert np.array_equal(exact.astype(np.float64), middle)  # float32 holds every boundary
    below = np.nextafter(exact, np.float32(0))
    above = np.nextafter(exact, np.float32(np.inf))
    even = np.where(low % 2 == 0, low, high)
    for sign, bit in ((np.float32(1), 0), (np.float32(-1), 0x8000)):
        assert np.array_equal(f32_to_f16(sign * below), low | np.uint16(bit))
        assert np.array_equal(f32_to_f16(sign * exact), even | np.uint16(bit))
        assert np.array_equal(f32_to_f16(sign * above), high | np.uint16(bit))


def test_too_large_becomes_infinity_and_nan_stays():
    limit = np.float32(65520)  # half-way between the largest float16 and what would be the next
    x = np.float32([np.nextafter(limit, np.float32(0)), limit, 1e30, np.inf, -limit, -np.inf])
    assert f32_to_f16(x).tolist() == [0x7BFF, INF, INF, INF, 0x8000 | INF, 0x8000 | INF]
    assert np.isnan(round_f16(np.float32([np.nan, -np.nan]))).all()


def test_random_values_round_as_struct_does(rng):
    exponents = rng.uniform(-30, 15.9, 20000)
    x = (rng.choice([-1.0, 1.0], 20000) * 2.0**exponents).astype(np.float32)
    want = np.frombuffer(struct.pack(f"<{len(x)}e", *x.tolist()), "<u2")
    assert np.array_equal(f32_to_f16(x), want)


@np.errstate(under="ignore", over="ignore")
def test_bf16_rounds_to_nearest_even_from_both_sides():
    low = np.arange(0x7F7F, dtype=np.uint32)  # each finite magnitude but the largest
    exact, values = (low << 16 | 0x8000).view(np.float32), (np.arange(0x7F80, dtype=np.uint32) << 16)
    values = values.view(np.float32)
    even = np.where(low % 2 == 0, values[:-1], values[1:])
    for sign in (np.float32(1), np.float32(-1)):
        assert np.array_equal(round_bf16(sign * values), sign * values)
        assert np.array_equal(round_bf16(sign * np.nextafter(exact, np.float32(0))), sign * values[:-1])
        assert np.array_equal(round_bf16(sign * exact), sign * even)
        assert np.array_equal(round_bf16(sign * np.nextafter(exact, np.float32(np.inf))), sign * values[1:])
    largest = np.finfo(np.float32).max
    assert round_bf16([largest, -largest]).tolist() == [np.inf, -np.inf]
    assert np.isnan(round_bf16([np.nan, -np.nan])).all()


def test_shapes_are_kept():
    assert f16_to_f32(ALL.reshape(256, 256)).shape == (256, 256)
    assert f32_to_f16(np.float32(1)).shape == ()
    assert f32_to_f16(np.float32(1)) == 0x3C00
