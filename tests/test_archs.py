"""Every architecture on the native GPU against llama.cpp: tiny random models, see tests/archs.

The window of `mistral` llama.cpp ignores: its reference is of another architecture that means the same.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from archs import MODELS, Reference, gguf_bytes, load
from archs.references import log_softmax
from archs.values import stored, write_decoded
from kernels.data import rounded

import pagelm
from pagelm.arch import supported
from pagelm.device import Kernel, Pipeline
from pagelm.device.native import NativeGpu
from pagelm.engine import Model
from pagelm.host.oracle import Oracle
from pagelm.sources import MemorySource

pytestmark = pytest.mark.gpu

WINDOW = "attention.sliding_window"
# The two of 46 and 62 layers are the oracle's to check: their own is a scale, which granite's file names too.
NAMES = [name for name, model in MODELS.items() if model.arch in supported() and "27b" not in name]
EXPERTS = [name for name in NAMES if "expert_count" in MODELS[name].metadata]
OF_EXPERTS = {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "swiglu", "ffn_down_exps", "ffn_moe_out"}
# One of each way through layers: folded norms, biases and heads, norms after blocks, gelu, no gate, experts.
ROUNDED = ("llama", "qwen2", "gemma3", "olmo2", "gpt2", "phi3", "stablelm-parallel", "mixtral")
LEAST = 1e-6  # normalised mean square error; llama.cpp's gelu alone, a table of half floats, makes 3e-7
PIECES = (21, 40)  # where a prompt is cut


class Sharing(NativeGpu):
    """Compiles each kernel once for all models."""

    made: dict[object, Pipeline]

    async def pipeline(self, kernel: Kernel) -> Pipeline:
        key = kernel.source, tuple(kernel.overrides.items())
        if key not in self.made:
            self.made[key] = await super().pipeline(kernel)
        return self.made[key]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Sharing]:
    gpu = asyncio.run(Sharing.open())
    gpu.made = {}
    yield gpu
    gpu.close()


def file_of(name: str, drop: str | None = None) -> bytes:
    model = MODELS[name]
    return gguf_bytes(replace(model, metadata={k: v for k, v in model.metadata.items() if k != drop}))


@dataclass
class Answers:
    """What pagelm makes of a reference's tokens; logits are (positions, n_vocab)."""

    name: str
    reference: Reference
    decoded: np.ndarray  # of all tokens, one by one
    prompt: np.ndarray  # of the last token of the prompt, in one call
    pieces: np.ndarray  # of the last of each piece of it
    greedy: list[int]
    steps: dict[str, np.ndarray]  # label -> the result of that step for the last token
    plain: (
        np.ndarray
    )  # logits of the last token by the pass of one operation a dispatch, its last step in numpy


async def answers(gpu: NativeGpu, name: str) -> Answers:
    reference = load(name)
    ids, every = list(reference.ids), list(reference.all_ids)
    lm = await pagelm.load(file_of(name), gpu=gpu, tune="off", n_ctx=reference.n_ctx)
    try:
        decoded = [np.array(row) async for _, row in lm.trace(every[:1], len(every), forced=every[1:])]
        prompt = np.array(await lm.prefill_logits(ids))
        pieces, start = [], 0
        for end in (*PIECES, len(ids)):
            pieces.append(np.array(await lm.prefill_logits(ids[start:end], append=start > 0)))
            start = end
        generation = lm.generate(ids, len(reference.generated), ignore_eos=True)
        await generation.run()
        steps = {label: np.array(await lm.prefill_logits(ids[:20], stop=label)) for label in lm.labels()}
        plain = output_of(name, lm, np.array(await lm.prefill_logits(ids, stop="output_norm")))
    finally:
        await lm.close()
    return Answers(name, reference, np.stack(decoded), prompt, np.stack(pieces), generation.ids, steps, plain)


def output_of(name: str, lm: Model, normed: np.ndarray) -> np.ndarray:
    """Logits from the result of the last norm."""
    tensors, hp = stored(MODELS[name]), lm.hparams
    _, matrix = tensors.get("output.weight") or tensors["token_embd.weight"]
    logits = hp.logit_scale * matrix.astype(np.float64) @ normed[: hp.n_embd]
    return hp.logit_cap * np.tanh(logits / hp.logit_cap) if hp.logit_cap else logits


@pytest.fixture(scope="module", params=NAMES)
def got(request: pytest.FixtureRequest, gpu: Sharing) -> Answers:
    return asyncio.run(answers(gpu, request.param))


