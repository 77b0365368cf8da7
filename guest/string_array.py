"""A list of strings in one bytes object, as GGUF's string arrays are kept."""

from array import array
from collections.abc import Iterator, Sequence
from typing import overload


class StringArray(Sequence[str]):
    """Many strings in one bytes object: 49,152 tokens cost two allocations, not 49,152.

    `raw(i)` gives the bytes as they are in the file; `[i]` decodes UTF-8 and keeps broken bytes as
    surrogate escapes, so that `text.encode("utf-8", "surrogateescape")` gives them back.
    """

    __slots__ = ("_blob", "_ends")

    def __init__(self, blob: bytes = b"", ends: "array[int] | None" = None) -> None:
        self._blob = blob
        self._ends = array("I") if ends is None else ends  # where string i ends; it begins where i - 1 ends

    @classmethod
    def of(cls, strings: Sequence[str | bytes]) -> "StringArray":
        """From strings, for tests and for metadata made by hand."""
        raws = [s if isinstance(s, bytes) else s.encode("utf-8", "surrogateescape") for s in strings]
        ends, end = array("I"), 0
        for raw in raws:
            end += len(raw)
            ends.append(end)
        return cls(b"".join(raws), ends)

    def __len__(self) -> int:
        return len(self._ends)

    def raw(self, i: int) -> bytes:
        """The bytes of string `i`."""
        if i < 0:
            i += len(self._ends)
        if not 0 <= i < len(self._ends):
            raise IndexError(f"string {i} of {len(self._ends)}")
        return self._blob[self._ends[i - 1] if i else 0 : self._ends[i]]

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        return self.raw(i).decode("utf-8", "surrogateescape")

    def raws(self) -> Iterator[bytes]:
        """All strings as bytes, in order."""
        start = 0
        for end in self._ends:
            yield self._blob[start:end]
            start = end

    def __iter__(self) -> Iterator[str]:
        for raw in self.raws():
            yield raw.decode("utf-8", "surrogateescape")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StringArray):
            return NotImplemented
        return self._blob == other._blob and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray of {len(self)} strings, {len(self._blob)} bytes"
