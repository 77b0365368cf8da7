"""Order, counts and ends of loading and generating, on a fake device: no adapter needed."""

import asyncio
import re
import time
from array import array
from itertools import pairwise

import numpy as np
import pytest
from fake_gpu import FakeGpu
from tiny_gguf import tiny_model

import pagelm
from pagelm.cancel import Cancel
from pagelm.device import CHUNK_BYTES, Limits
from pagelm.engine import NO_TOKEN
from pagelm.errors import (
    ArchError,
    BusyError,
    Cancelled,
    ContextFull,
    DeviceError,
    LimitError,
    NumericError,
    PagelmError,
    PromptError,
)
from pagelm.gguf import read_gguf
from pagelm.loading import load_model
from pagelm.sources import MemorySource

TINY = tiny_model(n_vocab=400)
EOS = 2  # <|im_end|> in the tiny vocabulary


def load(gpu, data=TINY, **kw):
    return asyncio.run(load_model(gpu, MemorySource(data), **kw))


def run(coroutine):
    return asyncio.run(coroutine)


async def turns(n):
    """Let the other tasks go on from `n` of their waits."""
    for _ in range(n):
        await asyncio.sleep(0)


def fed(gpu):
    """The state's words as they were last written: n_past, n_tokens, …, ids."""
    return list(memoryview(next(b for b in gpu.buffers if b.label == "state").data).cast("I"))


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


def test_one_submit_per_token_and_nothing_created():
    gpu = FakeGpu()
    model = load(gpu)
    created, kernels = gpu.buffers_created, len(gpu.kernels)
    gpu.log.clear()
    generation = model.generate([5, 6, 7], 10, ignore_eos=True)
    run(generation.run())
    assert generation.ids == [36 + i for i in range(10)]
    assert generation.stop_reason == "length"
    assert gpu.log.count("submit+read") == 10  # one for the prompt, nine for the tokens after the first
    assert (gpu.buffers_created, len(gpu.kernels)) == (created, kernels)
    assert model.stats.buffers_created_in_decode == 0
    assert model.stats.tokens == 10
    assert model.timing.decode_tokens == 9
    assert model.position == 3 + 9


def test_next_submit_goes_out_before_the_previous_token_comes_back():
    gpu = FakeGpu()
    model = load(gpu)
    gpu.log.clear()
    run(model.generate([5], 4, ignore_eos=True).run())
    assert gpu.log == [
        "submit+read",
        "submit+read",
        "value 0",
        "submit+read",
        "value 1",
        "submit+read",
        "value 2",
        "value 3",
    ]


def test_end_token_is_not_emitted_and_costs_at_most_one_submit_more():
    gpu = FakeGpu(tokens=lambda i: EOS if i == 3 else 36 + i)
    model = load(gpu)
    gpu.log.clear()
    generation = model.generate([5], 50)
    run(generation.run())
    assert generation.ids == [36, 37, 38]
    assert generation.stop_reason == "eos"
    assert gpu.log.count("submit+read") <= 1 + 3 + 1
    assert model.position == 1 + 2
    gpu.log.clear()
    again = model.generate([5], 2, ignore_eos=True)
    run(again.run())
    assert again.ids == [41, 42]  # the read-back that was still under way was let through first


def test_times_of_a_step_are_parts_of_decode(monkeypatch):
    now = 0.0

    def passes(seconds, value=None):
        nonlocal now
        now += seconds
        return value

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    gpu = FakeGpu(tokens=lambda i: passes(1.0, 40 + i))
    model = load(gpu)
    gpu.on_submit = lambda: passes(4.0)
    run(model.generate([5], 4, ignore_eos=True).run())
    timing = model.timing
    assert (timing.prefill_s, timing.prefill_tokens) == (4 + 4 + 1, 1)  # the second submit goes out ahead
    assert (timing.decode_s, timing.wait_s, timing.submit_s, timing.decode_tokens) == (2 * 4 + 3, 3, 2 * 4, 3)
    told = timing.as_dict()
    assert told["record_ms_per_token"] + told["submit_ms_per_token"] <= told["host_ms_per_token"]

    async def left():  # in the middle of a step, after its submit
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        running = asyncio.ensure_future(anext(generation, ""))
        await turns(1)
        model.reset()
        assert await running == ""
        return [step async for step in model.trace([5], 3)]

    run(left())
    assert (timing.prefill_s, timing.decode_s, timing.wait_s, timing.submit_s) == (9, 0, 0, 0)


