"""The oracle's view of a GGUF model: hyper-parameters, raw tensor bytes, float32 tensors decoded once.

Header and checks are the guest's own (`pagelm.gguf`, `pagelm.hparams`); the numbers are decoded here.
"""

import os
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagelm.device import Source
from pagelm.gguf import Gguf
from pagelm.host.oracle.dequant import DEQUANT
from pagelm.host.oracle.half import F32
from pagelm.hparams import expected_tensors, hparams_from
from pagelm.sources import FileSource
from pagelm.split import opened_parts

T = TypeVar("T")


class Weights:
    """A model's tensors by name. Bytes are mapped, not read; `tensor` decodes on first use and keeps it.

    The path of any part of a split model stands for all of it, if the others lie beside it. Instead of a path
    there may be a source whose reads need no waiting, or several: the parts of a split model.
    Raises: SourceError, GgufError, ArchError, as loading for a GPU does.
    """

    def __init__(self, model: str | os.PathLike[str] | Source | Sequence[Source]) -> None:
        self._files: list[NDArray[np.uint8]] = []
        self._sources: list[Source] = []
        if isinstance(model, str | os.PathLike):
            source = FileSource(model)
            try:
                self.gguf, _ = _finish(_read(source))
            finally:
                source.close()
            self._files = [np.memmap(part.name, np.uint8, mode="r") for part in self.gguf.parts]
        else:
            self.gguf, self._sources = _finish(_read(model))
        self.hparams = hparams_from(self.gguf)
        self.shapes = expected_tensors(self.hparams, self.gguf)
        self._decoded: dict[str, F32] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def quant(self, name: str) -> str:
        """The tensor's type, as GGUF names it."""
        return self.gguf.tensors[name].quant.name

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, as one flat array."""
        info = self.gguf.tensors[name]
        at = self.gguf.at(info)
        if self._files:
            return np.asarray(self._files[info.part][at : at + info.nbytes])
        return np.frombuffer(_finish(self._sources[info.part].read(at, info.nbytes)), np.uint8)

    def rows(self, name: str, ids: Sequence[int]) -> F32:
        """Some rows of a matrix in float32 (len(ids), columns), without decoding the others."""
        if name in self._decoded:
            return self._decoded[name][list(ids)]
        n_rows, n_columns = self.shapes[name]
        picked = self.raw(name).reshape(n_rows, -1)[list(ids)]
        return DEQUANT[self.quant(name)](picked.reshape(-1)).reshape(-1, n_columns)

    def tensor(self, name: str) -> F32:
        """The tensor in float32, shape outermost first."""
        if name not in self._decoded:
            self._decoded[name] = DEQUANT[self.quant(name)](self.raw(name)).reshape(self.shapes[name])
        return self._decoded[name]


async def _read(model: Source | Sequence[Source]) -> tuple[Gguf, list[Source]]:
    async with opened_parts(model) as (gguf, sources):
        return gguf, sources


def _finish(reading: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits (a file's reads are immediate), inside an event loop or outside."""
    try:
        reading.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("reading from the oracle's source had to wait")
