"""The float32 operations against their formulas in float64, sizes and values that hurt included."""

import numpy as np
import pytest

from pagelm.host.oracle import ops


def spiky(rng, shape):
    """Normal numbers with one outlier a row, as activations have."""
    x = rng.standard_normal(shape, dtype=np.float32)
    x[..., 0] *= 100
    return x


def rel(got, want):
    assert got.dtype == np.float32 and got.shape == want.shape
    return np.abs(got - want).max() / np.abs(want).max()


@pytest.mark.parametrize("n", [1, 63, 64, 576])
def test_rms_norm(n, rng):
    x, w = spiky(rng, (5, n)), rng.standard_normal(n, dtype=np.float32)
    x[2] = 0
    want = x / np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5) * w
    got = ops.rms_norm(x, w, 1e-5)
    assert rel(got, want) < 3e-7
    assert not got[2].any()


def test_rms_norm_by_hand():
    assert ops.rms_norm(np.float32([[3, 4]]), np.float32([1, 2]), 0.0) == pytest.approx(
        np.array([[3 / 12.5**0.5, 8 / 12.5**0.5]])
    )


def test_rope_turns_adjacent_pairs(rng):
    x = rng.standard_normal((4, 3, 8), dtype=np.float32)
    positions = np.array([0, 1, 7, 8000])
    angles = ops.rope_angles(positions, 8, 10000.0)
    assert angles.shape == (4, 4) and angles.dtype == np.float64
    got = ops.rope(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    for t, position in enumerate(positions):
        for i in range(4):
            turn = np.exp(1j * position * 10000.0 ** (-2 * i / 8))
            want = (x[t, :, 2 * i].astype(complex) + 1j * x[t, :, 2 * i + 1]) * turn
            assert np.allclose(got[t, :, 2 * i], want.real, atol=1e-6)
            assert np.allclose(got[t, :, 2 * i + 1], want.imag, atol=1e-6)
    assert np.array_equal(got[0], x[0])  # position 0 turns nothing


def test_softmax():
    x = np.float32([[0, 0, 0, 0], [1000, 0, -np.inf, 1000], [-1e30, -1e30, -1e30, 0]])
    assert ops.softmax(x).tolist() == [[0.25] * 4, [0.5, 0, 0, 0.5], [0, 0, 0, 1]]


def test_softmax_sums_to_one(rng):
    x = rng.standard_normal((7, 1000), dtype=np.float32) * 10
    want = np.exp(x.astype(np.float64))
    want /= want.sum(axis=1, keepdims=True)
    assert rel(ops.softmax(x), want) < 1e-6


@pytest.mark.parametrize(("n_head", "n_head_kv"), [(1, 1), (4, 4), (9, 3), (6, 1)])
@pytest.mark.parametrize(("n_tokens", "n_past"), [(1, 0), (1, 6), (5, 0), (5, 6)])
def test_attention_is_causal_and_grouped(n_head, n_head_kv, n_tokens, n_past, rng):
    size = 16
    q = rng.standard_normal((n_tokens, n_head, size), dtype=np.float32)
    k, v = rng.standard_normal((2, n_head_kv, n_past + n_tokens, size), dtype=np.float32)
    scores = ops.attention_scores(q, k, n_past)
    got = ops.attention_values(ops.softmax(scores), v)
    for t in range(n_tokens):
        for h in range(n_head):
            seen = n_past + t + 1
            keys, values = (c[h // (n_head // n_head_kv), :seen].astype(np.float64) for c in (k, v))
            s = keys @ q[t, h] / np.sqrt(size)
            assert np.allclose(scores[h, t, :seen], s, atol=1e-5)
            assert (scores[h, t, seen:] == -np.inf).all()
            p = np.exp(s - s.max())
            want = p @ values / p.sum()
            assert np.allclose(got[t, h * size : (h + 1) * size], want, atol=1e-5)


def test_swiglu(rng):
    gate, up = spiky(rng, (2, 3, 96))
    want = gate / (1 + np.exp(-gate.astype(np.float64))) * up
    assert rel(ops.swiglu(gate, up), want) < 1e-6


def test_swiglu_far_out_is_zero_or_the_gate():
    gate, up = np.float32([[-200, -1e30, 0, 1e30, 200]]), np.float32([[1, 1, 5, 1, 2]])
    assert ops.swiglu(gate, up)[0] == pytest.approx([0, 0, 0, 1e30, 400])


@pytest.mark.parametrize("n_tokens", [1, 2, ops.ROWS, ops.ROWS + 1, 40])
@pytest.mark.parametrize(("n_rows", "n"), [(1, 1), (17, 31), (64, 576), (100, 10000), (1000, 96)])
def test_matmul(n_tokens, n_rows, n, rng):
    x, w = (
        rng.standard_normal((n_tokens, n), dtype=np.float32),
        rng.standard_normal((n_rows, n), dtype=np.float32),
    )
    want = x.astype(np.float64) @ w.astype(np.float64).T
    got = ops.matmul(x, w)
    assert got.dtype == np.float32 and got.shape == (n_tokens, n_rows)
    size = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1)
    assert (np.abs(got - want) / size).max() < 2e-7


def test_log_softmax():
    got = ops.log_softmax(np.float32([[0, 0], [1e4, 0], [-1e4, 0]]))
    assert got.dtype == np.float64
    assert got == pytest.approx(np.array([[-np.log(2)] * 2, [0, -1e4], [-1e4, 0]]))
