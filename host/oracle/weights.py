"""The oracle's view of a GGUF model: hyper-parameters, raw bytes of operands, float32 operands decoded once.

Header and checks are the guest's own (`pagelm.gguf`, `pagelm.hparams`, `pagelm.tensors`); the numbers are
decoded here.
"""

import os
from collections.abc import Coroutine, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagelm.device import Source
from pagelm.gguf import Gguf
from pagelm.host.oracle.dequant import DEQUANT
from pagelm.host.oracle.half import F32
from pagelm.hparams import hparams_from
from pagelm.sources import FileSource
from pagelm.split import SplitSource, read_model
from pagelm.tensors import operands_of

T = TypeVar("T")


class Weights:
    """A model's operands by name. Bytes are mapped, not read; `tensor` decodes on first use and keeps it.

    The path of any part of a split model stands for all of it. Instead of a path there may be a source whose
    reads need no waiting.
    Raises: SourceError, GgufError, ArchError, as loading for a GPU does.
    """

    def __init__(self, model: str | os.PathLike[str] | Source) -> None:
        self._files: list[NDArray[np.uint8]] = []
        if isinstance(model, str | os.PathLike):
            self._source: Source = SplitSource([FileSource(model)])
            try:
                self.gguf: Gguf = _finish(read_model(self._source))
            finally:
                self._source.close()
            self._files = [np.memmap(part.name, np.uint8, mode="r") for part in self.gguf.parts]
        else:
            self._source = model
            self.gguf = _finish(read_model(model))
        self.hparams = hparams_from(self.gguf)
        self.operands = operands_of(self.hparams, self.gguf)
        self._decoded: dict[str, F32] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.operands

    def shape(self, name: str) -> tuple[int, ...]:
        """Rows and columns of a matrix, the elements of a vector."""
        operand = self.operands[name]
        return (operand.n_rows, operand.n_in) if operand.n_in else (operand.n_rows,)

    def quant(self, name: str) -> str:
        """The operand's type, as GGUF names it."""
        return self.gguf.tensors[self.operands[name].tensor].quant.name

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The operand's bytes, as one flat array."""
        operand = self.operands[name]
        info = self.gguf.tensors[operand.tensor]
        row = info.nbytes * max(1, operand.n_in) // prod(info.shape)
        at, nbytes = self.gguf.at(info) + operand.row0 * row, operand.n_rows * row
        if not self._files:
            return np.frombuffer(_finish(self._source.read(at, nbytes)), np.uint8)
        at -= self.gguf.parts[info.part].at
        return np.asarray(self._files[info.part][at : at + nbytes])

    def rows(self, name: str, ids: Sequence[int]) -> F32:
        """Some rows of a matrix in float32 (len(ids), columns), without decoding the others."""
        if name in self._decoded:
            return self._decoded[name][list(ids)]
        n_rows, n_columns = self.shape(name)
        picked = self.raw(name).reshape(n_rows, -1)[list(ids)]
        return DEQUANT[self.quant(name)](picked.reshape(-1)).reshape(-1, n_columns)

    def tensor(self, name: str) -> F32:
        """The operand in float32, shape outermost first."""
        if name not in self._decoded:
            self._decoded[name] = DEQUANT[self.quant(name)](self.raw(name)).reshape(self.shape(name))
        return self._decoded[name]

    def vector(self, name: str) -> F32 | None:
        """A vector that may be absent, as biases are."""
        return self.tensor(name) if name in self else None


def _finish(reading: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits (a file's reads are immediate), inside an event loop or outside."""
    try:
        reading.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("reading from the oracle's source had to wait")
