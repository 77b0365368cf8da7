"""Loading on a fake device: what is uploaded, planned, refused and freed."""

import asyncio
import re
from itertools import pairwise

import pytest
import raw_gguf
from fake_gpu import FakeGpu
from fake_model import TINY, load, run
from tiny_gguf import tiny_model

import pagelm
from pagelm import loading
from pagelm.cancel import Cancel
from pagelm.device import CHUNK_BYTES, Limits
from pagelm.errors import (
    ArchError,
    Cancelled,
    DeviceError,
    LimitError,
    PagelmError,
)
from pagelm.gguf import read_gguf
from pagelm.hparams import hparams_from
from pagelm.loading import layout_of
from pagelm.sources import MemorySource
from pagelm.weights import padded


def test_upload_brings_every_tensor_in_chunks_of_at_most_16_mib():
    gpu = FakeGpu()
    model = load(gpu)
    assert gpu.chunks and all(c.nbytes <= CHUNK_BYTES for c in gpu.chunks)
    assert sum(p.nbytes for c in gpu.chunks for p in c.pieces) == sum(
        t.nbytes for t in model.gguf.tensors.values()
    )
    ranges = sorted((p.at, p.at + p.nbytes) for c in gpu.chunks for p in c.pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))  # nothing twice
    for name, tensor in model.gguf.tensors.items():
        at = model.gguf.at(tensor)
        assert sum(e - s for s, e in ranges if at <= s and e <= at + tensor.nbytes) == tensor.nbytes, name
    vector = next(b for b in gpu.buffers if b.label == "output_norm.weight")
    at = model.gguf.at(model.gguf.tensors["output_norm.weight"])
    assert bytes(vector.data) == TINY[at : at + vector.size]


def test_memory_plan_is_what_is_allocated():
    gpu = FakeGpu()
    model = load(gpu, n_ctx=100)
    assert model.plan.total - model.plan.staging == gpu.memory_used == model.memory_used
    assert model.plan.weights >= sum(t.nbytes for t in model.gguf.tensors.values())
    assert model.plan.kv_cache == 2 * model.hparams.n_layer * 100 * model.hparams.n_embd_kv * 4


def test_memory_budget_is_enforced_before_the_first_buffer():
    plan = load(FakeGpu()).plan
    gpu = FakeGpu(Limits(memory_budget=plan.total - 1))
    with pytest.raises(LimitError, match="the budget is") as error:
        load(gpu)
    assert (error.value.needed, error.value.available) == (plan.total, plan.total - 1)
    assert gpu.buffers_created == 0
    assert load(FakeGpu(Limits(memory_budget=plan.total))).plan.total == plan.total


def test_an_f16_cache_takes_half_the_memory_and_no_other_buffer_changes():
    wide, gpu = load(FakeGpu()).plan, FakeGpu()
    gpu.shader_f16 = True
    model = load(gpu, cache_type="f16")
    assert (wide.cache_type, model.plan.cache_type) == ("f32", "f16")
    assert model.plan.kv_cache == wide.kv_cache // 2 > 0
    assert model.plan.total == wide.total - wide.kv_cache // 2
    assert gpu.memory_used == model.plan.total - model.plan.staging
    asks = [kernel for kernel in gpu.kernels if "enable f16;" in kernel.source]
    assert {kernel.name.partition(".")[0] for kernel in asks} == {"qkv", "attention"}  # no peeking, no more
    (nbytes,) = {buffer.size for buffer in gpu.buffers if "_cache." in buffer.label}
    for kernel in asks:  # arrays as long as the buffers, so that compilers check bounds against constants
        lengths = re.findall(r"[kv]_cache: array<Cached(4?), (\d+)>;", kernel.source)
        assert [int(n) * (8 if four else 2) for four, n in lengths] == [nbytes, nbytes]


def test_without_f16_in_shaders_an_f16_cache_is_refused_before_anything_is_read():
    gpu = FakeGpu()
    with pytest.raises(
        DeviceError, match=r"the adapter fake \(none\) has no f16 .*shader-f16\); allowed here: f32"
    ):
        load(gpu, b"not even a header", cache_type="f16")
    assert gpu.buffers_created == 0 and gpu.kernels == []


@pytest.mark.parametrize("cache_type", ["q8_0", None, 16, ""])
def test_cache_types_that_there_are_not_are_named(cache_type):
    with pytest.raises(PagelmError, match=f"cache_type is {cache_type!r}; allowed: f32, f16"):
        load(FakeGpu(), cache_type=cache_type)
    with pytest.raises(PagelmError, match=f"cache_type is {cache_type!r}; allowed: f32, f16"):
        run(pagelm.load(TINY, cache_type=cache_type))


@pytest.mark.parametrize("quant", ["Q4_1", "Q4_0", "Q8_0"])
def test_f32_scales_are_kept_where_they_fit_and_the_plan_tells_both_sizes(quant, monkeypatch):
    """Both by hand: 2 bytes more for each scale of 32 weights."""
    gguf = asyncio.run(read_gguf(MemorySource(tiny_model(quant=quant))))
    hp = hparams_from(gguf)
    each = 2 * (2 if quant == "Q4_1" else 1)
    more = sum(
        each * padded(t.shape[0]) * t.shape[1] // 32 for t in gguf.tensors.values() if len(t.shape) == 2
    )

    def plan(scales, **limits):
        return layout_of(hp, gguf, Limits(**limits), 100, scales)[-1]

    narrow, wide = plan("f16"), plan("f32")
    assert (narrow.scales, wide.scales) == ("f16", "f32")
    assert wide.weights - narrow.weights == more
    for told in (narrow, wide):
        assert (told.weights_f16_scales, told.weights_f32_scales) == (narrow.weights, wide.weights)
    # past the adapter's memory, or past what a model should take: as the file has them
    assert plan("f32", memory_budget=wide.total).scales == "f32"
    assert plan("f32", memory_budget=wide.total - 1).scales == "f16"
    used = wide.total - wide.staging - wide.kv_cache
    monkeypatch.setattr(loading, "MOST_BESIDES", used - loading.MOST_PER_FILE_BYTE * gguf.size)
    assert plan("f32").scales == "f32"
    monkeypatch.setattr(loading, "MOST_BESIDES", used - loading.MOST_PER_FILE_BYTE * gguf.size - 1)
    assert plan("f32").scales == "f16"


