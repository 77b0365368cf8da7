"""The oracle on small random models: against a plain float64 pass, against llama.cpp, and with itself."""

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from tiny_gguf import tiny_model

from pagelm.errors import ArchError, ContextFull, GgufError, PagelmError, SourceError, TokenizerError
from pagelm.host.oracle import Oracle, model

IDS = [5, 270, 9, 44, 120, 7, 7, 300, 31, 2]
LLAMA_CPP = json.loads((Path(__file__).parent / "llama_cpp.json").read_text(encoding="utf-8"))["cases"]
LLAMA_LABELS = (
    "attn_norm attn_q attn_k attn_v rope_q rope_k kv_store attn_scores attn_softmax attn_values attn_output "
    "attn_residual ffn_norm ffn_gate ffn_up swiglu ffn_down ffn_residual"
).split()
MIXED = {"token_embd": "Q8_0", "ffn_down": "Q4_0", "attn_v": "F16", "ffn_up": "F32", "": "Q4_1"}


@pytest.fixture(scope="module", params=["F32", "mixed", "untied"])
def path(request, tmp_path_factory):
    options = {"F32": {}, "mixed": dict(quant=MIXED), "untied": dict(quant="Q8_0", tied=False)}[request.param]
    path = tmp_path_factory.mktemp("oracle") / "tiny.gguf"
    tiny_model(path, **options)
    return path