def test_emit_can_stop():
    model = load(FakeGpu())
    seen = []
    generation = model.generate([5], 50, emit=lambda piece: seen.append(piece) or len(seen) < 3)
    run(generation.run())
    assert generation.stop_reason == "cancelled"
    assert len(seen) == 3
    assert generation.text == "".join(seen)


def test_cancel_while_decoding_leaves_a_model_that_works():
    gpu = FakeGpu()
    model = load(gpu)
    cancel = Cancel()
    generation = model.generate([5], 50, cancel=cancel, emit=lambda piece: cancel.cancel())
    run(generation.run())
    assert (generation.stop_reason, len(generation.ids)) == ("cancelled", 1)
    assert len(run(model.generate([5], 3, ignore_eos=True).run())) > 0


def test_cancel_while_reading_the_prompt_stops_after_one_submit():
    gpu = FakeGpu()
    model = load(gpu)
    cancel = Cancel()
    gpu.on_submit = cancel.cancel
    gpu.log.clear()
    generation = model.generate(list(range(100)), 5, cancel=cancel)
    assert run(generation.run()) == ""
    assert generation.stop_reason == "cancelled"
    assert gpu.log == ["submit"]
    assert model.position == 0
    gpu.on_submit = lambda: None
    assert run(model.generate([5], 3, ignore_eos=True).run())


def test_cancel_while_loading_frees_everything():
    cancel = Cancel()
    gpu = FakeGpu()
    gpu.on_upload = cancel.cancel
    with pytest.raises(Cancelled, match="cancelled while loading the weights"):
        load(gpu, cancel=cancel)
    assert gpu.memory_used == 0
    assert len(gpu.chunks) == 1
    assert load(gpu).memory_used == gpu.memory_used > 0


def test_full_context_ends_generation():
    model = load(FakeGpu(), n_ctx=8)
    generation = model.generate([5, 6, 7], 50, ignore_eos=True)
    run(generation.run())
    assert generation.stop_reason == "context"
    assert len(generation.ids) == 6  # positions 3 … 7 are fed; the last token needs none
    assert model.position == 8


def test_prompt_longer_than_the_context_is_refused():
    model = load(FakeGpu(), n_ctx=8)
    with pytest.raises(
        ContextFull, match="9 tokens after 0 in the cache do not fit the context of 8"
    ) as error:
        run(model.generate(list(range(9)), 5).run())
    assert error.value.n_ctx == 8
    generation = model.generate(list(range(8)), 5, ignore_eos=True)
    run(generation.run())
    assert (generation.stop_reason, len(generation.ids)) == ("context", 1)


def test_append_goes_on_where_the_last_call_ended():
    gpu = FakeGpu()
    model = load(gpu)
    run(model.generate([5, 6], 4, ignore_eos=True).run())
    assert model.position == 2 + 3
    run(model.generate([9], 1, append=True, ignore_eos=True).run())
    assert fed(gpu)[:6] == [5, 2, 0, 0, 39, 9]
    assert model.position == 7
    model.reset()
    assert model.position == 0


def test_a_newer_generation_ends_the_older_one():
    model = load(FakeGpu())

    async def both():
        older = model.generate([5], 50, ignore_eos=True)
        await anext(older)
        newer = model.generate([6], 2, ignore_eos=True)
        await newer.run()
        assert [piece async for piece in older] == []
        return older, newer

    older, newer = run(both())
    assert (older.stop_reason, newer.stop_reason) == ("cancelled", "length")


