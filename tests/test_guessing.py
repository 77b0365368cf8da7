"""Generating with guesses, on a fake device: the same ids and the same ends as without, in fewer submits."""

import asyncio

import pytest
from fake_gpu import FakeGpu
from fake_model import EOS, fed, load, run, turns

from pagelm.cancel import Cancel
from pagelm.engine import NO_TOKEN
from pagelm.errors import NumericError
from pagelm.verify import MOST, Verifier

PROMPT = list(range(100, 140))  # of the tiny model's 400 tokens


@pytest.fixture(autouse=True)
def usual_costs(monkeypatch):
    """Times on a fake device say nothing."""
    monkeypatch.setattr(Verifier, "took", lambda self, seconds, verified: None)


def copies(**but):
    """The model copies its prompt again and again, but for `but`: t7=5 is token 5 instead of the eighth."""
    return lambda i: but.get(f"t{i}", PROMPT[i % len(PROMPT)])


def loaded(truth, **options):
    """A fake device with that truth and a model on it that is ready to verify."""
    gpu = FakeGpu(tokens=truth)
    model = load(gpu, **options)

    async def compiled():
        while not model._verifier.ready(model._buffers, model._pipelines):
            await asyncio.sleep(0)

    run(compiled())
    return gpu, model


def generated(truth, n, guess=True, prompt=PROMPT, n_ctx=None, **options):
    """(what can be seen of a generation, the device)."""
    gpu, model = loaded(truth, n_ctx=n_ctx)
    gpu.log.clear()
    generation = model.generate(prompt, n, guess=guess, **options)
    text = run(generation.run())
    seen = generation.ids, text, generation.stop_reason, model.position, model._unfed, model.stats.tokens
    return seen, gpu


def check_verified(gpu, context):
    """Every pass over guesses began with the token that belongs to its position."""
    assert all(context[n_past] == last for n_past, last, *_ in gpu.verified)


def test_right_guesses_save_submits_and_change_nothing():
    plain, without = generated(copies(), 100, guess=False, ignore_eos=True)
    seen, gpu = generated(copies(), 100, ignore_eos=True)
    assert seen == plain and seen[:1] == ([*PROMPT, *PROMPT, *PROMPT[:20]],)
    assert not without.verified and without.log.count("submit+read") == 100
    assert gpu.log.count("submit+read") < 35
    assert all(len(ids) == 2 + MOST for ids in gpu.verified[:-1])
    check_verified(gpu, [*PROMPT, *seen[0]])


def test_what_was_guessed_and_right_is_counted():
    gpu, model = loaded(copies(t30=7))
    run(model.generate(PROMPT, 35, ignore_eos=True).run())
    guessed = sum(len(ids) - 2 for ids in gpu.verified)
    assert model.stats.guessed == guessed
    assert 0 < guessed - MOST <= model.stats.accepted < guessed
    tokens = model.timing.decode_tokens
    assert (tokens, model.stats.tokens) == (34, 35)


@pytest.mark.parametrize("at", range(6, 22))
def test_a_wrong_guess_anywhere_in_a_run_changes_nothing(at):
    truth = copies(**{f"t{at}": 7, f"t{at + 1}": 8})
    plain, _ = generated(truth, 60, guess=False, ignore_eos=True)
    seen, gpu = generated(truth, 60, ignore_eos=True)
    assert seen == plain
    assert gpu.verified
    check_verified(gpu, [*PROMPT, *seen[0]])


@pytest.mark.parametrize("n", range(1, 30))
def test_no_more_tokens_come_than_were_asked_for(n):
    seen, gpu = generated(copies(), n, ignore_eos=True)
    assert (len(seen[0]), seen[2], seen[3]) == (n, "length", len(PROMPT) + n - 1)
    assert all(n_past + len(ids) <= len(PROMPT) + n - 1 for n_past, *ids in gpu.verified)


@pytest.mark.parametrize("n_ctx", range(50, 66))
def test_guesses_end_where_the_context_does(n_ctx):
    plain, _ = generated(copies(), 100, guess=False, n_ctx=n_ctx, ignore_eos=True)
    seen, gpu = generated(copies(), 100, n_ctx=n_ctx, ignore_eos=True)
    assert seen == plain and seen[2:4] == ("context", n_ctx)
    assert gpu.verified and all(n_past + len(ids) <= n_ctx for n_past, *ids in gpu.verified)


