"""ggml's arithmetic: each rounding where it belongs, and the sums in ggml's order."""

from fractions import Fraction

import numpy as np
import pytest

from pagelm.host.oracle import ggml, ops
from pagelm.host.oracle.half import round_f16
from pagelm.host.oracle.rope import cos_sin
from pagelm.hparams import Rope


def nearest_f32(x):
    """The float32 nearest to a rational, ties to even."""
    guess = np.float32(float(x))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - x), int(v.view(np.uint32)) & 1))


def test_fma_rounds_once(rng):
    a, b, c = rng.standard_normal((3, 500)).astype(np.float32)
    c[:250] = -(a * b)[:250]  # what is left is the product's own rounding error
    got = ggml.fma(a, b, c)
    for i in range(len(a)):
        exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
        assert got[i] == nearest_f32(exact)
    assert (got[:250] != 0).any() and not (a * b + c)[:250].any()


def test_quantize_q8_by_hand():
    x = np.zeros((1, 64), np.float32)
    x[0, :6] = [127, 2.5, 3.5, -2.5, 0.49, -126.5]  # scale 1: halves go to the even neighbour
    d, quants, sums = ggml.quantize_q8(x)
    assert d.tolist() == [[[1.0], [0.0]]]
    assert quants[0, 0, :6].tolist() == [127, 2, 4, -2, 0, -126]
    assert not quants[0, 1].any()
    assert sums.tolist() == [[127 + 2 + 4 - 2 - 126, 0]]


def test_quantize_q8_keeps_scale_and_sum_as_f16(rng):
    x = rng.standard_normal((3, 96), dtype=np.float32)
    d, quants, sums = ggml.quantize_q8(x)
    largest = np.abs(x.reshape(3, 3, 32)).max(axis=2, keepdims=True)
    unrounded = largest / np.float32(127)
    assert np.array_equal(d, round_f16(unrounded)) and not np.array_equal(d, unrounded)
    assert np.abs(quants).max(axis=2).tolist() == [[127] * 3] * 3
    assert np.array_equal(sums, round_f16(unrounded[..., 0] * quants.sum(axis=2)))
    assert np.abs(quants * largest / 127 - x.reshape(3, 3, 32)).max() <= largest.max() / 127 / 2 * 1.0001


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize(("n_tokens", "n_rows"), [(1, 1), (3, 17), (70, 64)])
def test_dot_lanes_is_the_dot_product(lanes, n_tokens, n_rows, rng):
    n_blocks, n = 5, 32 // lanes
    w = rng.integers(-8, 8, (n_blocks, lanes, n, n_rows)) * rng.choice([0.5, 0.25], (n_blocks, 1, 1, n_rows))
    x = rng.integers(-127, 128, (n_blocks, lanes, n_tokens, n)) * 0.125
    want = np.einsum("blkr,bltk->tr", w, x)  # few bits: exact in float64, and in float32
    assert np.array_equal(ggml.dot_lanes(w.astype(np.float32), x), want)


def test_dot_lanes_adds_block_by_block_in_float32():
    """2^24 + 1 is no float32: one block of 1 is lost after 2^24, two before it count; lanes are apart."""
    big, one = float(1 << 24), 1.0
    w = np.ones((3, 8, 4, 1), np.float32)
    x = np.zeros((3, 8, 2, 4))
    x[:, 0, 0, 0] = [big, one, one]  # each one is rounded away
    x[:, 0, 1, 0] = [one, one, big]  # two of them make a float32 together
    assert ggml.dot_lanes(w, x).ravel().tolist() == [big, big + 2]
    x[:] = 0
    x[:, 0, 0, 0] = [big, 0, 0]
    x[:, 1, 0, 0] = [0, one, one]  # summed in another lane first
    assert ggml.dot_lanes(w, x)[0, 0] == big + 2


def test_lanes_are_folded_upper_half_onto_lower():
    big = float(1 << 24)
    x = np.zeros((1, 8, 1, 4))
    w = np.ones((1, 8, 4, 1), np.float32)
    x[0, [0, 1, 5], 0, 0] = [big, 1, 1]  # 1 and 5 meet first
    assert ggml.dot_lanes(w, x)[0, 0] == big + 2
    x[:] = 0
    x[0, [0, 4, 1], 0, 0] = [big, 1, 1]  # 0 and 4 meet first, and 4 is lost
    assert ggml.dot_lanes(w, x)[0, 0] == big


def test_chain_is_one_fused_sum_after_another(rng):
    a, b = rng.standard_normal((4, 18)).astype(np.float32), rng.standard_normal((6, 18)).astype(np.float32)
    got = ggml.chain(a, b)
    for t in range(4):
        for r in range(6):
            total = np.float32(0)
            for i in range(18):
                exact = Fraction(float(a[t, i])) * Fraction(float(b[r, i])) + Fraction(float(total))
                total = nearest_f32(exact)
            assert got[t, r] == total