def float64_pass(path, ids, window=None):
    """Logits of every row by the textbook, in float64, on what the `gguf` package reads."""
    reader = gguf.GGUFReader(path)
    w = {}
    for t in reader.tensors:
        shape = tuple(int(n) for n in reversed(t.shape))
        w[t.name] = gguf.dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float64)

    def get(key):
        return reader.fields[f"llama.{key}"].contents()

    n_head, n_head_kv, eps = get("attention.head_count"), get("attention.head_count_kv"), 1e-5
    base = get("rope.freq_base")
    size = w["blk.0.attn_q.weight"].shape[0] // n_head
    n = len(ids)

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight

    def turned(x):  # (n, heads, size)
        z = x[..., 0::2] + 1j * x[..., 1::2]
        z = z * np.exp(1j * np.arange(n)[:, None, None] * base ** (-np.arange(0, size, 2) / size))
        return np.stack([z.real, z.imag], axis=-1).reshape(x.shape)

    x = w["token_embd.weight"][ids]
    for i in range(get("block_count")):
        b = f"blk.{i}."
        h = norm(x, w[b + "attn_norm.weight"])
        q, k, v = ((h @ w[b + f"attn_{c}.weight"].T).reshape(n, -1, size) for c in "qkv")
        q, k = turned(q), turned(k)
        out = np.zeros((n, n_head, size))
        for t in range(n):
            for head in range(n_head):
                kv = head * n_head_kv // n_head
                seen = slice(max(0, t + 1 - window) if window else 0, t + 1)
                s = k[seen, kv] @ q[t, head] / np.sqrt(size)
                p = np.exp(s - s.max())
                out[t, head] = p @ v[seen, kv] / p.sum()
        x = x + out.reshape(n, -1) @ w[b + "attn_output.weight"].T
        h = norm(x, w[b + "ffn_norm.weight"])
        gate, up = h @ w[b + "ffn_gate.weight"].T, h @ w[b + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[b + "ffn_down.weight"].T
    return norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T


def test_logits_equal_a_float64_pass(path):
    want = float64_pass(path, IDS)
    got = Oracle(path).forward_all(IDS)
    assert got.dtype == np.float32 and got.shape == want.shape == (len(IDS), 320)
    assert np.abs(got - want).max() < 2e-6 * np.abs(want).max()


@pytest.mark.parametrize("window", [1, 3, 9])
def test_windows_equal_a_float64_pass(window, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, metadata={"llama.attention.sliding_window": window})
    want, whole = float64_pass(path, IDS, window), float64_pass(path, IDS)
    oracle = Oracle(path)
    got = np.concatenate([oracle.forward_all(IDS[:7]), oracle.forward_all(IDS[7:])])
    assert np.abs(got - want).max() < 2e-6 * np.abs(want).max() < np.abs(whole - want).max()


def test_exact_mode_is_near_it_and_not_equal(path):
    want = float64_pass(path, IDS)
    got = Oracle(path, exact=True).forward_all(IDS)
    error = np.abs(got - want).max() / np.abs(want).max()
    assert 1e-5 < error < 0.1  # 8-bit activations, or the f16 cache alone


@pytest.mark.parametrize("case", LLAMA_CPP, ids=lambda case: str(case["model"]))
def test_exact_mode_equals_llama_cpp_bit_for_bit(case, tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, **case["model"])
    digest = hashlib.sha256()
    for t in gguf.GGUFReader(path).tensors:
        digest.update(t.name.encode() + t.data.tobytes())
    assert digest.hexdigest() == case["sha256"], "tiny_model or the gguf package makes other weights now"
    first, last = (np.frombuffer(base64.b64decode(case["logits"][k]), "<f4") for k in ("first", "last"))
    n_prompt = case["n_prompt"]

    oracle = Oracle(path, exact=True)
    assert np.array_equal(oracle.forward(case["ids"][:n_prompt]), first)
    for token in case["ids"][n_prompt:]:
        logits = oracle.forward([token])
    assert np.array_equal(logits, last)

    f32 = Oracle(path).forward_all(case["ids"])[-1]
    assert 0 < np.abs(f32 - last).max() < 0.1 * np.abs(last).max()


@pytest.mark.parametrize("exact", [False, True])
def test_batch_equals_token_by_token(path, exact):
    oracle = Oracle(path, exact)
    whole = oracle.forward_all(IDS)
    oracle.reset()
    single = np.stack([oracle.forward([token]) for token in IDS])
    assert oracle.position == len(IDS)
    # The sums of F16 and F32 products are BLAS's, whose order depends on the number of rows.
    assert np.abs(whole - single).max() <= 2e-6 * np.abs(whole).max()
    assert np.array_equal(whole.argmax(axis=1), single.argmax(axis=1))


def test_exact_mode_of_quantised_matrices_does_not_depend_on_the_batch(tmp_path):
    tiny_model(tmp_path / "m", quant={"token_embd": "Q8_0", "attn": "Q4_0", "": "Q4_1"})
    oracle = Oracle(tmp_path / "m", exact=True)
    whole = oracle.forward_all(IDS)
    oracle.reset()
    assert np.array_equal(whole[:3], oracle.forward_all(IDS[:3]))
    assert np.array_equal(whole[3:], oracle.forward_all(IDS[3:]))


@pytest.mark.parametrize("exact", [False, True])
def test_long_prompts_are_cut_without_a_trace(path, exact, monkeypatch):
    oracle = Oracle(path, exact)
    want_trace, got_trace = {}, {}
    want = oracle.forward(IDS, trace=want_trace)
    monkeypatch.setattr(model, "BATCH", 4)
    oracle.reset()
    got = oracle.forward(IDS, trace=got_trace)
    assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()
    assert list(got_trace) == list(want_trace)
    assert all(got_trace[k].shape == want_trace[k].shape for k in want_trace)
    assert oracle.position == len(IDS)


def test_reset_forgets(path):
    oracle = Oracle(path)
    first = oracle.forward(IDS)
    again = oracle.forward(IDS)
    assert not np.array_equal(first, again)
    assert oracle.position == 2 * len(IDS)
    oracle.reset()
    assert oracle.position == 0
    assert np.array_equal(oracle.forward(IDS), first)


def test_rows_from_a_first_one_on(path):
    oracle = Oracle(path)
    whole = oracle.forward_all(IDS)
    oracle.reset()
    assert np.allclose(oracle.forward_all(IDS, first=7), whole[7:], rtol=1e-5, atol=1e-5)
    oracle.reset()
    assert np.allclose(oracle.forward(IDS), whole[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("exact", [False, True])
def test_trace_holds_every_label_in_order(path, exact):
    oracle, trace = Oracle(path, exact), {}
    oracle.forward(IDS[:6])
    logits = oracle.forward(IDS[6:], trace=trace)
    assert list(trace) == oracle.labels()
    assert oracle.labels() == [
        "embed",
        *(f"blk.{i}.{op}" for i in range(2) for op in LLAMA_LABELS),
        *("output_norm", "output", "argmax"),
    ]
    hp = oracle.hparams
    sizes = dict(embed=hp.n_embd, attn_q=hp.n_embd_q, attn_k=hp.n_embd_kv, rope_k=hp.n_embd_kv)
    sizes |= dict(kv_store=2 * hp.n_embd_kv, swiglu=hp.n_ff, ffn_down=hp.n_embd, output=hp.n_vocab, argmax=1)
    for label, value in trace.items():
        assert value.dtype == np.float32 and np.isfinite(value).all()
        op = label.rpartition(".")[2]
        if op in ("attn_scores", "attn_softmax"):
            assert value.shape == (hp.n_head, len(IDS))
        elif op in sizes:
            assert value.shape == (sizes[op],)
    assert np.array_equal(trace["output"], logits)
    assert trace["argmax"] == [logits.argmax()]
    assert np.allclose(trace["blk.1.attn_softmax"].sum(axis=1), 1)
    expected = np.concatenate([trace["blk.0.rope_k"], trace["blk.0.attn_v"]])
    assert np.allclose(trace["blk.0.kv_store"], expected, rtol=1e-3)
    assert np.array_equal(trace["blk.0.kv_store"], expected) == (not exact)
    for i in range(2):
        attended = trace[f"blk.{i}.attn_residual"]
        before = trace["embed"] if i == 0 else trace[f"blk.{i - 1}.ffn_residual"]
        assert np.array_equal(attended, before + trace[f"blk.{i}.attn_output"])
        assert np.array_equal(trace[f"blk.{i}.ffn_residual"], attended + trace[f"blk.{i}.ffn_down"])


@pytest.mark.parametrize("exact", [False, True])
def test_pass_stops_after_some_layers(path, exact):
    oracle, trace = Oracle(path, exact), {}
    oracle.forward(IDS[:4])
    for n_layers, label in ((0, "embed"), (1, "blk.0.ffn_residual"), (2, "blk.1.ffn_residual")):
        rows = oracle.forward(IDS[4:], n_layers=n_layers)
        assert rows.shape == (6, 64) and oracle.position == 4
        if not trace:
            Oracle(path, exact).forward(IDS, trace=trace)
        assert np.allclose(rows[-1], trace[label], rtol=1e-4, atol=1e-5)
    with pytest.raises(PagelmError, match=r"stop after 3 layers; allowed: 0\.\.2"):
        oracle.forward(IDS[4:], n_layers=3)


@pytest.mark.parametrize("exact", [False, True])
def test_full_context_is_a_typed_end(path, exact):
    oracle = Oracle(path, exact, n_ctx=len(IDS))
    want = oracle.forward_all(IDS)
    with pytest.raises(ContextFull, match="1 tokens do not fit: 10 of 10") as caught:
        oracle.forward([5])
    assert caught.value.n_ctx == 10 and oracle.position == 10
    oracle.reset()
    with pytest.raises(ContextFull):
        oracle.forward([*IDS, 5])
    assert oracle.position == 0
    assert np.array_equal(oracle.forward_all(IDS), want)


def test_wrong_ids_are_refused(path):
    oracle = Oracle(path)
    for bad in (-1, 320, 1 << 40):
        with pytest.raises(TokenizerError, match=rf"token {bad} at index 1 .* allowed: 0\.\.319"):
            oracle.forward([3, bad])
    with pytest.raises(PagelmError, match="no tokens"):
        oracle.forward([])
    with pytest.raises(PagelmError, match="context of 0 tokens"):
        Oracle(path, n_ctx=0)
    assert oracle.position == 0


def test_files_that_cannot_be_computed_are_refused(tmp_path):
    with pytest.raises(SourceError):
        Oracle(tmp_path / "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\0" * 40)
    with pytest.raises(GgufError):
        Oracle(tmp_path / "bad.gguf")
    tiny_model(tmp_path / "other.gguf", arch="mamba")
    with pytest.raises(ArchError, match="mamba"):
        Oracle(tmp_path / "other.gguf")


def test_opens_inside_a_running_event_loop(path):
    async def main():
        return Oracle(path).forward(IDS)

    assert np.array_equal(asyncio.run(main()), Oracle(path).forward(IDS))
