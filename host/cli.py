"""The command `pagelm`. Each subcommand is one short function; the work is in the modules it calls.

With --json a command prints exactly one JSON object to stdout. Otherwise text goes to stdout, progress
and timing to stderr. Exit codes: 0 done, 1 `check` found the device wrong, 2 an error in what was given
or in what was found (one line on stderr), 130 Ctrl-C, 141 whoever read the output went away.
"""

import sys
from pathlib import Path
from typing import Any

import click

import pagelm
from pagelm.errors import TokenizerError
from pagelm.host.cli_bench import bench, bench_gpu, loadtime, tune
from pagelm.host.interrupt import ending_on_ctrl_c, run_async
from pagelm.host.lm import needing
from pagelm.host.models import is_url
from pagelm.host.options import (
    budget_option,
    cache_option,
    ctx_option,
    device_options,
    json_option,
    located,
    model_argument,
    opened,
    progress_lines,
)
from pagelm.host.terminal import (
    OneLineGroup,
    checked_text,
    print_json,
    print_text,
    read_stdin,
    read_text,
    visible,
)


@click.group(
    cls=OneLineGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(pagelm.__version__, message="pagelm %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """GGUF language models on WebGPU, in the browser page and natively.

    MODEL is a .gguf file or an http(s) URL (of a split model any part's), or a packaged name: smollm2 (the
    default).
    """
    if ctx.invoked_subcommand is None:
        print_text(f"{ctx.get_help()}\n")


@cli.command()
@device_options(activations=True)
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
                rule = checks.rule_for(rest["cache_type"], oracle.hparams.n_expert)
                return await checks.check(lm, oracle, asked, steps=max_tokens, rule=rule, say=say)

    report = run_async(main())
    if as_json:
        print_json(report)
    sys.exit(0 if report["ok"] else 1)


@cli.command()
@model_argument
@ctx_option
@budget_option
@cache_option
@click.option("--full", is_flag=True, help="Do not shorten long arrays (with --json).")
@json_option
def inspect(
    model: str, ctx: int | None, memory_budget: int | None, cache_type: str, full: bool, as_json: bool
) -> None:
    """Show metadata, tensors and memory plan; reads the header alone."""
    from pagelm.host import inspect as inspection

    path = located(model)
    report = run_async(
        inspection.inspect(
            path, n_ctx=ctx, memory_budget=memory_budget, cache_type=cache_type, full=full and as_json
        )
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
@json_option
def capabilities(as_json: bool) -> None:
    """Architectures by tensor types: what runs, how that was proven, and on which adapters."""
    from pagelm.host import capabilities as matrix

    found = matrix.capabilities()
    if as_json:
        print_json(found)
        return
    print_text("\n".join([matrix.table(found), "", *matrix.notes(found), ""]))


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


for command in (bench, bench_gpu, tune, loadtime):
    cli.add_command(command)


def main() -> None:
    """Entry point of the command `pagelm`."""
    with ending_on_ctrl_c():
        cli(prog_name="pagelm")


if __name__ == "__main__":
    main()
