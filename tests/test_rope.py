"""Angles of rope against numpy, written down from the papers."""

import numpy as np
import pytest

from pagelm.errors import ArchError
from pagelm.hparams import Rope
from pagelm.rope import angle_table, check_factors, frequencies, magnitude

BASES = [(10000.0, 64), (500000.0, 128), (1e6, 24), (10000.0, 2)]


def plain(base: float, n_rot: int) -> np.ndarray:
    """arXiv:2104.09864, equation 15: theta_i = base^(-2 (i - 1) / d), i from 1."""
    return np.array([base ** (-2 * (i - 1) / n_rot) for i in range(1, n_rot // 2 + 1)])


def yarn(base: float, n_rot: int, scale: float, n_orig: int, fast: float = 32, slow: float = 1) -> np.ndarray:
    """arXiv:2309.00071, with the ramp of its authors' code: linear in the pair's number."""
    theta = plain(base, n_rot)

    def number(turns: float) -> float:  # of the pair whose wave length goes so often into the context
        return n_rot * np.log(n_orig / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(np.floor(number(fast)), 0), min(np.ceil(number(slow)), n_rot - 1)
    gamma = 1 - np.clip((np.arange(n_rot // 2) - low) / max(high - low, 0.001), 0, 1)
    return (1 - gamma) * theta / scale + gamma * theta


@pytest.mark.parametrize(("base", "n_rot"), BASES)
def test_plain_and_linear_frequencies(base, n_rot):
    assert frequencies(Rope(base), n_rot) == pytest.approx(plain(base, n_rot), rel=1e-14)
    # arXiv:2306.15595: position m becomes m L / L'
    assert frequencies(Rope(base, scale=1 / 8), n_rot) == pytest.approx(plain(base, n_rot) / 8, rel=1e-14)


@pytest.mark.parametrize(("base", "n_rot"), BASES)
def test_factors_divide_each_frequency(base, n_rot):
    factors = 1 + 7 * np.random.default_rng(1).random(n_rot // 2)
    got = frequencies(Rope(base, scale=0.5), n_rot, list(factors))
    assert got == pytest.approx(plain(base, n_rot) / factors / 2, rel=1e-14)
    with pytest.raises(ValueError, match="zip"):
        frequencies(Rope(base), n_rot, [1.0] * (n_rot // 2 + 1))


@pytest.mark.parametrize(("base", "n_rot"), BASES)
@pytest.mark.parametrize(("factor", "n_orig"), [(4.0, 256), (32.0, 4096), (2.0, 8192), (4.0, 6)])
def test_yarn_scales_slow_pairs_and_leaves_fast_ones(base, n_rot, factor, n_orig):
    rope = Rope(base, 1 / factor, yarn=(32.0, 1.0), n_ctx_orig=n_orig)
    got, theta = np.array(frequencies(rope, n_rot)), plain(base, n_rot)
    assert got == pytest.approx(yarn(base, n_rot, factor, n_orig), rel=1e-12)
    assert (got <= theta).all() and (got >= theta / factor * (1 - 1e-12)).all()
    # where the ramp is longer than what its ends are rounded by: the paper's two ends
    turns = n_orig * theta / (2 * np.pi)
    last_fast, first_slow = int((turns > 32).sum()) - 1, int((turns >= 1).sum()) + 1
    if 0 < last_fast < first_slow < n_rot // 2:
        assert got[: last_fast - 1] == pytest.approx(theta[: last_fast - 1], rel=1e-12)
        assert got[first_slow:] == pytest.approx(theta[first_slow:] / factor, rel=1e-12)


def test_magnitude():
    """arXiv:2309.00071, section 3.4: sqrt(1 / t) = 0.1 ln(s) + 1."""
    assert magnitude(Rope(1e4)) == magnitude(Rope(1e4, scale=0.25)) == 1
    assert magnitude(Rope(1e4, 1 / 4, yarn=(32.0, 1.0), n_ctx_orig=256)) == pytest.approx(1.1386294, abs=1e-7)
    assert magnitude(Rope(1e4, attn_factor=1.19)) == 1.19
    both = Rope(1e4, 1 / 4, yarn=(32.0, 1.0), attn_factor=2.0, n_ctx_orig=256)
    assert magnitude(both) == pytest.approx(2.2772589, abs=1e-7)


@pytest.mark.parametrize(
    "rope", [Rope(1e4), Rope(1e4, 1 / 4, yarn=(32.0, 1.0), attn_factor=1.2, n_ctx_orig=64)]
)
def test_table_is_rounded_once(rope):
    n_ctx, n_rot = 300, 24
    factors = [1 + i / 5 for i in range(n_rot // 2)]
    table = np.frombuffer(angle_table(rope, n_ctx, n_rot, factors), np.float32).reshape(n_ctx, n_rot // 2, 2)
    theta = np.arange(n_ctx)[:, None] * np.array(frequencies(rope, n_rot, factors))
    exact = magnitude(rope) * np.stack([np.cos(theta), np.sin(theta)], -1)
    assert np.abs(table - exact).max() <= 2.0**-24 * magnitude(rope) * 1.0001
    assert (table[0] == [np.float32(magnitude(rope)), 0]).all()


@pytest.mark.parametrize("bad", [0.0, -0.0, float("nan")])
def test_factors_that_nothing_can_be_divided_by_are_refused(bad):
    check_factors("file", "rope_freqs.weight", [1.0, -2.0, 1e-30])
    with pytest.raises(ArchError, match="file: element 1 of rope_freqs.weight is .*; allowed: numbers other"):
        check_factors("file", "rope_freqs.weight", [1.0, bad])
