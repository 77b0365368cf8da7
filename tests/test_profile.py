"""Profiling: what is timed, what a dispatch has to do, and the state that is left."""

import asyncio

import numpy as np
import pytest
from fake_gpu import FakeGpu
from tiny_gguf import tiny_model

from pagelm.cancel import Cancel
from pagelm.device.native import NativeGpu
from pagelm.errors import Cancelled, ContextFull, DeviceError, PromptError
from pagelm.kernels import Variant
from pagelm.loading import load_model
from pagelm.profile import profile
from pagelm.program import Op
from pagelm.sources import MemorySource
from pagelm.work import work_of

PROMPT = [(i * 37 + 11) % 310 for i in range(45)]


def loaded(gpu=None, n_ctx=128, **shape):
    async def load():
        source = MemorySource(tiny_model(**shape))
        return await load_model(gpu or FakeGpu(tokens=lambda i: 40), source, n_ctx=n_ctx)

    return asyncio.run(load())


def test_every_dispatch_and_every_token_is_timed():
    model = loaded()
    report = asyncio.run(profile(model, PROMPT, tokens=5, rounds=2))
    prompt, decode = report["prompt"], report["decode"]
    assert (prompt["n_past"], prompt["n_tokens"]) == (13, 32)  # the last 32 of 45
    assert (decode["n_past"], decode["n_tokens"], decode["first"]) == (47, 1, 45)
    for part, program, n in ((prompt, model._prompt, 2), (decode, model._decode, 5)):
        assert [op["label"] for op in part["ops"]] == [op.label for op in program.ops]
        assert len(part["passes"]) == len(part["whole"]) == n
        # the fake's step i takes 1000 + i ns
        for spans in part["passes"]:
            assert [b - a for a, b in spans] == [1000 + i for i in range(len(program.ops))]
        took = sum(1000 + i for i in range(len(program.ops)))
        assert [b - a for a, b in part["whole"]] == [took] * n
    assert min(a for spans in prompt["passes"] for a, _ in spans) == 0
    assert report["depth"] == 2 and report["resolution_ns"] == 1
    assert report["peaks"]["copy_bytes_s"] > 0


def test_a_rounded_clock_shows():
    class Rounded(FakeGpu):
        def timed(self, recording, *, whole=False):
            spans = super().timed(recording, whole=whole)
            spans.spans = [(a >> 9 << 9, b >> 9 << 9) for a, b in spans.spans]
            return spans

    report = asyncio.run(profile(loaded(Rounded()), PROMPT, tokens=5))
    assert report["resolution_ns"] == 512


def test_the_context_is_empty_afterwards_and_the_model_works_on():
    model = loaded()
    asyncio.run(profile(model, PROMPT, tokens=4))
    assert model.position == 0
    assert asyncio.run(model.generate(PROMPT, max_tokens=3, ignore_eos=True).run())


def test_what_cannot_be_profiled_is_refused():
    model = loaded(n_ctx=64)
    with pytest.raises(PromptError, match="tokens is 1; allowed: an integer from 2"):
        asyncio.run(profile(model, PROMPT, tokens=1))
    with pytest.raises(PromptError, match="rounds is 0"):
        asyncio.run(profile(model, PROMPT, rounds=0))
    with pytest.raises(ContextFull, match="65 tokens"):
        asyncio.run(profile(model, PROMPT, tokens=20))
    asyncio.run(profile(model, PROMPT, tokens=19))
    model._gpu.timestamps = False
    with pytest.raises(DeviceError, match="timestamp-query"):
        asyncio.run(profile(model, PROMPT))


