"""The C library's float32 functions, last bits included."""

import ctypes

import numpy as np
import pytest

from pagelm.host.oracle.libm import expf, sincosf


def arguments(rng):
    spans = [np.pi / 4, 7, 119, 121, 5000, 131072]
    return np.concatenate([np.zeros(1), *(rng.uniform(-s, s, 4000) for s in spans)]).astype(np.float32)


def ulps(got, want):
    """Distance to the float64 truth, in units of float32's last place there."""
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))


def test_sine_and_cosine_are_right_to_the_last_place(rng):
    x = arguments(rng)
    sine, cosine = sincosf(x)
    assert sine.dtype == cosine.dtype == np.float32
    assert ulps(sine[1:], np.sin(x[1:].astype(np.float64))).max() < 0.57
    assert ulps(cosine, np.cos(x.astype(np.float64))).max() < 0.57
    assert sine[0] == 0 and cosine[0] == 1


def test_exp_is_right_to_the_last_place(rng):
    x = rng.uniform(-87, 88, 20000).astype(np.float32)
    assert ulps(expf(x), np.exp(x.astype(np.float64))).max() < 0.503


def test_exp_at_the_ends():
    x = np.float32([0, -0.0, -104, -1e30, -np.inf, 89, 1e30, np.inf])
    assert expf(x).tolist() == [1, 1, 0, 0, 0, np.inf, np.inf, np.inf]


def test_results_that_are_not_the_nearest_float():
    """Where glibc's last bit is not the correctly rounded one; a plain float64 sine would get these wrong."""
    known = {
        "sin": [(12.75, 0x3E3AFB45), (13.125, 0x3F07AFAE), (21.375, 0x3F13F102)],
        "cos": [(10.5, 0xBEF37993), (16.875, 0xBEC9275C), (23.375, 0xBE3E5189)],
        "exp": [(-0.1005859375, 0x3F6780B1), (-0.4166259765625, 0x3F28C5C1), (-0.4892578125, 0x3F1CF2E5)],
    }
    functions = {"sin": lambda x: sincosf(x)[0], "cos": lambda x: sincosf(x)[1], "exp": expf}
    for name, pairs in known.items():
        x = np.float32([v for v, _ in pairs])
        got = functions[name](x).view(np.uint32)
        assert got.tolist() == [bits for _, bits in pairs], name
        nearest = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
        assert (nearest.view(np.uint32) != got).all(), name


@pytest.mark.glibc
def test_functions_equal_glibc(rng):
    libm = ctypes.CDLL("libm.so.6")

    def c(name, x):
        function = getattr(libm, name)
        function.restype, function.argtypes = ctypes.c_float, [ctypes.c_float]
        return np.array([function(float(v)) for v in x], np.float32)

    x = arguments(rng)
    sine, cosine = sincosf(x)
    assert np.array_equal(sine, c("sinf", x))
    assert np.array_equal(cosine, c("cosf", x))
    x = -rng.exponential(10, 20000).astype(np.float32)
    assert np.array_equal(expf(x), c("expf", x))
