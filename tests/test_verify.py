"""When verifying guesses pays, by measured costs; and a program that is compiled once, beside the rest."""

import asyncio

import pytest
from fake_gpu import FakeGpu
from fake_model import load, turns

from pagelm.errors import ShaderError
from pagelm.verify import EVIDENCE, FORGET, MARGIN, MOST, RATIO, Verifier


def verifier(plain=(), verified=()):
    made = Verifier(None, None, 64)
    for seconds in plain:
        made.took(seconds, verified=False)
    for seconds in verified:
        made.took(seconds, verified=True)
    return made


def test_before_anything_is_measured_a_usual_ratio_holds():
    made = verifier()
    assert made.ratio == RATIO
    assert not made.pays(0.0) and not made.pays(0.5) and made.pays(0.7) and made.pays(1.0)


def test_measured_costs_decide_and_the_first_of_each_kind_does_not_count():
    made = verifier(plain=[9.0] * 4 + [0.05, 0.15] * 2, verified=[50.0])
    assert made.ratio == RATIO
    made.took(0.3, verified=True)
    assert made.ratio == pytest.approx(3.0)
    assert made.pays(0.97) and not made.pays(0.8)
    cheap = verifier(plain=[0.1] * 8, verified=[0.11, 0.11])
    assert cheap.pays(0.25) and not cheap.pays(0.1)


def test_other_work_on_the_machine_does_not_turn_guessing_off():
    made = verifier(plain=[0.1] * 8, verified=[0.2, 0.2, 0.9, 0.8, 1.0])
    assert made.ratio == pytest.approx(2.0, rel=0.07)
    growing = verifier(plain=[0.1] * 8, verified=[0.2 * 1.01**i for i in range(100)])
    assert growing.ratio == pytest.approx(2.0 * 1.01**99)  # but what grows with the context is followed


def test_costs_that_nothing_can_make_up_for_are_forgotten_slowly():
    made = verifier(plain=[0.1] * 8, verified=[0.5, 0.5])
    assert made.ratio == pytest.approx(5.0)
    assert not made.pays(0.5)  # here the rate alone would do for a no
    assert made.ratio == pytest.approx(5.0)
    asked = 0
    while not made.pays(1.0):
        asked += 1
    assert made.ratio == pytest.approx(5.0 * FORGET**asked) and asked > 15
    assert made.ratio < (MOST + 1) / MARGIN <= made.ratio / FORGET


def test_the_program_is_compiled_when_first_asked_for_and_once():
    gpu = FakeGpu()
    model = load(gpu)
    made, kernels = model._verifier, len(gpu.kernels)

    async def ask():
        assert not made.ready(model._buffers, model._pipelines, rate=EVIDENCE - 0.01)
        assert not made.compiling
        first = made.ready(model._buffers, model._pipelines, rate=EVIDENCE)
        assert made.compiling
        await turns(20)
        return first, made.ready(model._buffers, model._pipelines)

    assert asyncio.run(ask()) == (False, True)
    new = [kernel.name for kernel in gpu.kernels[kernels:]]
    assert {name.split(".")[0] for name in new} == {"qkv", "project", "gate_up", "logits", "accept"}
    assert len(new) == 6 and all(name.endswith("t4") for name in new)  # the rest is the prompt's or decode's
    assert asyncio.run(ask_once(made, model)) and len(gpu.kernels) == kernels + 6


async def ask_once(made, model):
    return made.ready(model._buffers, model._pipelines)


def test_a_compilation_that_was_cancelled_is_begun_again():
    model = load(FakeGpu())
    assert not asyncio.run(ask_once(model._verifier, model))  # the loop's end cancels it

    async def ask():
        model._verifier.ready(model._buffers, model._pipelines)
        await turns(20)
        return model._verifier.ready(model._buffers, model._pipelines)

    assert asyncio.run(ask())


def test_what_the_compiler_refuses_is_told_once_and_nothing_is_guessed():
    gpu = FakeGpu()
    model = load(gpu)

    async def refuse(kernel):
        raise ShaderError("shaders/accept.wgsl:3 no")

    gpu.pipeline = refuse

    async def ask():
        model._verifier.ready(model._buffers, model._pipelines)
        await turns(20)
        with pytest.warns(RuntimeWarning, match=r"no tokens are guessed: shaders/accept.wgsl:3 no"):
            assert not model._verifier.ready(model._buffers, model._pipelines)
        assert not model._verifier.ready(model._buffers, model._pipelines)

    asyncio.run(ask())


def test_closing_the_model_ends_a_compilation():
    gpu = FakeGpu()
    model = load(gpu)

    async def ask():
        model._verifier.ready(model._buffers, model._pipelines)
        await turns(1)
        await model.close()
        await turns(20)
        return model._verifier.compiling

    assert asyncio.run(ask()) is False
    assert gpu.memory_used == 0