@pytest.mark.parametrize("late", [50, EOS, NO_TOKEN])
@pytest.mark.parametrize("ticks", range(1, 9))
def test_a_generation_ended_in_the_middle_of_a_step_takes_nothing_more(ticks, late):
    script = {4: late}  # on its way at the last of these ticks
    gpu = FakeGpu(tokens=lambda i: script.get(i, 36 + i))
    model = load(gpu)
    prompt = list(range(5, 65))

    async def both():
        older = model.generate(prompt, 50)
        running = asyncio.ensure_future(older.run())
        await turns(ticks)
        assert not older.stop_reason
        newer = model.generate([9], 1, append=True, ignore_eos=True)
        ids, position, submits = list(older.ids), model.position, len(gpu.log)
        assert await running == older.text == model.tokenizer.decode(ids)
        assert (older.ids, older.stop_reason, model.position) == (ids, "cancelled", position)
        assert not any(entry.startswith("submit") for entry in gpu.log[submits:])
        script.clear()
        await newer.run()
        return ids, position, newer

    ids, position, newer = run(both())
    assert newer.prompt_ids == [*ids[-1:], 9]
    assert fed(gpu)[:2] == [position, len(newer.prompt_ids)]
    assert model.position == position + len(newer.prompt_ids)
    # in the cache: the prompt, if it was read to its end, and all ids but the last
    assert position == len(prompt) + max(0, len(ids) - 1) or (position, ids) == (0, [])


@pytest.mark.parametrize("ticks", range(9))
def test_a_generation_abandoned_in_the_middle_of_a_step_takes_nothing_more(ticks):
    model = load(FakeGpu())

    async def both():
        generation = model.generate(list(range(5, 35)), 50, ignore_eos=True)
        running = asyncio.ensure_future(generation.run())
        await turns(ticks)
        generation.abandon()
        ids, position = list(generation.ids), model.position
        await running
        assert (generation.ids, generation.stop_reason) == (ids, "cancelled")
        assert model.position == position in (0, 30 + max(0, len(ids) - 1))

    run(both())


@pytest.mark.parametrize("ticks", range(9))
def test_reset_ends_an_open_generation_in_the_middle_of_a_step_too(ticks):
    gpu = FakeGpu()
    model = load(gpu)
    run(model.generate([5, 6], 3, ignore_eos=True).run())

    async def both():
        generation = model.generate(list(range(5, 35)), 50, append=True, ignore_eos=True)
        running = asyncio.ensure_future(generation.run())
        await turns(ticks)
        model.reset()
        ids = list(generation.ids)
        await running
        assert (generation.ids, generation.stop_reason) == (ids, "cancelled")
        assert model.position == 0
        await model.generate([9], 1, append=True, ignore_eos=True).run()

    run(both())
    assert fed(gpu)[:5] == [0, 1, 0, 0, 9]


def test_reset_between_two_pieces_ends_the_generation():
    model = load(FakeGpu())

    async def both():
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        model.reset()
        assert [piece async for piece in generation] == []
        return generation

    assert run(both()).stop_reason == "cancelled"
    assert model.position == 0
    assert len(run(model.generate([9], 3, ignore_eos=True).run())) > 0


@pytest.mark.parametrize("ticks", range(1, 5))
def test_reset_in_the_middle_of_another_pass_ends_it_with_an_error(ticks):
    model = load(FakeGpu())

    async def both():
        running = asyncio.ensure_future(model.prefill_logits(list(range(5, 65))))
        await turns(ticks)
        model.reset()
        with pytest.raises(BusyError, match="the context was reset"):
            await running

    run(both())
    assert model.position == 0
    run(model.prefill_logits([5]))


def test_prefill_logits_ends_an_open_generation():
    model = load(FakeGpu())

    async def both():
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        await model.prefill_logits([9] * 40)
        return generation, [piece async for piece in generation]

    generation, rest = run(both())
    assert (generation.stop_reason, rest) == ("cancelled", [])
    assert model.position == 40


def test_trace_ends_an_open_generation():
    model = load(FakeGpu())

    async def both():
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        ids = [token async for token, _ in model.trace([9] * 40, 3)]
        return generation, ids, [piece async for piece in generation]

    generation, ids, rest = run(both())
    assert (generation.stop_reason, rest, len(ids)) == ("cancelled", [], 3)
    assert model.position == 40 + 2


