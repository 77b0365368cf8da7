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


@pytest.mark.parametrize("n", [2, 63, 64, 576])
@pytest.mark.parametrize("biased", [False, True])
def test_layer_norm(n, biased, rng):
    x, w = spiky(rng, (5, n)) + 50, rng.standard_normal(n, dtype=np.float32)
    x[2] = 7
    bias = rng.standard_normal(n, dtype=np.float32) if biased else None
    exact = x.astype(np.float64)
    want = (exact - exact.mean(axis=1, keepdims=True)) / np.sqrt(exact.var(axis=1, keepdims=True) + 1e-5) * w
    got = ops.layer_norm(x, w, bias, 1e-5)
    assert rel(got, want if bias is None else want + bias) < 3e-7
    assert np.array_equal(got[2], np.zeros(n) if bias is None else bias)


def test_layer_norm_by_hand():
    got = ops.layer_norm(np.float32([[1, 5]]), np.float32([1, 3]), np.float32([10, 20]), 0.0)
    assert got.tolist() == [[9, 23]]  # mean 3, deviation 2


@pytest.mark.parametrize("n_rot", [8, 6, 2])
@pytest.mark.parametrize("halves", [False, True])
def test_rope_turns_pairs_and_leaves_the_rest(halves, n_rot, rng):
    x = rng.standard_normal((4, 3, 8), dtype=np.float32)
    angles = rng.uniform(-3, 3, (4, n_rot // 2))
    got = ops.rope(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), halves)
    for i in range(n_rot // 2):
        a, b = (i, i + n_rot // 2) if halves else (2 * i, 2 * i + 1)
        want = (x[..., a].astype(complex) + 1j * x[..., b]) * np.exp(1j * angles[:, i, None])
        assert np.allclose(got[..., a], want.real, atol=1e-6)
        assert np.allclose(got[..., b], want.imag, atol=1e-6)
    assert np.array_equal(got[..., n_rot:], x[..., n_rot:])


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
    scores = ops.attention_scores(q, k, n_past, ops.Scoring(size**-0.5))
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


@pytest.mark.parametrize("window", [1, 3, 4, 100])
@pytest.mark.parametrize(("n_tokens", "n_past"), [(1, 0), (1, 6), (5, 0), (5, 6)])
def test_attention_sees_the_last_keys_of_its_window(n_tokens, n_past, window, rng):
    q = rng.standard_normal((n_tokens, 2, 4), dtype=np.float32)
    k = rng.standard_normal((1, n_past + n_tokens, 4), dtype=np.float32)
    whole = ops.attention_scores(q, k, n_past, ops.Scoring(0.5))
    got = ops.attention_scores(q, k, n_past, ops.Scoring(0.5, window=window))
    for t in range(n_tokens):
        first = max(0, n_past + t - (window - 1))
        assert (got[:, t, :first] == -np.inf).all()
        assert np.array_equal(got[:, t, first:], whole[:, t, first:])


def test_scores_are_scaled_then_capped():
    q, k = np.float32([[[3.0]]]), np.float32([[[2.0]]])
    assert ops.attention_scores(q, k, 0, ops.Scoring(0.5)).item() == 3
    want = 4 * np.tanh(3 / 4)
    assert ops.attention_scores(q, k, 0, ops.Scoring(0.5, cap=4.0)).item() == pytest.approx(want, rel=1e-6)


def test_capped():
    x = np.float32([-1e30, -5, 0, 5, 1e30])
    assert ops.capped(x, 0.0) is x
    want = 30 * np.tanh(x.astype(np.float64) / 30)
    assert ops.capped(x, 30.0) == pytest.approx(want, rel=1e-6)


def test_gelu_is_the_tanh_form(rng):
    x = spiky(rng, (3, 96))
    exact = x.astype(np.float64)
    want = 0.5 * exact * (1 + np.tanh(np.sqrt(2 / np.pi) * (exact + 0.044715 * exact**3)))
    assert rel(ops.gelu(x), want) < 3e-7
    up = rng.standard_normal((3, 96), dtype=np.float32)
    assert rel(ops.geglu(x, up), want * up) < 3e-7


def test_gelu_by_hand():
    # Of 1: 0.8412 by this form; the one by the error function would be 0.8413.
    got = ops.gelu(np.float32([-1e30, -20, 0, 1, 20, 1e30]))
    assert got == pytest.approx(np.array([0, 0, 0, 0.8411920, 20, 1e30]), rel=1e-6)


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
