"""What a file's header can reach, done to arbitrary bytes; shared by the property tests and the fuzzer."""

import contextlib
from collections.abc import Coroutine
from typing import Any

from pagelm import cursor
from pagelm.device import Source
from pagelm.errors import PagelmError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import hparams_from
from pagelm.sources import MemorySource
from pagelm.tensors import operands_of
from pagelm.tokenizer import tokenizer_from

TEXT = "Hello <|im_end|> world"


def run(coroutine: Coroutine[Any, Any, Gguf]) -> Gguf:
    """The result of a coroutine that never waits, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: Gguf = done.value
        return result
    raise AssertionError("reading from memory waited for something")


def parse(source: Source | bytes) -> Gguf:
    return run(read_gguf(MemorySource(source) if isinstance(source, bytes) else source))


def explore(data: bytes) -> Gguf | None:
    """Parse, check what must hold of every file that parses, and build hyper-parameters and tokenizer.

    Raises: AssertionError when something that must hold does not; anything that is not a PagelmError.
    Returns the parsed header, or None where the file was refused.
    """
    try:
        gguf = parse(data)
    except PagelmError as e:
        assert str(e).isprintable(), "an error message is one line"
        assert len(str(e)) < 4000
        return None
    check(gguf, data)
    with contextlib.suppress(PagelmError):
        operands_of(hparams_from(gguf), gguf)
    with contextlib.suppress(PagelmError):
        tokenizer = tokenizer_from(gguf.metadata)
        ids = tokenizer.encode(TEXT)
        assert all(0 <= i < tokenizer.n_vocab for i in ids)
        tokenizer.decode(ids)
    return gguf


def check(gguf: Gguf, data: bytes) -> None:
    """Tensors lie in the file, aligned, in order, without overlap; a tiny window gives the same result."""
    end = gguf.data_offset
    assert end % gguf.alignment == 0
    for name, t in gguf.tensors.items():
        at = gguf.at(t)
        assert t.name == name and at >= end and at % gguf.alignment == 0
        end = at + t.nbytes
        assert end <= len(data)
        n_elements = 1
        for n in t.shape:
            n_elements *= n
        assert t.nbytes == t.quant.nbytes(n_elements)
    before = cursor.WINDOW, cursor.WINDOW_MAX
    cursor.WINDOW = cursor.WINDOW_MAX = 5
    try:
        again = parse(data)
    finally:
        cursor.WINDOW, cursor.WINDOW_MAX = before
    assert again.tensors == gguf.tensors
    assert repr(again.metadata) == repr(gguf.metadata)  # repr, because NaN is not equal to itself