def test_a_trace_that_nobody_goes_on_with_blocks_nothing():
    model = load(FakeGpu())

    async def both():
        left = model.trace([5, 6], 50)  # kept: as if the collector never came
        async for _ in left:
            break
        assert len(await model.peek("logits")) == 400
        assert len(await model.generate([5], 3, ignore_eos=True).run()) == 3
        return left

    run(both())


@pytest.mark.parametrize("other", ["generate", "prefill_logits", "trace", "reset", "close"])
def test_a_trace_whose_cache_another_call_took_says_so(other):
    gpu = FakeGpu()
    model = load(gpu)

    async def both():
        steps = model.trace([5, 6], 50)
        await anext(steps)
        if other == "generate":
            await model.generate([7], 3, append=True).run()
        elif other == "prefill_logits":
            await model.prefill_logits([7])
        elif other == "trace":
            await anext(model.trace([7], 2))
        elif other == "reset":
            model.reset()
        else:
            await model.close()
        position, submits = model.position, len(gpu.log)
        error, message = (PagelmError, "closed") if other == "close" else (BusyError, "taken by another call")
        with pytest.raises(error, match=message):
            await anext(steps)
        assert (model.position, len(gpu.log)) == (position, submits)

    run(both())


def test_two_calls_at_once_are_refused():
    model = load(FakeGpu())

    async def both():
        running = asyncio.ensure_future(model.generate([5], 50, ignore_eos=True).run())
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await model.peek("x")
        await running

    run(both())


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ("", "empty"),
        ([400], "token id 400 at index 0 of the prompt; allowed: integers from 0 to 399"),
        ([5, -1], "token id -1 at index 1"),
        ([5, 1.0], r"token id 1\.0 at index 1"),
        (["5"], "token id '5'"),
        ([True], "token id True"),
        ([None], "token id None"),
        ([[5]], r"token id \[5\]"),
        (np.array([5.0]), r"token id .*5\.0"),
        (np.array([[5, 6]]), "token id array"),
        (b"The capital", "the prompt is b'The capital'; allowed: text, or a list of token ids"),
        (bytearray(b"abc"), "the prompt is bytearray"),
        (memoryview(b"abc"), "the prompt is <memory"),
        ({5: 6}, "the prompt is {5: 6}"),
        ({5, 6}, "the prompt is {5, 6}"),
        (5, "the prompt is 5"),
        (None, "the prompt is None"),
        (["x" * 10**6], "^.{,200}$"),
    ],
    ids=str,
)
@pytest.mark.parametrize("append", [False, True])
def test_prompts_that_are_neither_text_nor_ids_are_refused(prompt, message, append):
    gpu = FakeGpu()
    model = load(gpu)
    run(model.generate([5, 6], 2, ignore_eos=True).run())
    gpu.log.clear()
    for call in (
        model.generate(prompt, 5, append=append).run(),
        model.prefill_logits(prompt, append=append),
        anext(model.trace(prompt, 1)),
    ):
        with pytest.raises(PromptError, match=message):
            run(call)
    assert (gpu.log, model.position) == ([], 3)


@pytest.mark.parametrize(
    ("n", "forced", "message"),
    [
        (0, None, "n is 0; allowed: an integer from 1"),
        (-3, [], "n is -3; allowed"),
        (1.0, None, r"n is 1\.0; allowed"),
        (True, None, "n is True; allowed"),
        ("2", None, "n is '2'; allowed"),
        (3, [7], "forced has 1 ids; allowed: 2 or more for 3 steps"),
        (3, [7, 400], "token id 400 at index 1 of forced; allowed: integers from 0 to 399"),
        (3, [7, 8, -1], "token id -1 at index 2 of forced"),
        (3, [7.0, 8], r"token id 7\.0 at index 0 of forced"),
        (3, "789", "forced is '789'; allowed: a list of token ids"),
        (3, b"789", "forced is b'789'; allowed: a list of token ids"),
        (3, 7, "forced is 7; allowed: a list of token ids"),
    ],
)
def test_a_trace_of_nonsense_is_refused_before_any_work(n, forced, message):
    gpu = FakeGpu()
    model = load(gpu)

    async def both():
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        position, submits = model.position, len(gpu.log)
        with pytest.raises(PromptError, match=message):
            await anext(model.trace([5], n, forced))
        assert (model.position, len(gpu.log), generation.stop_reason) == (position, submits, "")

    run(both())


