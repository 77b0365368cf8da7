"""Loading: what it costs the page's process, what reaches the GPU, and how it is cancelled."""

import asyncio
import time
from pathlib import Path

import gguf
import pytest
from processes import MIB, Peak, renderers, rss

from pagelm.errors import Cancelled
from pagelm.host.browser_lm import BrowserLm

pytestmark = [pytest.mark.browser, pytest.mark.model]


def synthetic(path: Path, like: Path, n_layer: int, n_embd: int, n_ff: int) -> int:
    """A llama of zeros with the default model's vocabulary, written as a sparse file. Returns its bytes."""
    fields = gguf.GGUFReader(like).fields
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(n_layer)
    writer.add_context_length(2048)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_embd // 64)
    writer.add_head_count_kv(n_embd // 64)
    writer.add_rope_dimension_count(64)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = fields["tokenizer.ggml.tokens"].contents()
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(fields["tokenizer.ggml.token_type"].contents())
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    shapes = {"token_embd": (len(tokens), n_embd), "output_norm": (n_embd,)}
    for i in range(n_layer):
        blk = f"blk.{i}"
        shapes |= {f"{blk}.{norm}": (n_embd,) for norm in ("attn_norm", "ffn_norm")}
        shapes |= {f"{blk}.attn_{m}": (n_embd, n_embd) for m in ("q", "k", "v", "output")}
        shapes |= {f"{blk}.ffn_{m}": (n_ff, n_embd) for m in ("gate", "up")}
        shapes[f"{blk}.ffn_down"] = (n_embd, n_ff)
    total = 0
    for name, shape in shapes.items():
        kind = gguf.GGMLQuantizationType.Q8_0 if len(shape) == 2 else gguf.GGMLQuantizationType.F32
        elements = shape[0] * (shape[1] if len(shape) == 2 else 1)
        nbytes = elements * 34 // 32 if len(shape) == 2 else elements * 4
        writer.add_tensor_info(f"{name}.weight", shape, "float32", nbytes, raw_dtype=kind)
        total += -(-nbytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    start = -(-path.stat().st_size // 32) * 32
    with path.open("r+b") as file:
        file.truncate(start + total)
    return start + total


@pytest.mark.parametrize("size", ["smollm2", "900 MB"])
def test_loading_needs_little_memory_whatever_the_model_has(browser_lm, wheel, model_path, tmp_path, size):
    path = model_path
    if size != "smollm2":
        path = tmp_path / "zeros.gguf"
        assert synthetic(path, model_path, 27, 1536, 4096) > 880e6

    async def measure():
        before = renderers()
        lm = await BrowserLm.start(path, wheel=wheel)
        try:
            pids = renderers() - before
            assert pids
            heap = (await lm.call("memory"))["wasm_bytes"]
            resident = rss(pids)
            with Peak(pids) as peak:
                start = time.perf_counter()
                info = await lm.load(lm.model_url, n_ctx=512)
                seconds = time.perf_counter() - start
            return info["wasm_bytes"] - heap, peak.bytes - resident, info, seconds
        finally:
            await lm.close()

    heap_growth, process_growth, info, seconds = browser_lm.run(measure())
    print(
        f"{size}: wasm +{heap_growth / MIB:.1f} MiB, renderer +{process_growth / MIB:.1f} MiB, loaded "
        f"in {seconds:.2f} s: {info['size'] / 1e6 / seconds:.0f} MB/s"
    )
    assert info["plan"]["weights"] > 0.9 * info["size"]
    assert heap_growth <= 48 * MIB
    assert process_growth <= 96 * MIB


def test_uploads_are_at_most_16_mib_and_add_up_to_the_tensors(loaded_lm, model_path):
    worker = loaded_lm.lm.page.workers[0]
    wrap = """() => {
      const inner = GPUQueue.prototype.writeBuffer;
      globalThis.writes = [];
      GPUQueue.prototype.writeBuffer = function (buffer, offset, data, from, size) {
        writes.push([buffer.label, size ?? data.byteLength]);
        return inner.apply(this, arguments);
      };
      return null;
    }"""
    loaded_lm.run(worker.evaluate(wrap))
    loaded_lm.loaded = None
    loaded_lm.load(n_ctx=512)
    writes = loaded_lm.run(worker.evaluate("writes"))
    by_buffer: dict[str, int] = {}
    for label, nbytes in writes:
        by_buffer[label] = by_buffer.get(label, 0) + nbytes
        assert nbytes <= 16 * MIB
    tensors = gguf.GGUFReader(model_path).tensors
    vectors = {t.name: int(t.n_bytes) for t in tensors if len(t.shape) == 1}
    assert {name: by_buffer.get(name) for name in vectors} == vectors
    # matrices go through the staging buffer, from where the GPU brings them into tiles
    assert by_buffer["staging"] == sum(int(t.n_bytes) for t in tensors if len(t.shape) == 2)
    small = {label for label in by_buffer if label.startswith("piece ")} | {"angles.0", "state", "x"}
    assert by_buffer.keys() - vectors.keys() - {"staging"} <= small
    assert sum(by_buffer.get(label, 0) for label in small) < MIB


def test_cancelled_load_stops_at_the_next_chunk_and_the_next_load_works(browser_lm):
    browser_lm.loaded = None
    done: list[int] = []

    def stop(event):
        if event["kind"] == "progress" and event["phase"] == "weights" and event["done"]:
            done.append(event["done"])
            return False
        return None

    with pytest.raises(Cancelled, match="cancelled while loading the weights"):
        browser_lm.call("load", {"url": browser_lm.lm.model_url, "n_ctx": 512}, stop)
    assert len(done) <= 2  # the chunk that was under way when the page heard of it
    browser_lm.load(n_ctx=512)
    assert browser_lm.call("generate", {"prompt": "Hello", "max_tokens": 2, "ignore_eos": True})["ids"]


def test_cancelled_prompt_stops_at_the_next_submit_and_the_model_works(loaded_lm):
    lm = loaded_lm.lm

    async def cancelled():
        args = {"prompt": [504] * 400, "max_tokens": 5, "ignore_eos": True}
        before = (await lm.call("stats"))["stats"]["submits"]
        running = asyncio.ensure_future(lm.call("generate", args))
        await asyncio.sleep(1)
        await lm._cancel(max(lm._calls))
        result = await running
        return result, result["stats"]["submits"] - before

    result, submits = loaded_lm.run(cancelled())
    assert (result["stop_reason"], result["ids"]) == ("cancelled", [])
    assert submits < 400 / 4 / 2
    again = loaded_lm.call("generate", {"prompt": "Hello", "max_tokens": 2, "ignore_eos": True})
    assert len(again["ids"]) == 2
