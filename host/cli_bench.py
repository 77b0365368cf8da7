"""The commands that measure: bench, bench-gpu, tune, loadtime."""

import sys
from pathlib import Path
from typing import Any

import click

from pagelm.host.interrupt import run_async
from pagelm.host.lm import needing
from pagelm.host.models import is_url
from pagelm.host.options import (
    budget_option,
    ctx_option,
    device_options,
    json_option,
    located,
    model_argument,
    opened,
    progress_lines,
    quiet_option,
)
from pagelm.host.terminal import OUTPUT, FiniteRange, print_json, print_text, write_json


@click.command()
@device_options()
@click.option("--prompt-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--gen", type=click.IntRange(2), default=128, show_default=True, help="Tokens to generate.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--peers", metavar="LIST", help="Programs to compare with, for example llama.cpp:2,wllama.")
@click.option("--context", metavar="LIST", help="Time decoding at these lengths too, for example 128,1024.")
@click.option(
    "--max-noise",
    type=FiniteRange(0),
    default=0.15,
    show_default=True,
    help="Cores that other work may use; a run with more is discarded and repeated.",
)
@click.option("--profile", is_flag=True, help="GPU time of every kernel instead, over 16 tokens or --gen.")
@click.option("--trace", type=OUTPUT, help="Write the profile as a Chrome trace.")
@click.option(
    "--guess", is_flag=True, help="Time guessed against plain decode instead, on rewriting prompts."
)
@click.option(
    "--prompts", type=click.Path(path_type=Path), help="With --guess: prompts, one a line or a JSON list."
)
@click.option("--markdown", type=OUTPUT, help="Write tables here too.")
@json_option
def bench(
    peers: str | None,
    context: str | None,
    max_noise: float,
    profile: bool,
    trace: Path | None,
    guess: bool,
    prompts: Path | None,
    markdown: Path | None,
    as_json: bool,
    quiet: bool,
    **rest: Any,
) -> None:
    """Time prefill and decode: medians over rounds after one that warms up.

    With --peers other programs take turns with pagelm: the same prompt, the same number of tokens. They are
    llama.cpp, llama.cpp-vulkan, wllama and wllama-webgpu; NAME:THREADS sets the threads of one.
    """
    from pagelm.host import bench as benchmark

    if prompts and not guess:
        raise click.UsageError("--prompts goes with --guess")
    profile = profile or trace is not None
    modes = [name for name, asked in (("--profile", profile), ("--guess", guess)) if asked]
    others = {"--peers": peers, "--context": context, "--markdown": markdown}
    rivals = modes[1:] + [name for name, given in others.items() if given is not None]
    if modes and rivals:
        raise click.UsageError(f"{modes[0]} measures something else instead: it does not go with {rivals[0]}")

    device = {
        name: rest.pop(name) for name in ("model", "device", "ctx", "memory_budget", "cache_type", "tune")
    }
    if profile:
        _profile(rest.pop("prompt_tokens"), rest.pop("gen"), trace, as_json, quiet, device)
        return
    if guess:
        _guess(prompts, rest["gen"], rest["rounds"], as_json, quiet, device)
        return
    specs = benchmark.parse_peers(peers) if peers is not None else []
    lengths = benchmark.parse_lengths(context) if context is not None else []
    if specs and is_url(device["model"]):
        raise click.UsageError("--peers needs a model on this machine; give a path or a packaged name")
    needed = max(rest["prompt_tokens"], *lengths, 0) + rest["gen"]
    device["ctx"] = device["ctx"] or benchmark.context_for(needed)
    turns = benchmark.Turns(max_noise=max_noise, say=progress_lines(True, quiet))

    async def main() -> dict[str, Any]:
        path = located(device["model"], quiet) if specs else ""
        async with opened(quiet=quiet, **device) as lm:
            how = {"contexts": lengths, "cache_type": device["cache_type"], "turns": turns}
            return await benchmark.bench(lm, peers=specs, path=path, **how, **rest)

    report = run_async(main())
    print_json(report) if as_json else print_text(benchmark.as_text(report))
    if markdown is not None:
        markdown.write_text(benchmark.as_markdown(report), encoding="utf-8")