@pytest.mark.parametrize("forced", [[7, 8], [7, 8, 9], np.array([7, 8]), None])
def test_a_trace_feeds_the_forced_ids(forced):
    gpu = FakeGpu()
    model = load(gpu)

    async def words():
        return [fed(gpu)[4] async for _ in model.trace([5], 3, forced)]

    assert run(words()) == ([5, 7, 8] if forced is not None else [5, 5, 5])  # the GPU writes its own choice


def test_a_prompt_that_is_refused_leaves_the_context():
    model = load(FakeGpu(), n_ctx=8)
    run(model.generate([5, 6], 2, ignore_eos=True).run())
    for call in (
        lambda: model.generate([5] * 9, 5).run(),
        lambda: model.generate([5] * 6, 5, append=True).run(),  # and the last token, not yet in the cache
        lambda: model.prefill_logits([5] * 9),
        lambda: anext(model.trace([5] * 6, 4)),
    ):
        with pytest.raises(ContextFull, match="9 tokens after 0|7 tokens after 3"):
            run(call())
        assert model.position == 3
    generation = model.generate([9], 2, append=True, ignore_eos=True)
    run(generation.run())
    assert generation.prompt_ids == [37, 9]
    run(anext(model.trace([5] * 6, 3)))


@pytest.mark.parametrize("ids", [(5, 6), range(5, 7), array("I", [5, 6]), np.array([5, 6]), iter([5, 6])])
def test_ids_may_come_in_any_kind_of_list(ids):
    model = load(FakeGpu())
    generation = model.generate(ids, np.int32(2), ignore_eos=True)
    run(generation.run())
    assert generation.prompt_ids == [5, 6] and {type(i) for i in generation.prompt_ids} == {int}
    assert len(generation.ids) == 2


@pytest.mark.parametrize("max_tokens", [0, -1, 1.5, 2.0, "3", True, None])
def test_counts_of_tokens_that_are_none_are_refused(max_tokens):
    generation = load(FakeGpu()).generate([5], max_tokens)
    with pytest.raises(PromptError, match=f"max_tokens is {max_tokens!r}; allowed: an integer from 1"):
        run(generation.run())
    assert generation.stop_reason == "error"


@pytest.mark.parametrize("n", [-1, 1.5, "3", True])
def test_counts_of_values_that_are_none_are_refused(n):
    model = load(FakeGpu())
    run(model.prefill_logits([5]))
    with pytest.raises(PagelmError, match=f"n is {n!r}; allowed: an integer from 0"):
        run(model.peek("logits", n))


def test_all_nan_logits_are_an_error_and_not_token_4294967295():
    model = load(FakeGpu(tokens=lambda i: 0xFFFFFFFF if i == 2 else 40))
    generation = model.generate([5], 50)
    with pytest.raises(NumericError, match="every logit at position"):
        run(generation.run())
    assert generation.ids == [40, 40]
    assert generation.stop_reason == "error"


def test_peek_and_stop_name_what_there_is():
    model = load(FakeGpu())
    with pytest.raises(PagelmError, match="nothing named 'x'"):
        run(model.peek("x"))
    run(model.prefill_logits([5, 6]))
    assert len(run(model.peek("x", 5))) == 5
    assert len(run(model.peek("logits"))) == 400
    with pytest.raises(PagelmError, match="there is: x, h, o, last, q, att, k, v, gate, up, act, logits"):
        run(model.peek("nope"))
    with pytest.raises(PagelmError, match="no step is labelled 'blk.9.rope_q'"):
        run(model.prefill_logits([5], stop="blk.9.rope_q"))


def test_unsupported_tensor_types_are_named():
    data = tiny_model(n_vocab=400, quant="Q5_0")
    with pytest.raises(ArchError, match=r"has type Q5_0; supported: F32, F16, Q4_0, Q4_1, Q8_0"):
        load(FakeGpu(), data)


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