def test_it_can_be_cancelled_and_tells_how_far_it_is():
    model, cancel, seen = loaded(), Cancel(), []

    def progress(p):
        seen.append((p.phase, p.done, p.total))
        if p.done == 4:
            cancel.cancel()

    with pytest.raises(Cancelled):
        asyncio.run(profile(model, PROMPT, tokens=4, rounds=2, on_progress=progress, cancel=cancel))
    assert seen == [("profile", i, 18) for i in (1, 2, 3, 4)]
    seen.clear()
    asyncio.run(profile(model, PROMPT, tokens=4, rounds=2, on_progress=lambda p: seen.append(p.done)))
    assert seen == list(range(1, 19))


def test_work_is_what_the_formulas_say():
    """By hand, for the shapes of the tiny model: Q8_0, 64 columns, 2 of 4 heads of 16, 96 in the middle."""
    model = loaded(n_layer=1)
    hp, plan, sizes = model.hparams, model.plan, model._decode.sizes

    def work(label, n_past, n_tokens, program=model._decode):
        op = next(op for op in program.ops if op.label == label)
        return work_of(op, sizes, hp, plan, n_past, n_tokens)

    row = 64 + 2 * 2  # bytes of 64 weights: one each, and a scale of 2 bytes for 32
    embd, q, kv, ff = 4 * 64, 4 * 64, 4 * 32, 4 * 96  # bytes of a row of activations
    partials = sizes["partials"] // plan.n_batch
    angles = 4 * 16
    assert work("blk.0.attn_qkv", 10, 1) == (128 * row + embd + partials + angles + q + 2 * kv, 2 * 128 * 64)
    assert work("blk.0.swiglu", 10, 1) == (192 * row + embd + partials + ff, 2 * 192 * 64)
    down = 64 * (96 + 2 * 3)
    assert work("blk.0.ffn_residual", 10, 1) == (down + ff + embd + embd + partials + embd, 2 * 64 * 96)
    nbytes, flops = work("blk.0.attn_stretches", 10, 3, model._prompt)
    assert flops == 4 * 64 * (11 + 12 + 13)
    sums = 8 * 4  # a stretch has two numbers a head, and a row of values
    assert nbytes == 13 * 2 * kv + 3 * (q + q + sums)
    assert work("output", 10, 1)[1] == work("output", 10, 3, model._prompt)[1] == 2 * 320 * 64
    assert work("embed", 10, 1)[0] == row + embd + embd + partials + embd
    assert work("argmax", 10, 1) == (sizes["best"], 0)


def test_work_of_a_slab_counts_its_own_rows():
    model = loaded(n_layer=1)
    op = Op("output", Variant("logits", "Q8_0"), ("w", "s"), {"N_BLOCKS": 2, "N_ROWS": 96}, per_token=0)
    nbytes, flops = work_of(op, {"w": 96 * 64, "s": 96 * 4}, model.hparams, model.plan, 5, 8)
    assert (nbytes, flops) == (96 * 68, 2 * 96 * 64)


@pytest.mark.gpu
def test_on_a_device_times_are_in_order_and_the_ids_stay_the_same():
    async def main():
        gpu = await NativeGpu.open()
        model = await load_model(gpu, MemorySource(tiny_model()), n_ctx=128)
        run = model.generate(PROMPT, max_tokens=8, ignore_eos=True)
        await run.run()
        used = gpu.memory_used
        report = await profile(model, PROMPT, tokens=6, rounds=2)
        again = model.generate(PROMPT, max_tokens=8, ignore_eos=True)
        await again.run()
        assert report["decode"]["ids"] == run.ids[:7] and again.ids == run.ids
        assert gpu.memory_used == used
        await model.close()
        gpu.close()
        return report

    report = asyncio.run(main())
    for part in (report["prompt"], report["decode"]):
        for spans in part["passes"]:
            moments = np.array(spans).ravel()
            assert (np.diff(moments) >= 0).all() and moments[-1] > moments[0] >= 0
    wall_ns = report["decode"]["wall_s"] * 1e9
    assert 0 < sum(b - a for a, b in report["decode"]["whole"]) / 6 < wall_ns * 1.01
    assert all(peak > 1e8 for peak in report["peaks"].values())  # slower than any adapter ever was
