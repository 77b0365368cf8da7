"""Calls that come while another is open: who has the cache, who ends, and how. On a fake device."""

import asyncio

import pytest
from fake_gpu import FakeGpu
from fake_model import EOS, fed, load, run, turns

from pagelm.engine import NO_TOKEN
from pagelm.errors import (
    BusyError,
    DeviceError,
    LimitError,
    PagelmError,
)


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