def test_a_closed_model_says_so():
    model = load(FakeGpu())
    run(model.close())
    with pytest.raises(PagelmError, match="closed"):
        run(model.generate([5], 3).run())
    with pytest.raises(PagelmError, match="closed"):
        run(model.peek("x"))


@pytest.mark.parametrize("ticks", range(9))
def test_closing_ends_an_open_generation_in_the_middle_of_a_step_too(ticks):
    gpu = FakeGpu()
    model = load(gpu)

    async def both():
        await anext(model.generate([5], 50, ignore_eos=True))  # leaves a submit under way
        generation = model.generate(list(range(5, 35)), 50, ignore_eos=True)
        running = asyncio.ensure_future(generation.run())
        await turns(ticks)
        await model.close()
        ids = list(generation.ids)
        assert await running == generation.text
        assert [piece async for piece in generation] == []
        assert (generation.ids, generation.stop_reason) == (ids, "cancelled")

    run(both())
    assert gpu.memory_used == 0


@pytest.mark.parametrize("ticks", range(1, 6))
@pytest.mark.parametrize("call", ["prefill_logits", "trace", "peek"])
def test_closing_in_the_middle_of_another_call_ends_it_with_an_error(call, ticks):
    gpu = FakeGpu()
    model = load(gpu)

    async def read(src, offset, nbytes):
        await turns(10)
        if src.freed:
            raise DeviceError("the buffer was destroyed")
        return bytes(nbytes)

    async def work():
        if call == "trace":
            return [step async for step in model.trace(list(range(5, 35)), 3)]
        return await (model.peek("x") if call == "peek" else model.prefill_logits(list(range(5, 65))))

    async def both():
        await anext(model.generate([5], 50, ignore_eos=True))  # leaves a submit under way
        gpu.read = read
        running = asyncio.ensure_future(work())
        await turns(ticks)
        await model.close()
        with pytest.raises(PagelmError, match="the model was closed; load it again"):
            await running

    run(both())
    assert gpu.memory_used == 0


def test_closing_frees_everything_on_a_lost_device_too():
    gpu = FakeGpu()
    model = load(gpu)

    def lost(i):
        raise LimitError("the GPU has no memory left")

    async def both():
        generation = model.generate([5], 50, ignore_eos=True)
        await anext(generation)
        gpu._tokens = lost
        await model.close()
        return generation

    assert run(both()).stop_reason == "cancelled"
    assert gpu.memory_used == 0


def test_labels_follow_the_pass():
    model = load(FakeGpu())
    labels = model.labels()
    assert labels[:5] == ["embed", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"]
    assert labels[-4:] == ["blk.1.ffn_residual", "last_row", "output_norm", "output"]


def test_a_header_alone_is_not_read_past():
    class Counting(MemorySource):
        most = 0

        async def read(self, at, nbytes):
            self.most = max(self.most, at + nbytes)
            return await super().read(at, nbytes)

    source = Counting(TINY + bytes(4 << 20))
    gguf = run(read_gguf(source))
    assert source.most <= max(gguf.data_offset + (1 << 20), 1 << 20)


def test_append_goes_on_after_a_trace_with_the_id_it_chose_last():
    gpu = FakeGpu()
    model = load(gpu)

    async def steps():
        return [token async for token, _ in model.trace([5, 6], 3)]

    chosen = run(steps())
    generation = model.generate([9], 1, append=True, ignore_eos=True)
    run(generation.run())
    assert generation.prompt_ids == [chosen[-1], 9]
    assert model.position == 2 + 2 + 2


@pytest.mark.parametrize("budget", [0, -5, 1.5, True, "1M"])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(PagelmError, match=f"memory_budget is {budget!r}; allowed: an integer from 1"):
        run(pagelm.load(TINY, memory_budget=budget))


def test_a_budget_beside_a_device_is_refused():
    with pytest.raises(PagelmError, match="memory_budget and gpu exclude each other"):
        run(pagelm.load(TINY, gpu=FakeGpu(), memory_budget=1 << 30))