@pytest.mark.parametrize("at", range(7, 16))
@pytest.mark.parametrize("copied", [True, False])
def test_an_end_token_in_the_middle_of_a_run_ends_the_text(at, copied):
    """Also where the end token itself was guessed, because the prompt has one there."""
    prompt = [*PROMPT[:at], EOS, *PROMPT[at + 1 :]] if copied else PROMPT
    truth = copies(**{f"t{at}": EOS})
    seen, gpu = generated(truth, 60, prompt=prompt)
    assert seen[0] == PROMPT[:at]
    assert seen[2:5] == ("eos", len(prompt) + at - 1, [PROMPT[at - 1]])
    submits = gpu.log.count("submit+read")
    goes_on, gpu = generated(truth, 60, prompt=prompt, ignore_eos=True)
    assert len(goes_on[0]) == 60 and goes_on[0][at] == EOS
    assert submits < gpu.log.count("submit+read")


def test_all_nan_logits_after_right_guesses_are_an_error_after_them():
    for at in range(8, 13):
        gpu, model = loaded(copies(**{f"t{at}": NO_TOKEN}))
        generation = model.generate(PROMPT, 60)
        with pytest.raises(NumericError, match="every logit at position"):
            run(generation.run())
        assert (generation.ids, generation.stop_reason) == (PROMPT[:at], "error")
        assert gpu.verified and model.position == len(PROMPT) + at - 1


def test_text_that_repeats_nothing_is_decoded_as_ever():
    truth = [(37 * i * i + 11 * i) % 390 for i in range(60)]
    seen, gpu = generated(truth.__getitem__, 60, prompt=[391, 392], ignore_eos=True)
    assert seen[0] == truth
    assert not gpu.verified
    assert gpu.log[:4] == ["submit+read", "submit+read", "value 0", "submit+read"]  # one goes ahead


def test_two_submits_are_under_way_again_after_a_run():
    gpu, model = loaded(copies(**{f"t{i}": 300 + i for i in range(20, 60)}))
    gpu.log.clear()
    run(model.generate(PROMPT, 60, ignore_eos=True).run())
    assert gpu.verified and model.stats.accepted
    assert gpu.log[-7:] == [
        "submit+read",
        "value 56",
        "submit+read",
        "value 57",
        "submit+read",
        "value 58",
        "value 59",
    ]


def test_nothing_is_created_while_guessing():
    gpu, model = loaded(copies())
    made = gpu.buffers_created, len(gpu.kernels), len(model._verifier.program._recordings)
    run(model.generate(PROMPT, 100, ignore_eos=True).run())
    assert gpu.verified
    assert made == (gpu.buffers_created, len(gpu.kernels), len(model._verifier.program._recordings))
    assert model.stats.buffers_created_in_decode == 0


def test_a_model_that_never_repeats_compiles_nothing_for_it():
    gpu = FakeGpu(tokens=lambda i: 140 + i)
    model = load(gpu)
    kernels = len(gpu.kernels)
    run(model.generate(PROMPT, 60, ignore_eos=True).run())
    run(model.generate(PROMPT, 20, guess=False, ignore_eos=True).run())
    assert len(gpu.kernels) == kernels
    gpu._tokens = copies()
    gpu._reads = 0
    run(model.generate(PROMPT, 60, guess=False, ignore_eos=True).run())
    assert len(gpu.kernels) == kernels and not gpu.verified


def test_decoding_goes_on_while_the_kernels_compile():
    gpu = FakeGpu(tokens=copies())
    model = load(gpu)
    gate = asyncio.Event()

    async def pipeline(kernel):
        await gate.wait()
        return kernel

    gpu.pipeline = pipeline

    async def both():
        generation = model.generate(PROMPT, 100, ignore_eos=True)
        async for _ in generation:
            if len(generation.ids) == 40:
                assert model._verifier.compiling and not gpu.verified
                gate.set()
        return generation

    generation = run(both())
    assert generation.ids == [copies()(i) for i in range(100)]
    assert gpu.verified and gpu.verified[0][0] >= len(PROMPT) + 39


