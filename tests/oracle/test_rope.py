"""Frequencies of rope against values worked out by hand and against limits that the formulas must have."""

import math

import numpy as np
import pytest

from pagelm.host.oracle import rope
from pagelm.hparams import Rope


def test_frequencies_fall_by_the_base():
    got = rope.frequencies(Rope(10000.0), 8)
    assert got.dtype == np.float64
    assert got == pytest.approx(np.array([1, 0.1, 0.01, 0.001]), rel=1e-14)
    assert rope.magnitude(Rope(10000.0)) == 1


def test_linear_scaling_and_factors_divide():
    factors = [1.0, 2.0, 5.0, 10.0]
    got = rope.frequencies(Rope(10000.0, scale=0.25), 8, factors)
    assert got == pytest.approx(np.array([1, 0.1, 0.01, 0.001]) / factors / 4, rel=1e-14)


def test_attn_factor_is_the_magnitude():
    cos, sin = rope.cos_sin([0, 3], Rope(10000.0, attn_factor=1.5), 4)
    assert cos.dtype == sin.dtype == np.float32
    assert cos == pytest.approx(1.5 * np.cos(np.array([[0, 0], [3, 0.03]])), rel=1e-6)
    assert sin == pytest.approx(1.5 * np.sin(np.array([[0, 0], [3, 0.03]])), rel=1e-6)


def test_yarn_keeps_fast_pairs_and_scales_slow_ones():
    """64 elements, base 10000, 4096 tokens: 32 turns are at pair 10.47, one turn at 22.51."""
    yarn = Rope(10000.0, scale=0.25, yarn=(32.0, 1.0), attn_factor=2.0, n_ctx_orig=4096)
    for turns, pair in ((32, 10.47), (1, 22.51)):
        assert 4096 * 10000 ** (-2 * pair / 64) / (2 * math.pi) == pytest.approx(turns, rel=2e-3)
    got = rope.frequencies(yarn, 64) / rope.frequencies(Rope(10000.0), 64)
    kept = 1 - (np.arange(10, 24) - 10) / (23 - 10)
    assert got[:11] == pytest.approx(np.ones(11), rel=1e-14)
    assert got[10:24] == pytest.approx(0.25 + 0.75 * kept, rel=1e-14)
    assert got[23:] == pytest.approx(np.full(9, 0.25), rel=1e-14)
    assert rope.magnitude(yarn) == pytest.approx(2 * (1 + 0.1 * math.log(4)), rel=1e-14)


def test_yarn_of_a_short_context_has_no_negative_pairs():
    yarn = Rope(10000.0, scale=0.5, yarn=(32.0, 1.0), n_ctx_orig=100)  # 32 turns are at pair -2.4
    got = rope.kept_shares(yarn, 64)
    assert got[0] == 1 and got[-1] == 0 and (np.diff(got) <= 0).all()
    assert got[5] == pytest.approx(1 - 5 / 10, rel=1e-14)  # one turn at 9.6


def test_angles_of_far_positions_keep_their_accuracy():
    cos, sin = rope.cos_sin([1_000_000], Rope(10000.0), 2)
    assert (cos.item(), sin.item()) == pytest.approx((math.cos(1e6), math.sin(1e6)), rel=1e-7)
