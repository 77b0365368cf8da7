"""What the commands share about terminals: output, one-line errors, exit codes."""

import codecs
import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from pagelm.errors import PagelmError, PromptError, SourceError
from pagelm.host import interrupt

NO_READER = 141  # 128 + SIGPIPE
MAX_TEXT = 64 << 20  # bytes of a text; more is no prompt, or has no end


class OutputError(PagelmError):
    """Standard output, standard error or a file cannot be written: closed, a full disk."""


class OneLineGroup(click.Group):
    """A group whose errors are one line on stderr, with exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        _replace_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal that lacks a character gets its escape
                stream.reconfigure(errors="backslashreplace")
        try:
            if sys.stdout is None:
                raise OutputError(
                    "standard output is closed; send it somewhere, to /dev/null if nowhere else"
                )
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.UsageError as e:
            command = e.ctx.command_path if e.ctx else "pagelm"
            self._fail(f"{e.format_message().rstrip('.')} (see {command} --help)")
        except click.ClickException as e:
            self._fail(e.format_message())
        except PagelmError as e:
            self._fail(f"{e}")
        except (click.Abort, KeyboardInterrupt):
            sys.exit(interrupt.EXIT_CODE)
        finally:
            _drop_what_cannot_be_written()
        sys.exit(result if isinstance(result, int) else 0)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with self._one_line():  # --help and --version print from here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with self._one_line():
            return super().invoke(ctx)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}; there are {', '.join(self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        """What the system refuses, as an error of one line; click would have its own way with some of it."""
        try:
            yield
        except KeyboardInterrupt:
            sys.exit(interrupt.EXIT_CODE)
        except BrokenPipeError:
            sys.exit(NO_READER)
        except OSError as e:
            self._fail(f"{e.filename or 'reading or writing failed'}: {e.strerror or e}")
        except MemoryError as e:
            self._fail(f"out of memory{f': {e}' if str(e) else ''}; use a smaller model or a smaller --ctx")

    @staticmethod
    def _fail(message: str) -> NoReturn:
        line = " ".join(part.strip() for part in message.splitlines() if part.strip())
        with contextlib.suppress(OSError, OutputError):  # nobody is left to be told
            print_text(f"pagelm: {line}\n", err=True)
        sys.exit(2)


def _replace_closed_streams() -> None:
    """A closed stdin or stderr becomes one that is empty or forgets.

    Python has None for them, and the next file opened, perhaps the model, would get their number.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")


def _drop_what_cannot_be_written() -> None:
    """Else Python would try again at exit, complain and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class ByteCount(click.ParamType):
    """Bytes as a number, or with a binary suffix: 512M, 512MiB, 2G."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+)\s*([KMG]?)(i?B)?", value.strip(), re.IGNORECASE)
        if not found:
            self.fail(f"{value!r} is no number of bytes; allowed: digits, then K, M or G", param, ctx)
        return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]


BYTES = ByteCount()


class OutputFile(click.ParamType):
    """A file to be written later: what would stop that is told before the work, not after it."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            self.fail("it is empty; allowed: the name of a file", param, ctx)
        path = Path(value)
        if path.is_dir():
            self.fail(f"{path} is a directory; allowed: the name of a file", param, ctx)
        if not path.parent.is_dir():
            self.fail(f"{path.parent} is no directory; make it first", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{path} cannot be written; choose another place", param, ctx)
        return path


OUTPUT = OutputFile()


class FiniteRange(click.FloatRange):
    """A range without NaN, which every comparison lets through."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number; allowed: {self._describe_range()}", param, ctx)
        return number


def write_json(path: Path, value: Any) -> None:
    """Raises: OutputError when the file cannot be written."""
    try:
        path.write_text(json.dumps(_finite(value), allow_nan=False) + "\n", encoding="utf-8")
    except OSError as e:
        raise OutputError(f"{path}: it cannot be written: {e.strerror or e}") from e


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark. Raises: SourceError."""
    try:
        with path.open("rb") as file:
            return _decoded(file.read(MAX_TEXT + 1), str(path))
    except OSError as e:
        raise SourceError(f"{path}: cannot be read: {e.strerror or e}") from e


def read_stdin() -> str:
    """The UTF-8 text on standard input, without a byte order mark. Raises: SourceError."""
    try:
        return _decoded(sys.stdin.buffer.read(MAX_TEXT + 1), "standard input")
    except OSError as e:
        raise SourceError(f"standard input cannot be read: {e.strerror or e}") from e


def _decoded(data: bytes, name: str) -> str:
    if len(data) > MAX_TEXT:
        raise SourceError(f"{name}: longer than {MAX_TEXT:,} bytes, the most that is read; give less text")
    mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    try:
        return data[mark:].decode("utf-8")
    except UnicodeDecodeError as e:
        at = mark + e.start
        raise SourceError(
            f"{name}: not UTF-8 text: byte 0x{data[at]:02x} at offset {at}; save it as UTF-8"
        ) from e


def checked_text(text: str, what: str) -> str:
    """`text` from the command line, when all of it was UTF-8. Raises: PromptError."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise PromptError(f"{what} is not UTF-8 text: character {e.start} is a broken byte") from e
    return text


def print_text(text: str, err: bool = False) -> None:
    """Text to stdout or stderr, at once. Raises: OutputError; BrokenPipeError when the reader went away."""
    stream = sys.stderr if err else sys.stdout
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        name = "standard error" if err else "standard output"
        raise OutputError(f"{name} cannot be written: {e.strerror or e}; send it elsewhere") from e


def visible(text: str) -> str:
    """Text in quotes on one line: line breaks and control characters escaped, everything else as it is."""
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f"'{shown}'"


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on a line of its own. What JSON has no number for (infinity, NaN) becomes null."""
    print_text(json.dumps(_finite(value), allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