@pytest.mark.parametrize("pieces", range(5, 20))
@pytest.mark.parametrize("how", ["cancel", "emit", "append", "abandon"])
def test_an_end_between_the_tokens_of_a_run_leaves_what_was_shown(pieces, how):
    gpu, model = loaded(copies())
    cancel = Cancel()

    def emit(piece):
        if len(generation.ids) == pieces:
            if how == "cancel":
                cancel.cancel()
            return how != "emit"

    async def both():
        async for _ in generation:
            if len(generation.ids) == pieces and how in ("append", "abandon"):
                break
        if how == "abandon":
            generation.abandon()
        newer = model.generate([9], 1, append=True, ignore_eos=True)
        assert (generation.ids, generation.stop_reason) == (PROMPT[:pieces], "cancelled")
        assert model.position == len(PROMPT) + pieces - 1
        await newer.run()
        return newer

    generation = model.generate(PROMPT, 60, ignore_eos=True, emit=emit, cancel=cancel)
    newer = run(both())
    assert newer.prompt_ids == [PROMPT[pieces - 1], 9]
    assert fed(gpu)[:6] == [len(PROMPT) + pieces - 1, 2, 0, 0, PROMPT[pieces - 1], 9]


@pytest.mark.parametrize("late", [PROMPT[0], EOS, NO_TOKEN])
@pytest.mark.parametrize("passes", [1, 2, 4])
@pytest.mark.parametrize("other", ["generate", "reset", "close"])
def test_a_generation_ended_while_guesses_are_on_their_way_takes_nothing_more(passes, late, other):
    gpu, model = loaded(copies())

    async def both():
        older = model.generate(PROMPT, 60)
        running = asyncio.ensure_future(older.run())
        while len(gpu.verified) < passes:
            await turns(1)
        gpu._tokens = lambda i: late
        assert older._guesses and not older.stop_reason
        ids, submits = list(older.ids), len(gpu.log)
        if other == "generate":
            newer = model.generate([9], 1, append=True, ignore_eos=True)
        elif other == "reset":
            model.reset()
        else:
            await model.close()
        assert await running == older.text
        assert (older.ids, older.stop_reason) == (ids, "cancelled")
        assert not any(entry.startswith("submit") for entry in gpu.log[submits:])
        assert model.position == (0 if other == "reset" else len(PROMPT) + len(ids) - 1)
        if other == "generate":
            gpu._tokens = lambda i: 50
            await newer.run()
            assert newer.prompt_ids == [ids[-1], 9]
            assert fed(gpu)[:6] == [len(PROMPT) + len(ids) - 1, 2, 0, 0, ids[-1], 9]
        elif other == "reset":
            gpu._tokens = copies()
            gpu._reads = 0
            assert len(await model.generate(PROMPT, 30, ignore_eos=True).run()) > 0

    run(both())


def test_what_earlier_calls_left_in_the_context_is_guessed_from_too():
    gpu, model = loaded(copies())
    run(model.generate(PROMPT, 3, ignore_eos=True).run())
    gpu._reads = 0
    run(model.generate([9], 40, append=True, ignore_eos=True).run())
    assert gpu.verified
    gpu.verified.clear()
    gpu._reads = 0
    run(model.generate([9], 30, ignore_eos=True).run())  # a context of its own: it has nothing to copy
    assert not gpu.verified


def test_the_last_row_is_that_of_the_last_token_taken():
    """`peek` after a pass over guesses reads the row of the last right one."""
    gpu, model = loaded(copies(t17=7))
    reads = []

    async def read(src, offset, nbytes):
        reads.append((src.label, offset, nbytes))
        return bytes(nbytes)

    gpu.read = read
    for n in range(10, 30):
        gpu._reads = 0
        gpu.verified.clear()
        model._guesser.rate = 0
        generation = model.generate(PROMPT, n, ignore_eos=True)
        run(generation.run())
        if gpu.log[-1] != "submit+read" and gpu.verified and model._activations._ops[-1].label == "accept":
            reads.clear()
            run(model.peek("logits", 5))
            rows = model.position - gpu.verified[-1][0]
            assert reads == [("logits", 4 * 400 * (rows - 1), 20)]
            break
    else:
        raise AssertionError("no generation ended with a pass over guesses")