def test_a_context_past_the_binding_limit_is_refused_with_both_numbers():
    data = tiny_model(n_vocab=400)
    with pytest.raises(LimitError, match="smaller context") as error:
        load(FakeGpu(Limits(max_storage_buffer_binding_size=30_000)), data, n_ctx=256)
    assert error.value.needed > error.value.available == 30_000


def test_tensors_past_the_binding_limit_become_slabs():
    gpu = FakeGpu(Limits(max_storage_buffer_binding_size=20_000))
    model = load(gpu, n_ctx=16)
    names = [b.label for b in gpu.buffers]
    assert "token_embd#1" in names and "token_embd#1.scales" in names
    slabs = [op for op in model._decode.ops if op.label == "embed"]
    starts = [(op.overrides["ROW0"], op.overrides["N_ROWS"]) for op in slabs]
    assert sum(n for _, n in starts) == model.hparams.n_vocab
    assert [start for start, _ in starts] == [32 * (i * starts[0][1] // 32) for i in range(len(starts))]
    assert [label for label in model.labels() if label == "embed"] == ["embed"]


def test_loading_is_timed_as_a_whole_and_by_its_two_long_parts():
    gpu = FakeGpu()
    timing = load(gpu).timing
    for part in ("weights_s", "compile_s"):
        assert 0 < timing.as_dict()[part] == getattr(timing, part) < timing.load_s


def test_kernels_begin_to_compile_before_the_first_weights_are_read():
    gpu = FakeGpu()
    known: list[int] = []
    gpu.on_upload = lambda: known.append(len(gpu.kernels))
    load(gpu)
    assert known[0] > len({op.variant.quant for op in load(FakeGpu())._decode.ops} - {None})


def test_cancel_while_loading_frees_everything():
    cancel = Cancel()
    gpu = FakeGpu()
    gpu.on_upload = cancel.cancel
    with pytest.raises(Cancelled, match="cancelled while loading the weights"):
        load(gpu, cancel=cancel)
    assert gpu.memory_used == 0
    assert len(gpu.chunks) == 1
    assert load(gpu).memory_used == gpu.memory_used > 0


def test_unsupported_tensor_types_are_named():
    f = raw_gguf.llama_tensor("blk.0.ffn_down.weight", kind=24)
    with pytest.raises(
        ArchError, match=r"blk.0.ffn_down.weight has type I8; supported: F32, F16, Q4_0, Q4_1"
    ):
        load(FakeGpu(), f.data())


@pytest.mark.parametrize(
    "sizes", [dict(n_ff=1), dict(n_ff=1, n_embd=1, n_head=1, n_head_kv=1, n_embd_head=4)]
)
def test_the_smallest_sizes_run(sizes):
    model = load(FakeGpu(), tiny_model(n_vocab=400, quant="F32", **sizes))
    assert len(run(model.generate(list(range(5, 35)), 3, ignore_eos=True).run())) == 3


@pytest.mark.parametrize("n_ctx", [0, -1, 10**6, 1.5, 16.0, "512", True, [16]])
def test_context_sizes_the_model_cannot_have_are_refused(n_ctx):
    gpu = FakeGpu()
    with pytest.raises(
        PagelmError, match=re.escape(f"n_ctx is {n_ctx!r}; allowed: an integer from 1 to 256")
    ):
        load(gpu, n_ctx=n_ctx)
    assert gpu.buffers_created == 0


def test_two_models_share_a_device_and_closing_one_leaves_the_other():
    gpu = FakeGpu()
    alone = load(gpu).memory_used
    other = load(gpu)
    assert gpu.memory_used == 2 * alone
    run(other.close())
    run(other.close())
    assert (gpu.memory_used, gpu.closed) == (alone, False)


def test_a_device_that_load_was_given_is_left_open_and_its_own_is_closed(monkeypatch):
    import pagelm.device.default

    given, own = FakeGpu(), FakeGpu()

    async def open_gpu(**options):
        return own

    monkeypatch.setattr(pagelm.device.default, "open_gpu", open_gpu)
    for gpu in (given, None):
        model = run(pagelm.load(TINY, gpu=gpu))
        run(model.close())
    assert (given.closed, own.closed) == (False, True)
    assert given.memory_used == own.memory_used == 0


def test_a_header_alone_is_not_read_past():
    class Counting(MemorySource):
        most = 0

        async def read(self, at, nbytes):
            self.most = max(self.most, at + nbytes)
            return await super().read(at, nbytes)

    source = Counting(TINY + bytes(4 << 20))
    gguf = run(read_gguf(source))
    assert source.most <= max(gguf.data_offset + (1 << 20), 1 << 20)


@pytest.mark.parametrize("budget", [0, -5, 1.5, True, "1M"])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(PagelmError, match=f"memory_budget is {budget!r}; allowed: an integer from 1"):
        run(pagelm.load(TINY, memory_budget=budget))


def test_a_budget_beside_a_device_is_refused():
    with pytest.raises(PagelmError, match="memory_budget and gpu exclude each other"):
        run(pagelm.load(TINY, gpu=FakeGpu(), memory_budget=1 << 30))