def test_v_expf_is_exp(rng):
    x = rng.uniform(-87, 88, 5000).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    assert (np.abs(ggml.v_expf(x) - want) / want).max() < 2.4e-7  # 1.95 units in the last place, says ggml
    assert ggml.v_expf(np.float32([0, -1000, 1000, -1e4])).tolist() == [1, 0, np.inf, 0]


def test_swiglu_is_close_to_the_formula(rng):
    gate, up = (rng.standard_normal((2, 4, 96)) * 5).astype(np.float32)
    assert np.allclose(ggml.swiglu(gate, up), ops.swiglu(gate, up), rtol=1e-6)


def test_geglu_is_within_two_roundings_to_half(rng):
    gate, up = (rng.standard_normal((2, 4, 96)) * 4).astype(np.float32)
    gate[0, :6] = [-1e30, -10, 0, 10, 11, 1e30]
    got, want = ggml.geglu(gate, up), ops.geglu(gate, up)
    assert got.dtype == np.float32
    assert np.allclose(got, want, rtol=2e-2, atol=2e-3) and not np.allclose(got, want, rtol=1e-5, atol=1e-6)
    assert np.array_equal(got[0, :6], np.float32([0, 0, 0, 10, 11, 1e30]) * up[0, :6])
    alone = ggml.geglu(gate, np.ones_like(gate))[np.abs(gate) < 10]
    assert len(alone) > 300 and np.array_equal(alone, round_f16(alone))


@pytest.mark.parametrize("halves", [False, True])
def test_rope_is_close_to_exact_angles(halves, rng):
    positions = np.array([0, 1, 50, 400])
    x = rng.standard_normal((4, 2, 64), dtype=np.float32)
    want = ops.rope(x, *cos_sin(positions, Rope(1e5), 64), halves)
    got = ggml.rope(x, *ggml.rope_cos_sin(positions, 64, 1e5), halves)
    assert np.abs(got - want).max() < 2e-4  # angles are multiplied up in float32: 400 * 31 * 2^-24
    assert np.array_equal(got[0], x[0])


@pytest.mark.parametrize("n", [16, 64, 96, 128])
def test_dot_f16_is_the_dot_product(n, rng):
    q, k = round_f16(rng.standard_normal((2, 7, n), dtype=np.float32))
    want = (q.astype(np.float64) * k).sum(axis=1)
    got = ggml.dot_f16(q, k)
    assert got.dtype == np.float32 and np.abs(got - want).max() < 1e-5


@pytest.mark.parametrize(("n_tokens", "n_past"), [(1, 0), (1, 9), (6, 0), (6, 9)])
def test_flash_attention_is_attention_with_a_float16_sum(n_tokens, n_past, rng):
    n_head, n_head_kv, size = 6, 2, 32
    q = rng.standard_normal((n_tokens, n_head, size), dtype=np.float32)
    k, v = round_f16(rng.standard_normal((2, n_head_kv, n_past + n_tokens, size), dtype=np.float32))
    want = ops.attention_values(
        ops.softmax(ops.attention_scores(round_f16(q), k, n_past, ops.Scoring(size**-0.5))), v
    )
    got = ggml.flash_attention(q, k, v, n_past)
    assert got.shape == want.shape and got.dtype == np.float32
    assert np.abs(got - want).max() < (n_past + n_tokens) * 2**-10  # one float16 rounding a key
    alone = ggml.flash_attention(q[-1:], k, v, n_past + n_tokens - 1)
    assert np.array_equal(alone[0], got[-1])


@pytest.mark.parametrize("window", [1, 2, 5, 100])
@pytest.mark.parametrize(("n_tokens", "n_past"), [(1, 9), (6, 0), (6, 9)])
def test_flash_attention_leaves_out_what_lies_before_the_window(n_tokens, n_past, window, rng):
    size = 32
    q = rng.standard_normal((n_tokens, 6, size), dtype=np.float32)
    k, v = round_f16(rng.standard_normal((2, 2, n_past + n_tokens, size), dtype=np.float32))
    got = ggml.flash_attention(q, k, v, n_past, window=window)
    for t in range(n_tokens):
        seen = slice(max(0, n_past + t + 1 - window), n_past + t + 1)
        n_seen = seen.stop - seen.start
        alone = ggml.flash_attention(q[t : t + 1], k[:, seen], v[:, seen], n_seen - 1)
        assert np.array_equal(got[t], alone[0])


def test_flash_attention_of_one_key_is_its_value():
    v = round_f16(np.float32([[[0.1, 0.2, 0.3, 1e-7]]]))
    got = ggml.flash_attention(np.ones((1, 1, 4), np.float32), np.ones((1, 1, 4), np.float32), v, 0)
    assert np.array_equal(got, v[0])