def worst(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def test_logits_are_llama_cpp_s(got):
    assert got.reference.nmse(got.decoded) <= LEAST


def test_greedy_ids_are_llama_cpp_s_where_they_are_decided(got):
    n = got.reference.decided()
    assert n > 0
    assert tuple(got.greedy[:n]) == got.reference.generated[:n]


def test_prompt_its_pieces_and_decode_agree(got):
    last = len(got.reference.ids) - 1
    assert worst(got.prompt, got.decoded[last]) <= 1e-5
    ends = [end - 1 for end in (*PIECES, last + 1)]
    assert worst(got.pieces, got.decoded[ends]) <= 1e-5


def test_the_pass_of_one_operation_a_dispatch_gives_llama_cpp_s_logits(got):
    at = len(got.reference.ids) - 1
    row = got.reference.rows[at]
    assert np.mean((log_softmax(got.plain) - row) ** 2) / np.var(row) <= LEAST


def test_every_step_can_be_read(got):
    assert len(got.steps) > 10 * len({label.split(".")[1] for label in got.steps if label.startswith("blk.")})
    for label, values in got.steps.items():
        assert values.size and np.isfinite(values).all(), label
        assert np.abs(values).max() > 0, label


@pytest.mark.parametrize("got", [*EXPERTS, "llama-bias"], indirect=True)
def test_every_step_of_experts_and_biases_is_the_oracle_s(got):
    trace: dict[str, np.ndarray] = {}
    Oracle(MemorySource(file_of(got.name)), n_ctx=got.reference.n_ctx).forward(
        got.reference.ids[:20], trace=trace
    )
    # scores have room for a whole context
    both = [label for label in got.steps if label in trace and got.steps[label].size == trace[label].size]
    there = {label.split(".")[-1] for label in both}
    assert there >= (
        OF_EXPERTS if got.name in EXPERTS else {"attn_output", "attn_output_bias", "ffn_down_bias"}
    )
    for label in both:
        assert worst(got.steps[label], trace[label].ravel()) <= 1e-5, label


MIXED = {"attn_v": "Q8_0", "attn_q.": "Q4_0", "ffn_up": "Q4_1", "": "F16"}


@pytest.mark.parametrize("name", ["llama-bias", "gpt2", "stablelm-parallel"])
def test_types_that_are_mixed_and_tensors_in_slabs_give_the_same(gpu, tmp_path, name):
    """As the same numbers in F32 do, each tensor whole: biases and norms of heads find their rows."""
    model, ids = MODELS[name].of_types(MIXED), list(load(name).ids[:20])
    limits, limit = gpu.limits, 16000  # the feed-forward's matrices and the embedding are past it

    async def logits(source: bytes | str) -> tuple[np.ndarray, np.ndarray, int]:
        lm = await pagelm.load(source, gpu=gpu, tune="off", n_ctx=48)
        try:
            prompt = np.array(await lm.prefill_logits(ids))
            plain = np.array(await lm.prefill_logits(ids, stop="output_norm"))
            return prompt, plain, lm.plan.slabs
        finally:
            await lm.close()

    whole = asyncio.run(logits(str(write_decoded(model, tmp_path / "decoded.gguf"))))
    gpu.limits = replace(limits, max_storage_buffer_binding_size=limit)
    try:
        cut = asyncio.run(logits(gguf_bytes(model)))
    finally:
        gpu.limits = limits
    assert cut[2] > whole[2]
    for got, expected in zip(cut[:2], whole[:2], strict=True):
        assert worst(got, expected) <= 1e-5


def test_a_mistral_s_window_is_honoured(gpu):
    """Which llama.cpp does not do: up to the window's end all is as without, from there on not."""
    window = int(MODELS["mistral"].metadata[WINDOW])
    ids = list(load("mistral").ids[: window + 2])

    async def logits(drop: str | None) -> np.ndarray:
        lm = await pagelm.load(file_of("mistral", drop), gpu=gpu, tune="off", n_ctx=256)
        try:
            return np.stack([np.array(row) async for _, row in lm.trace(ids[:1], len(ids), forced=ids[1:])])
        finally:
            await lm.close()

    whole, windowed = (asyncio.run(logits(drop)) for drop in (WINDOW, None))
    assert worst(windowed[:window], whole[:window]) <= 1e-6
    assert all(worst(windowed[p], whole[p]) > 1e-3 for p in range(window, len(ids)))


@pytest.mark.parametrize("name", ROUNDED)
def test_a_prompt_of_8_bits_is_the_oracle_s_with_rounded_activations(gpu, name):
    """Of two tokens that are multiplied together neither sees the other: a cut between them changes nothing.

    What is halfway between two numbers of 8 bits may go either way, which makes less of a difference than
    rounding does; of two prompts one is without.
    """
    data = gguf_bytes(MODELS[name].of_types({"attn_q": "Q4_0", "": "Q4_1"}))
    ids = list(load(name).ids[:20])
    exact, oracle = (Oracle(MemorySource(data), n_ctx=48) for _ in range(2))
    product = oracle._math.matmul

    def of_rounded(matrix: str, x: np.ndarray) -> np.ndarray:
        if (
            matrix.startswith("blk.") and "gate_inp" not in matrix
        ):  # the router is F32; so are no experts' here
            q, d = rounded(x)
            x = (q * d[..., None]).reshape(len(x), -1)[:, : x.shape[1]].astype(np.float32)
        return product(matrix, x)

    oracle._math.matmul = of_rounded

    async def answers() -> tuple[np.ndarray, ...]:
        lm = await pagelm.load(data, gpu=gpu, tune="off", n_ctx=48, activations="int8")
        try:
            whole = np.array(await lm.prefill_logits(ids))
            first = np.array(await lm.prefill_logits(ids[:7]))
            return first, whole, np.array(await lm.prefill_logits(ids[7:], append=True))
        finally:
            await lm.close()

    first, whole, cut = asyncio.run(answers())
    assert np.array_equal(whole, cut)
    errors = []
    for got, fed in ((first, ids[:7]), (whole, ids)):
        oracle.reset()
        exact.reset()
        want = oracle.forward(fed)
        errors.append(worst(got, want))
        assert errors[-1] < worst(want, exact.forward(fed)) / 2
    assert min(errors) <= 5e-5
