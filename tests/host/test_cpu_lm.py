"""The device cpu: what it chooses where logits are not finite; that it refuses what a GPU does, alike."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from fake_gpu import FakeGpu
from split_gguf import write_parts
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from tiny_gguf import tiny_model

from pagelm.errors import ContextFull, LimitError, NumericError, PagelmError, PromptError
from pagelm.host import cli
from pagelm.host.cpu_lm import CpuLm
from pagelm.host.inspect import inspect
from pagelm.host.oracle import model, ops
from pagelm.host.server import serve_app
from pagelm.loading import load_model
from pagelm.sources import FileSource

NAN = float("nan")


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    tiny_model(path)
    return str(path)


def with_output(path, change):
    """A model whose output matrix `change` has been let loose on."""
    rows = np.random.default_rng(3).standard_normal((320, 64), dtype=np.float32)
    change(rows)
    tiny_model(path, quant="F32", tied=False, tensors={"output.weight": rows})
    return str(path)


def run(work, path, **options):
    """What `work` gives for a CpuLm that is closed afterwards."""

    async def main():
        lm = await CpuLm.open(path, **options)
        try:
            return await work(lm)
        finally:
            await lm.close()

    return asyncio.run(main())


@pytest.mark.parametrize("place", ["path", "url"])
def test_split_model_says_what_the_whole_one_does(tiny, tmp_path, place):
    async def ids(lm):
        assert await lm.encode("hello") == lm.tokenizer.encode("hello")
        return (await lm.generate([5, 6, 7], 6, True))["ids"]

    paths = write_parts(tmp_path, Path(tiny).read_bytes(), [0, 7])
    expected = run(ids, tiny)
    if place == "path":
        assert run(ids, str(paths[1])) == expected
        return
    told = []
    with serve_app(Starlette(routes=[Mount("/", StaticFiles(directory=tmp_path))])) as server:
        assert run(ids, server.url + paths[1].name, on_progress=told.append) == expected
    assert told[-1].done == told[-1].total == sum(path.stat().st_size for path in paths)


def on_gpu(work, path, **options):
    """What `work` gives for the same file on a GPU that computes nothing."""

    async def main():
        return await work(await load_model(FakeGpu(), FileSource(path), **options))

    return asyncio.run(main())


def refusal(call):
    with pytest.raises(PagelmError) as caught:
        call()
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("logits", "want"),
    [
        ([1, 3, 2], 1),
        ([1, 3, 3], 1),
        ([NAN, 1, 2], 2),
        ([NAN, -1, NAN], 1),
        ([NAN, -np.inf], 1),
        ([NAN, NAN], -1),
        ([np.inf, NAN, np.inf], 0),
    ],
)
def test_argmax_is_the_lowest_of_the_largest_and_never_a_nan(logits, want):
    assert ops.argmax(np.float32(logits)) == want


@pytest.mark.parametrize("forced", [None, [5, 6, 7]])
def test_nan_is_never_chosen(tmp_path, forced):
    def poison(rows):
        rows[7] = NAN

    async def tokens(lm):
        return [(token, logits) async for token, logits in lm.trace([3, 4], 4, forced)]

    steps = run(tokens, with_output(tmp_path / "nan.gguf", poison))
    assert len(steps) == 4
    for token, logits in steps:
        assert np.isnan(logits[7])
        assert token == np.nanargmax(logits)


@pytest.mark.parametrize("forced", [None, [5, 6]])
def test_logits_that_are_all_nan_are_an_error_at_their_position(tmp_path, forced):
    async def first(lm):
        return [step async for step in lm.trace([3, 4], 3, forced)]

    with pytest.raises(NumericError, match="every logit at position 2 is NaN"):
        run(first, with_output(tmp_path / "nan.gguf", lambda rows: rows.fill(NAN)))


def test_model_that_is_not_finite_is_one_line(tmp_path):
    path = tmp_path / "inf.gguf"
    tiny_model(path, quant="F32", tensors={"blk.0.ffn_up.weight": np.full((96, 64), np.inf, np.float32)})
    result = CliRunner().invoke(cli.cli, ["run", str(path), "--device", "cpu", "--prompt", "the"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1 and "is NaN" in result.stderr


def test_context_is_the_models_own_unless_given(tiny):
    async def context(lm):
        return lm.oracle.n_ctx

    assert run(context, tiny) == 256
    assert run(context, tiny, n_ctx=9) == 9


@pytest.mark.parametrize("n_ctx", [0, 257, 400_000_000_000])
def test_context_that_the_model_was_not_trained_for_is_refused_as_on_a_gpu(tiny, n_ctx):
    async def nothing(lm):
        pass

    want = refusal(lambda: on_gpu(nothing, tiny, n_ctx=n_ctx))
    assert f"n_ctx is {n_ctx}; allowed: an integer from 1 to 256" in want[1]
    assert refusal(lambda: run(nothing, tiny, n_ctx=n_ctx)) == want
    assert want[1] in asyncio.run(inspect(tiny, n_ctx=n_ctx))["plan"]["error"]


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_context_that_memory_does_not_hold_is_refused(tiny, monkeypatch, error):
    def full(*args):
        raise error

    monkeypatch.setattr(model.np, "zeros", full)
    with pytest.raises(LimitError, match="65,536 bytes of memory.*smaller context") as caught:
        model.Oracle(tiny, n_ctx=128)
    assert caught.value.needed == 65_536  # 2 layers, 2 heads of 16, keys and values


@pytest.mark.parametrize("prompt", ["", [], [3, 320], [-1], [3] * 17, "x" * 17])
def test_prompt_that_cannot_be_used_is_refused_as_on_a_gpu(tiny, prompt):
    async def text(lm):
        return await lm.generate(prompt, 1, True)

    async def text_on_gpu(lm):
        return await lm.generate(prompt, 1, ignore_eos=True).run()

    want = refusal(lambda: on_gpu(text_on_gpu, tiny, n_ctx=16))
    assert want[0] in (PromptError, ContextFull)
    assert refusal(lambda: run(text, tiny, n_ctx=16)) == want


def test_memory_budget_is_refused_by_name(tiny):
    result = CliRunner().invoke(
        cli.cli, ["run", tiny, "--device", "cpu", "--prompt", "the", "--memory-budget", "1G"]
    )
    assert result.exit_code == 2
    assert result.stderr == (
        "pagelm: a memory budget is for GPU memory, of which the device cpu uses none; leave it out\n"
    )