def _guess(
    prompts: Path | None, gen: int, rounds: int, as_json: bool, quiet: bool, device: dict[str, Any]
) -> None:
    """`bench --guess`."""
    from pagelm.host.bench import guess as bench_guess

    asked = bench_guess.prompts_of(prompts)

    async def main() -> dict[str, Any]:
        async with opened(quiet=quiet, **device) as lm:
            say = progress_lines(True, quiet)
            return await bench_guess.bench(lm, asked, gen=gen, rounds=rounds, say=say)

    report = run_async(main())
    print_json(report) if as_json else print_text(bench_guess.as_text(report))


def _profile(
    prompt_tokens: int, gen: int, trace: Path | None, as_json: bool, quiet: bool, device: dict[str, Any]
) -> None:
    """`bench --profile`."""
    from pagelm.host import profile as profiling

    async def main() -> dict[str, Any]:
        async with opened(quiet=quiet, **device) as lm:
            tokens = min(gen, profiling.TOKENS)
            return await profiling.profile(lm, prompt_tokens=prompt_tokens, tokens=tokens)

    report = run_async(main())
    if trace is not None:
        write_json(trace, profiling.trace_of(report))
    print_json(report) if as_json else print_text(profiling.as_text(report))


@click.command("bench-gpu")
@click.argument("shapes", nargs=-1)
@click.option("--budget", type=FiniteRange(1), default=300, show_default=True, help="Seconds, in all.")
@budget_option
@click.option("--out", type=OUTPUT, help="Write the report to this JSON file too.")
@json_option
def bench_gpu(
    shapes: tuple[str, ...], budget: float, memory_budget: int | None, out: Path | None, as_json: bool
) -> None:
    """Is the native GPU right and fast? On random weights in the shapes of real models.

    SHAPES are smollm2-135m, llama-3.2-1b, qwen3-8b; all of them if none is given. Exits 1 when something is
    wrong; bars of speed that are missed are reported.
    """
    with needing("numpy", "oracle", "pagelm bench-gpu"):
        from pagelm.host import bench_gpu as benchmark

    chosen = benchmark.shapes_named(shapes)
    say = progress_lines(as_json, False)
    report = run_async(benchmark.bench_gpu(chosen, budget_s=budget, memory_budget=memory_budget, say=say))
    if out is not None:
        write_json(out, report)
    print_json(report) if as_json else print_text(benchmark.as_text(report))
    sys.exit(0 if report["ok"] else 1)


@click.command()
@device_options(tune=False)
@json_option
def tune(as_json: bool, quiet: bool, **device: Any) -> None:
    """Measure which kernels run fastest here, for MODEL's matrices, and keep the choice for later runs.

    Each candidate's result is held to that of the plainest form first: what is wrong is not chosen.
    """
    from pagelm.host.tune import as_text, tuning_of

    async def main() -> dict[str, Any]:
        async with opened(quiet=quiet, tune="force", **device) as lm:
            return tuning_of(lm)

    report = run_async(main())
    print_json(report) if as_json else print_text(as_text(report))


@click.command()
@model_argument
@ctx_option
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@quiet_option
@json_option
def loadtime(model: str, ctx: int | None, rounds: int, quiet: bool, as_json: bool) -> None:
    """Time loading in the browser, from the local server and from stored files: medians over rounds.

    The GPU needs memory for two of the model: it is loaded again with the kernels at hand, for the speed of
    the weights alone.
    """
    from pagelm.host.loadtime import as_text, time_loads

    say = progress_lines(True, quiet)
    with needing("playwright", "browser", "loadtime"):
        report = run_async(time_loads(located(model, quiet), n_ctx=ctx, rounds=rounds, say=say))
    print_json(report) if as_json else print_text(as_text(report))
