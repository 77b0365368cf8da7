"""Split models: several GGUF files that make one, as llama.cpp's gguf-split writes them.

Every part says which one it is (split.no, from 0) and of how many (split.count); the metadata is in the
first, and each has the table of its own tensors. What counts is what the files say, in whatever order they
are given; names (NAME-00001-of-00003.gguf) only lead from one part to the others.

Source: llama.cpp's tools/gguf-split/gguf-split.cpp and src/llama-model-loader.cpp. Stricter where noted.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from .cancel import Cancel
from .device import Chunk, NamedSource, RestingSource, Source
from .errors import SourceError, SplitError
from .gguf import Gguf, read_gguf, shown
from .sources import check_range

MAX_PARTS = 512  # all of them are open while the headers are read
_NUMBERS = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf(?:[?#]|$))", re.IGNORECASE)
_OWN = ("split.no", "general.alignment")  # keys in which the parts of one model may differ


def part_names(name: str) -> list[str]:
    """Paths or URLs of all parts, in order, from that of any part; empty when `name` is not a part's."""
    numbers = _NUMBERS.search(name)
    count = int(numbers[2]) if numbers else 0
    if not numbers or not 1 <= int(numbers[1]) <= count <= MAX_PARTS:
        return []
    return [
        f"{name[: numbers.start()]}-{no:05}-of-{numbers[2]}{name[numbers.end() :]}"
        for no in range(1, count + 1)
    ]


