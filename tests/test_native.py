"""The whole engine on the native adapter against the numpy oracle, on tiny random models of every type."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tiny_gguf import tiny_model

from pagelm.adapt import Choice
from pagelm.device import AdapterInfo
from pagelm.device.native import NativeGpu
from pagelm.host.oracle.model import Oracle
from pagelm.loading import load_model
from pagelm.quants import SUPPORTED
from pagelm.sources import FileSource
from pagelm.tune import LIMIT_S, Tuner

pytestmark = pytest.mark.gpu

MIXED = {"ffn_down": "Q4_0", "attn_v": "F16", "attn_q": "Q8_0", "": "Q4_1"}
# as llama.cpp mixes them in one file, with a fallback to types of 32 where rows are not whole blocks of 256
MIXED_K = {"ffn_down": "Q6_K", "attn_v": "Q5_0", "attn_q": "Q8_0", "token_embd": "Q6_K", "": "Q4_K"}
LARGE = dict(n_embd=256, n_ff=256)  # rows of whole blocks of any type
MORE = [quant for quant in SUPPORTED if quant not in ("F32", "F16", "Q4_0", "Q4_1", "Q8_0")]
PROMPT = [(i * 37 + 11) % 390 for i in range(45)]
SHAPES = {
    "f32": dict(quant="F32"),
    "f16": dict(quant="F16"),
    "q4_0": dict(quant="Q4_0"),
    "q4_1": dict(quant="Q4_1"),
    "q8_0": dict(quant="Q8_0"),
    "mixed": dict(quant=MIXED),
    **{quant.lower(): dict(quant=quant, **LARGE) for quant in MORE},
    "mixed-k": dict(quant=MIXED_K, **LARGE, n_layer=1),
    "odd-sizes": dict(quant="F32", n_embd=40, n_head=2, n_head_kv=1, n_ff=50),
    "no-groups": dict(quant="F16", n_head=4, n_head_kv=4),
    "many-to-one": dict(quant="Q8_0", n_embd=64, n_head=16, n_head_kv=1, n_embd_head=20),
    "one-head": dict(quant="F32", n_head=1, n_head_kv=1, n_layer=1),
}


async def open_model(path, n_ctx=128, subgroups=True, cache_type="f32", **limits):
    gpu = await NativeGpu.open()
    gpu.subgroups &= subgroups
    gpu.limits = replace(gpu.limits, **limits)
    return await load_model(gpu, FileSource(path), n_ctx=n_ctx, cache_type=cache_type)


async def traced(model, prompt, n):
    return [(token, np.array(logits)) async for token, logits in model.trace(prompt, n)]


def worst(got, expected):
    return float(np.abs(got - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("subgroups", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_logits_and_greedy_ids_equal_the_oracle(tmp_path, shape, subgroups):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, **SHAPES[shape])

    async def gpu():
        model = await open_model(path, subgroups=subgroups)
        try:
            steps = await traced(model, PROMPT, 12)
            generation = model.generate(PROMPT, 12, ignore_eos=True)
            await generation.run()
            assert generation.ids == [token for token, _ in steps]
            return steps
        finally:
            await model.close()

    oracle = Oracle(path)
    logits = oracle.forward(PROMPT)
    for step, (token, got) in enumerate(asyncio.run(gpu())):
        assert worst(got, logits) <= 1e-5, step
        assert token == int(logits.argmax())
        logits = oracle.forward([token])


@pytest.mark.parametrize("subgroups", [True, False])
@pytest.mark.parametrize("shape", ["q4_1", "mixed", "odd-sizes", "many-to-one"])
def test_an_f16_cache_takes_half_the_memory_and_gives_the_oracle_s_logits_within_2e_3(
    tmp_path, shape, subgroups
):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, **SHAPES[shape])

    async def gpu():
        model = await open_model(path, subgroups=subgroups, cache_type="f16")
        try:
            hp, plan = model.hparams, model.plan
            assert plan.kv_cache == 2 * hp.n_layer * 128 * hp.n_embd_kv * 2  # k and v, of 2 bytes
            assert model.memory_used == plan.total - plan.staging
            steps = await traced(model, PROMPT, 12)
            generation = model.generate(PROMPT, 12, ignore_eos=True)
            await generation.run()
            assert generation.ids == [token for token, _ in steps]
            unfused = np.array(await model.prefill_logits(PROMPT, stop="blk.1.ffn_gate"))
            return steps, unfused
        finally:
            await model.close()

    steps, unfused = asyncio.run(gpu())
    oracle, trace = Oracle(path), {}
    logits = oracle.forward(PROMPT, trace=trace)
    assert worst(unfused, trace["blk.1.ffn_gate"].ravel()) <= 2e-3
    off = []
    for step, (token, got) in enumerate(steps):
        off.append(worst(got, logits))
        assert off[-1] <= 2e-3, step
        assert logits.max() - logits[token] <= 2e-3 * np.abs(logits).max()  # the same, or a near-tie
        logits = oracle.forward([token])
    assert max(off) > 1e-5  # it is there


def test_every_step_can_be_stopped_after_and_equals_the_oracle(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant=MIXED)
    trace = {}
    Oracle(path).forward(PROMPT, trace=trace)

    async def gpu():
        model = await open_model(path)
        try:
            named = [label for label in trace if not label.endswith(("kv_store", "argmax"))]
            assert [label for label in model.labels() if label != "last_row"] == named
            for label in named:
                if label.endswith(("attn_scores", "attn_softmax")):
                    continue  # masked rows have no flat form; the step after shows them
                got = np.array(await model.prefill_logits(PROMPT, stop=label))
                assert worst(got, trace[label].ravel()) <= 1e-5, label
        finally:
            await model.close()

    asyncio.run(gpu())


@pytest.mark.parametrize("limit", [6400, 7000])  # the first is what the logits take
def test_tensors_cut_into_slabs_give_the_same_ids(tmp_path, limit):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant="Q8_0")

    async def gpu(**limits):
        model = await open_model(path, n_ctx=16, **limits)
        try:
            assert (model.plan.slabs > 1 + 4 * model.hparams.n_layer) == bool(limits)
            steps = await traced(model, PROMPT[:6], 8)
            return [t for t, _ in steps], steps[-1][1]
        finally:
            await model.close()

    ids, logits = asyncio.run(gpu())
    slab_ids, slab_logits = asyncio.run(gpu(max_storage_buffer_binding_size=limit))
    assert slab_ids == ids
    assert np.array_equal(slab_logits, logits)


@pytest.mark.parametrize("invocations", [1, 8, 64])
def test_any_workgroup_size_gives_the_same_ids(tmp_path, invocations):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant=MIXED)
    logits = Oracle(path).forward(PROMPT)

    async def gpu():
        model = await open_model(path, max_compute_invocations_per_workgroup=invocations)
        try:
            return (await traced(model, PROMPT, 1))[0]
        finally:
            await model.close()

    token, got = asyncio.run(gpu())
    assert token == int(logits.argmax())
    assert worst(got, logits) <= 1e-5


def test_runs_are_bit_identical_and_chunking_changes_nothing(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant=MIXED)

    async def gpu():
        model = await open_model(path)
        try:
            results = []
            for piece in (4, 8, 32, 32):
                model._piece = piece
                results.append(np.array(await model.prefill_logits(PROMPT)))
            for split in (1, 7, 44):
                await model.prefill_logits(PROMPT[:split])
                results.append(np.array(await model.prefill_logits(PROMPT[split:], append=True)))
            return results
        finally:
            await model.close()

    first, *others = asyncio.run(gpu())
    assert all(np.array_equal(first, other) for other in others)


def test_many_generations_leave_no_memory_behind(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400)

    async def gpu():
        model = await open_model(path)
        before = (model.memory_used, model._gpu.buffers_created)
        for i in range(20):
            await model.generate(PROMPT[: 1 + i], 5, ignore_eos=True).run()
        assert (model.memory_used, model._gpu.buffers_created) == before
        await model.close()

    asyncio.run(gpu())


@pytest.mark.parametrize("subgroups", [True, False])
def test_every_activation_can_be_looked_at_after_any_pass(tmp_path, subgroups):
    """What fusion hides is computed once more; a generation goes on as if nobody had looked."""
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant=MIXED)
    names = {"q": "rope_q", "k": "rope_k", "v": "attn_v", "att": "attn_values", "o": "ffn_down"}
    names |= {"gate": "ffn_gate", "up": "ffn_up", "act": "swiglu", "x": "ffn_residual"}

    async def gpu():
        model = await open_model(path, subgroups=subgroups)
        try:
            await model.prefill_logits(PROMPT)
            seen = [{name: np.array(await model.peek(name)) for name in (*names, "h", "logits")}]
            plain = model.generate(PROMPT, 6, ignore_eos=True)
            await plain.run()
            watched = model.generate(PROMPT, 6, ignore_eos=True)
            async for _ in watched:
                await model.peek("gate")
            assert watched.ids == plain.ids
            seen.append({name: np.array(await model.peek(name)) for name in (*names, "h", "logits")})
            return seen, plain.ids
        finally:
            await model.close()

    seen, ids = asyncio.run(gpu())
    for fed, values in zip((PROMPT, PROMPT + ids[:-1]), seen, strict=True):
        trace = {}
        oracle = Oracle(path)
        logits = oracle.forward(fed, trace=trace)
        last = oracle.hparams.n_layer - 1
        for name, label in names.items():
            assert worst(values[name], trace[f"blk.{last}.{label}"].ravel()) <= 1e-5, name
        assert worst(values["h"], trace["output_norm"].ravel()) <= 1e-5
        assert worst(values["logits"], logits) <= 1e-5


@pytest.mark.parametrize("share", ["alone", "quad"])
@pytest.mark.parametrize(("rows", "pairs"), [("registers", 1), ("registers", 2), ("loop", 1), ("loop", 8)])
def test_any_choice_of_tiles_gives_the_oracle_s_logits(tmp_path, monkeypatch, share, rows, pairs):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=401, quant="F32", n_embd=40, n_head=2, n_head_kv=1, n_ff=50)

    async def chosen(gpu):
        return Choice(share, rows, 8, pairs)

    async def gpu():
        model = await open_model(path)
        try:
            return await traced(model, PROMPT, 3)
        finally:
            await model.close()

    monkeypatch.setattr("pagelm.loading.choose", chosen)
    oracle = Oracle(path)
    logits = oracle.forward(PROMPT)
    for token, got in asyncio.run(gpu()):
        assert worst(got, logits) <= 1e-5
        assert token == int(logits.argmax())
        logits = oracle.forward([token])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("quant", ["F32", "F16", "Q4_0", "Q4_1", "Q8_0"])
def test_what_tuning_chooses_gives_the_oracle_s_logits_and_leaves_no_memory_behind(tmp_path, quant, known):
    """`known`: by its name; else the adapter gets the candidates of a real GPU."""
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant=quant, n_ff=480)

    async def gpu():
        gpu = await NativeGpu.open()
        if not known:
            gpu.adapter = AdapterInfo(device="another")
        model = await load_model(gpu, FileSource(path), n_ctx=128, tuner=Tuner("force"))
        try:
            assert gpu.memory_used == model.plan.total - model.plan.staging
            return model.tuning, await traced(model, PROMPT, 3)
        finally:
            await model.close()

    tuning, steps = asyncio.run(gpu())
    assert tuning.source == "measured" and len(tuning.rows) == (4 if known else 18)
    assert [row.choice for row in tuning.rows if row.verdict == "chosen"] == [tuning.choice]
    # every candidate is right here; "not timed" where the machine is busy
    assert {row.verdict.partition(":")[0] for row in tuning.rows} <= {"chosen", "slower", "not timed"}
    assert tuning.seconds <= LIMIT_S + 1  # what was begun ends: a compilation, a batch
    oracle = Oracle(path)
    logits = oracle.forward(PROMPT)
    for token, got in steps:
        assert worst(got, logits) <= 1e-5
        assert token == int(logits.argmax())
        logits = oracle.forward([token])


def test_a_model_outlives_the_event_loop_that_loaded_it(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400)
    model = asyncio.run(open_model(path))
    asyncio.run(model.prefill_logits(PROMPT))
    gate = asyncio.run(model.peek("gate"))
    stopped = asyncio.run(model.prefill_logits(PROMPT, stop="blk.1.ffn_gate"))
    assert worst(np.array(gate), np.array(stopped)) <= 1e-5
    asyncio.run(model.close())


@pytest.mark.parametrize(
    "stop", [None, "output", "blk.1.ffn_residual", "blk.1.attn_values", "blk.1.ffn_norm"]
)
def test_peek_after_a_stop_and_after_an_append_gives_the_last_token_s_values(tmp_path, stop):
    path = tmp_path / "tiny.gguf"
    tiny_model(path, n_vocab=400, quant={"ffn_up": "F16", "": "F32"})  # two types: no fused gate_up
    trace = {}
    Oracle(path).forward(PROMPT, trace=trace)
    done = list(trace)[: list(trace).index(stop or "output") + 1]
    labels = {"h": ("attn_norm", "ffn_norm", "output_norm"), "q": ("rope_q",), "v": ("attn_v",)}
    labels |= {"gate": ("ffn_gate",), "x": ("embed", "attn_residual", "ffn_residual")}

    async def gpu():
        model = await open_model(path)
        try:
            await model.prefill_logits(PROMPT[:-1])
            await model.prefill_logits(PROMPT[-1:], append=True, stop=stop)
            return {name: np.array(await model.peek(name)) for name in labels}
        finally:
            await model.close()

    for name, got in asyncio.run(gpu()).items():
        last = [label for label in done if label.rpartition(".")[2] in labels[name]][-1]
        assert worst(got, trace[last].ravel()) <= 1e-5, (name, last)
