"""Order, counts and ends of generating, on a fake device: no adapter needed."""

import asyncio
import time
from array import array

import numpy as np
import pytest
from fake_gpu import FakeGpu
from fake_model import EOS, fed, load, run, turns

from pagelm.cancel import Cancel
from pagelm.errors import (
    ContextFull,
    NumericError,
    PagelmError,
    PromptError,
)


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


def test_labels_follow_the_pass():
    model = load(FakeGpu())
    labels = model.labels()
    assert labels[:5] == ["embed", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"]
    assert labels[-4:] == ["blk.1.ffn_residual", "last_row", "output_norm", "output"]


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