class SplitSource:
    """A model's files as one source: the parts of a split model one after another, in the order given.

    One file may be all there is, or one part that is a `NamedSource`: then `header` opens the others, from
    where on `size` is that of all. `close` closes them, and those given.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        self._reading = 0  # index of the part that the last chunk was of
        self._arrange()

    def _arrange(self) -> None:
        self.name = self._sources[0].name
        ends = [*accumulate(source.size for source in self._sources)]
        self._starts = [0, *ends[:-1]]
        self.size = ends[-1]

    async def header(self, cancel: Cancel | None = None) -> Gguf:
        """The header of the whole model, whose positions are those of this source.

        Raises: SplitError when parts are missing, twice there or not of one model; GgufError from a header;
        SourceError when a part cannot be opened or read; Cancelled.
        """
        headers = [await _header(source, cancel) for source in self._sources]
        if len(headers) == 1:
            for name in _others(headers[0], self._sources[0]):
                self._sources.append(await _another(self._sources[0], name))
                headers.append(await _header(self._sources[-1], cancel))
            self._arrange()
        order = _order(headers)
        first, *others = (headers[i] for i in order)
        _check_tensors([first, *others])
        return first.joined(others, order) if others else first

    async def read(self, at: int, nbytes: int) -> bytes:
        check_range(self.name, self.size, at, nbytes)
        i = self._part(at)
        inside = at - self._starts[i]
        n = min(nbytes, self._sources[i].size - inside)
        data = await self._sources[i].read(inside, n)
        return data if n == nbytes else data + await self.read(at + n, nbytes - n)

    def chunks(self, chunk: Chunk) -> Iterator[tuple[Source, Chunk]]:
        """What of a chunk is to be read from which part, the positions being those in the part."""
        for i, group in groupby(chunk.pieces, key=lambda piece: self._part(piece.at)):
            start = self._starts[i]
            pieces = tuple(replace(piece, at=piece.at - start) for piece in group)
            at = min(piece.at for piece in pieces)
            if i != self._reading:
                # There may be many parts, and each would keep its connection and its buffer.
                _rest(self._sources[self._reading])
                self._reading = i
            yield self._sources[i], Chunk(at, max(piece.at + piece.nbytes for piece in pieces) - at, pieces)

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def _part(self, at: int) -> int:
        """Index of the file that has the byte at this position; of the last one at the end."""
        return max(0, bisect_right(self._starts, at) - 1)


async def read_model(source: Source, cancel: Cancel | None = None) -> Gguf:
    """The header of a model; from a `SplitSource` that of all parts. Raises: as `SplitSource.header`."""
    if isinstance(source, SplitSource):
        return await source.header(cancel)
    header = await _header(source, cancel)
    _order([header])
    return header


def chunks_of(source: Source, chunk: Chunk) -> Iterable[tuple[Source, Chunk]]:
    """The files that a chunk is read from, and the part of it that is in each, its positions those there."""
    return source.chunks(chunk) if isinstance(source, SplitSource) else [(source, chunk)]


def _rest(source: Source) -> None:
    if isinstance(source, RestingSource):
        source.rest()


async def _header(source: Source, cancel: Cancel | None) -> Gguf:
    if cancel is not None:
        cancel.check("reading the header")
    return await read_gguf(source)


def _count(header: Gguf) -> int:
    """Parts of the model that this one belongs to; 1 for a whole model."""
    return max(1, header.uint("split.count", default=1))


def _number(header: Gguf) -> int:
    """Number of a part, from 1, for people; `split.no` and `split.count` are in range."""
    return header.uint("split.no") + 1


def _others(header: Gguf, source: Source) -> list[str]:
    """Names of the parts that belong to the only one given."""
    count = _count(header)
    if count == 1:
        return []
    _check_numbers(header)
    missing = f"the other {count - 1} are missing" if count > 2 else "the other one is missing"
    found = f"{header.name}: it is part {_number(header)} of {count} (split.no, split.count); {missing}"
    if not isinstance(source, NamedSource):
        raise SplitError(f"{found}: give all parts together, as a list", field="metadata split.count")
    names = part_names(source.name)
    if len(names) != count or source.name not in names:
        raise SplitError(
            f"{found}, and are looked for where the name ends in -{_number(header):05}-of-{count:05}.gguf; "
            "rename the files, or give all parts together, as a list",
            field="metadata split.count",
        )
    return [name for name in names if name != source.name]


async def _another(source: Source, name: str) -> Source:
    assert isinstance(source, NamedSource)
    try:
        return await source.another(name)
    except SourceError as e:
        raise SourceError(
            f"{e}; it is needed with {source.name}, as one of the {len(part_names(name))} parts of a model: "
            "put all of them beside each other, or give all together, as a list"
        ) from None


def _check_numbers(header: Gguf) -> None:
    """Raises: GgufError when split.count or split.no is not a number in its range."""
    if not 1 < header.uint("split.count") <= MAX_PARTS:
        raise header.error("split.count", f"2 to {MAX_PARTS} in a part of a split model")
    if header.uint("split.no") >= _count(header):
        raise header.error("split.no", f"0 to {_count(header) - 1}, split.count being {_count(header)}")


def _order(headers: Sequence[Gguf]) -> list[int]:
    """Indices of the parts in order. Raises: SplitError unless they are all the parts of one model."""
    first = headers[0]
    if len(headers) == _count(first) == 1:
        return [0]
    at: dict[int, int] = {}  # split.no -> index
    for i, header in enumerate(headers):
        if _count(header) == 1:
            raise SplitError(
                f"{header.name}: it is no part of a split model (it has no split.count above 1), but "
                f"{len(headers)} files were given; give a whole model alone",
                field="metadata split.count",
            )
        _check_numbers(header)
        if _count(header) != _count(first):
            raise _differ(first, header, "split.count")
        if (other := at.setdefault(_number(header) - 1, i)) != i:
            raise SplitError(
                f"{headers[other].name} and {header.name}: both are part {_number(header)} of "
                f"{_count(first)} (split.no {_number(header) - 1}); give each part once",
                field="metadata split.no",
            )
        _check_together(first, header)
    missing = [no for no in range(_count(first)) if no not in at]
    if missing:
        told = ", ".join(str(no + 1) for no in missing[:8]) + (", …" if len(missing) > 8 else "")
        told = f"parts {told} are missing" if len(missing) > 1 else f"part {told} is missing"
        have = ", ".join(f"{headers[i].name} is part {no + 1}" for no, i in sorted(at.items())[:8])
        name = headers[at[min(at)]].name
        raise SplitError(
            f"{name}: of {_count(first)} parts (split.count) {told}; given: {have}",
            field="metadata split.no",
        )
    return [at[no] for no in range(len(headers))]


def _check_together(first: Gguf, header: Gguf) -> None:
    """What tells parts of different models apart that have as many: names, and metadata that both have.

    Stricter than llama.cpp, which trusts the names alone.
    """
    stems = [re.split(r"[/\\]", name[: numbers.start()])[-1] for name, numbers in _numbered(first, header)]
    if len(stems) == 2 and stems[0] != stems[1]:
        raise SplitError(
            f"{first.name} and {header.name}: these are names of parts of two models; give the parts of one "
            f"(or rename them, if they are {stems[0]}-…-of-….gguf both)",
            field="metadata split.no",
        )
    for key, value in header.metadata.items():
        same = first.metadata.get(key, value)
        # by text, because a NaN is not equal to itself
        if isinstance(value, str | int | float) and key not in _OWN and repr(same) != repr(value):
            raise _differ(first, header, key)


def _numbered(*headers: Gguf) -> list[tuple[str, re.Match[str]]]:
    return [(h.name, numbers) for h in headers if (numbers := _NUMBERS.search(h.name))]


def _differ(first: Gguf, header: Gguf, key: str) -> SplitError:
    values = [shown(h.metadata[key]) for h in (first, header)]
    return SplitError(
        f"{first.name} and {header.name}: {key} is {values[0]} in the one and {values[1]} in the other; "
        "give the parts of one model",
        field=f"metadata {key}",
    )


def _check_tensors(headers: Sequence[Gguf]) -> None:
    """Raises: SplitError when a tensor is in two parts, or not as many are there as the parts say."""
    where: dict[str, Gguf] = {}
    for header in headers:
        for name in header.tensors:
            if name in where:
                raise SplitError(
                    f"{where[name].name} and {header.name}: both have the tensor {name}; give the parts of "
                    "one model",
                    field=f"tensor {name}",
                )
            where[name] = header
    if len(headers) == 1:
        return
    for header in headers:
        count = header.uint("split.tensors.count", default=len(where))
        if count != len(where):
            raise SplitError(
                f"{header.name}: split.tensors.count is {count}, and all {len(headers)} parts together have "
                f"{len(where)} tensors; give the parts of one model",
                field="metadata split.tensors.count",
            )
