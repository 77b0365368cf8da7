"""GGUF v2 and v3: the bytes of a header -> metadata and the tensor table. Never reads weights.

The reader streams over a `Source` in windows and believes nothing: every count, length, offset and
product is compared with the bytes that exist before anything is made of it, and what it keeps grows
only with bytes it has seen. So a count of 2^60 costs no memory and no time.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's ggml/src/gguf.cpp,
whose checks are mirrored; stricter where noted.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from .cursor import MAX_HEADER, Cursor
from .device import Source
from .errors import GgufError
from .quants import BY_GGML_TYPE, Quant
from .string_array import StringArray

MAX_SAFE = (1 << 53) - 1  # the largest integer that JavaScript can hold exactly
MAX_COUNT = 1 << 16  # key-values, and tensors; real files have tens and hundreds
MAX_KEY = 65535  # bytes, the specification's limit
MAX_BOOLS = 1 << 20  # elements of a bool array, which are kept as Python objects
MAX_TENSOR_NAME = 64  # bytes, the specification's limit (llama.cpp: 63)
MAX_DIMS = 4
MAX_ALIGNMENT = 1 << 20  # bytes; llama.cpp sets no bound
DEFAULT_ALIGNMENT = 32
MIN_KV = 8 + 1 + 4 + 1  # bytes of the shortest key-value: length, one-byte key, type, one-byte value
MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8  # name length, one-byte name, n_dims, one dimension, type, offset

_BOOL, _STRING, _ARRAY = 7, 8, 9
# GGUF value type -> (name, typecode of `struct` and `array`)
_NUMBERS = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_UINT32 = 4
_SEEMS = {
    b"<": "a web page: the link leads to a page or an error, not to the model file",
    b"PK": "a zip archive",
    b"vers": "a Git LFS pointer: fetch the file itself",
    b"tjgg": "llama.cpp's format before GGUF; convert the model again",
}
_REMOVED_TYPES = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8"}
_REMOVED_TYPES |= {36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8"}

Value = bool | int | float | str | StringArray | array | list[bool]  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table. `shape` is outermost first (rows, columns); `offset` and `nbytes` are
    bytes, the offset counted from the start of the data section of its file: number `part` of the model's."""

    name: str
    shape: tuple[int, ...]
    quant: Quant
    offset: int
    nbytes: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a model: most models have one, split ones (see split.py) several. `at` is where it begins
    in all of them one after another, `data_offset` where its data begin in itself. Bytes."""

    name: str
    at: int
    data_offset: int
    size: int


class _Required:
    """The default of a getter that has none."""


REQUIRED = _Required()
T = TypeVar("T")


class Gguf:
    """A parsed header. `tensors` is in file order; `size`, `alignment` and `data_offset` are bytes.

    Of a split model `tensors` has those of all `parts`, `size` is their sum, the rest is the first part's.

    The typed getters raise GgufError naming the key, what was found and what is allowed. Without a
    default the key must be there.
    """

    __slots__ = (
        "_where",
        "alignment",
        "data_offset",
        "metadata",
        "name",
        "parts",
        "size",
        "tensors",
        "version",
    )

    def __init__(
        self,
        *,
        name: str = "memory",
        version: int = 3,
        metadata: dict[str, Value] | None = None,
        tensors: dict[str, TensorInfo] | None = None,
        alignment: int = DEFAULT_ALIGNMENT,
        data_offset: int = 0,
        size: int = 0,
        where: dict[str, int] | None = None,
        parts: tuple[Part, ...] = (),
    ) -> None:
        self.name = name
        self.version = version
        self.metadata = {} if metadata is None else metadata
        self.tensors = {} if tensors is None else tensors
        self.alignment = alignment
        self.data_offset = data_offset
        self.size = size
        self.parts = parts or (Part(name, 0, data_offset, size),)
        self._where = {} if where is None else where  # key -> byte position of its value, for messages

    @property
    def header_bytes(self) -> int:
        """Bytes in front of the data, in all parts together."""
        return sum(part.data_offset for part in self.parts)

    def at(self, t: TensorInfo) -> int:
        """The position of a tensor's first byte in the file, or in all parts of a model one after another."""
        part = self.parts[t.part]
        return part.at + part.data_offset + t.offset

    def joined(self, others: Sequence["Gguf"], order: Sequence[int]) -> "Gguf":
        """The header of a split model, this one being of its first part and `others` those of the parts that
        follow; `order` has the place of each file among all of them one after another."""
        headers = [self, *others]
        at = [sum(h.size for h, o in zip(headers, order, strict=True) if o < place) for place in order]
        tensors: dict[str, TensorInfo] = {}
        for part, header in enumerate(headers):
            tensors |= {name: replace(t, part=part) for name, t in header.tensors.items()}
        return Gguf(
            name=self.name,
            version=self.version,
            metadata=self.metadata,
            tensors=tensors,
            alignment=self.alignment,
            data_offset=self.data_offset,
            size=sum(header.size for header in headers),
            where=self._where,
            parts=tuple(Part(h.name, a, h.data_offset, h.size) for h, a in zip(headers, at, strict=True)),
        )

    def error(self, key: str, allowed: str) -> GgufError:
        """A GgufError for `key`: what it holds, where, and what is allowed instead."""
        found = f"is {shown(self.metadata[key])}" if key in self.metadata else "is missing"
        return GgufError(
            f"{self.name}: {key} {found}; allowed: {allowed}",
            field=f"metadata {key}",
            offset=self._where.get(key),
        )

    def string(self, key: str, default: T | _Required = REQUIRED) -> str | T:
        """A string."""
        value = self.metadata.get(key)
        if isinstance(value, str):
            return value
        return self._default(key, default, "a string")

    def uint(self, key: str, default: T | _Required = REQUIRED, *, most: int = MAX_SAFE) -> int | T:
        """An integer of any width from 0 to `most`, by default what JavaScript can hold exactly."""
        value = self.metadata.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        return self._default(key, default, f"an integer from 0 to {most}")

    def number(self, key: str, default: T | _Required = REQUIRED) -> float | T:
        """A float or an integer; NaN and infinities pass, the caller knows what makes sense."""
        value = self.metadata.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return self._default(key, default, "a number")

    def flag(self, key: str, default: T | _Required = REQUIRED) -> bool | T:
        """A bool."""
        value = self.metadata.get(key)
        if isinstance(value, bool):
            return value
        return self._default(key, default, "true or false")

    def strings(self, key: str, default: T | _Required = REQUIRED) -> StringArray | T:
        """An array of strings."""
        value = self.metadata.get(key)
        if isinstance(value, StringArray):
            return value
        return self._default(key, default, "an array of strings")

    def ints(self, key: str, default: T | _Required = REQUIRED) -> "array[int] | T":
        """An array of integers of any width."""
        value = self.metadata.get(key)
        if isinstance(value, array) and value.typecode not in "fd":
            return value
        return self._default(key, default, "an array of integers")

    def floats(self, key: str, default: T | _Required = REQUIRED) -> "array[float] | T":
        """An array of float32 or float64."""
        value = self.metadata.get(key)
        if isinstance(value, array) and value.typecode in "fd":
            return value
        return self._default(key, default, "an array of floats")

    def _default(self, key: str, default: T | _Required, allowed: str) -> T:
        if key in self.metadata or isinstance(default, _Required):
            raise self.error(key, allowed)
        return default


def shown(value: object) -> str:
    """A metadata value for a message: escaped, at most about 80 characters, arrays by size and type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, StringArray):
        return f"an array of {len(value)} strings"
    if isinstance(value, array):
        kind = next(name for name, code in _NUMBERS.values() if code == value.typecode)
        return f"an array of {len(value)} {kind}"
    if isinstance(value, list):
        return f"an array of {len(value)} bool"
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}… ({len(value)} characters)"
    return repr(value)


async def read_gguf(source: Source) -> Gguf:
    """Read metadata and tensor table. Cost is linear in the bytes of the header; weights are not read.

    Raises: GgufError naming the field and the byte where it was read; SourceError from the source.
    """
    cur = Cursor(source)
    if source.size > MAX_SAFE:
        raise cur.fail("file.size", f"the file has {source.size} bytes; allowed: at most {MAX_SAFE}")
    version, n_tensors, n_kv = await _read_counts(cur)
    metadata: dict[str, Value] = {}
    where: dict[str, int] = {}
    alignment = DEFAULT_ALIGNMENT
    for i in range(n_kv):
        key = await _read_name(cur, f"kv[{i}].key", MAX_KEY, metadata)
        at = cur.pos
        field = f"metadata {key if len(key) <= 80 else key[:80] + '…'}"
        kind = await cur.u32(f"{field}.type")
        where[key] = cur.pos
        metadata[key] = value = await _read_value(cur, kind, field, at)
        if key == "general.alignment":
            alignment = _checked_alignment(cur, kind, value, where[key])
    tensors, data_offset = await _read_tensors(cur, n_tensors, alignment)
    return Gguf(
        name=source.name,
        version=version,
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_offset=data_offset,
        size=source.size,
        where=where,
    )


async def _read_counts(cur: Cursor) -> tuple[int, int, int]:
    magic = await cur.take(4, "header.magic")
    if magic != b"GGUF":
        hint = next((f" ({what})" for start, what in _SEEMS.items() if magic.startswith(start)), "")
        raise cur.fail("header.magic", f"not a GGUF file: it begins with {magic!r}{hint}", 0)
    version = await cur.u32("header.version")
    if version not in (2, 3):
        if version and not version & 0xFFFF:
            why = f"the file is big-endian (version reads {version:#x}); convert it to little-endian"
        elif version == 1:
            why = "GGUF version 1 is not supported; convert the model again"
        else:
            why = f"GGUF version {version} is not known"
        raise cur.fail("header.version", f"{why}; supported: 2, 3", 4)
    counts = []
    for field, each in (("header.n_tensors", MIN_TENSOR), ("header.n_kv", MIN_KV)):
        at = cur.pos
        n = await cur.u64(field)
        if n > MAX_COUNT:
            raise cur.fail(field, f"{n} entries; allowed: at most {MAX_COUNT}", at)
        if n * each > cur.left:
            raise cur.fail(field, f"{n} entries need {n * each} bytes or more, {cur.left} are left", at)
        counts.append(n)
    return version, counts[0], counts[1]


async def _read_name(
    cur: Cursor, field: str, most: int, seen: dict[str, Value] | dict[str, TensorInfo]
) -> str:
    """A key or tensor name: 1 to `most` bytes of printable UTF-8, not seen before.

    The specification wants lower snake case; llama.cpp takes anything. What would break a message of one
    line, or play with the terminal, is refused.
    """
    at = cur.pos
    raw = await cur.string(field, most)
    if not raw:
        raise cur.fail(field, f"an empty name; allowed: 1 to {most} bytes", at)
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise cur.fail(field, f"the name {raw[:60]!r} is not UTF-8", at + 8 + e.start) from None
    if not name.isprintable():
        raise cur.fail(field, f"the name {shown(name)} has characters that cannot be printed", at + 8)
    if name in seen:
        raise cur.fail(field, f"{shown(name)} appears twice", at)
    return name


async def _read_value(cur: Cursor, kind: int, field: str, at: int) -> Value:
    """A value of GGUF type `kind`, whose number was read at `at`."""
    if kind in _NUMBERS:
        return await cur.number(_NUMBERS[kind][1], field)
    if kind == _BOOL:
        return bool((await _read_bools(cur, 1, field))[0])
    if kind == _STRING:
        # Text for people and templates; what must keep its bytes (tokens, merges) comes in arrays.
        return (await cur.string(field)).decode("utf-8", "replace")
    if kind == _ARRAY:
        return await _read_array(cur, field)
    raise cur.fail(f"{field}.type", f"value type {kind} is not known; allowed: 0 to 12", at)


async def _read_array(cur: Cursor, field: str) -> Value:
    at = cur.pos
    kind = await cur.u32(f"{field}.element_type")
    if kind == _ARRAY:
        raise cur.fail(f"{field}.element_type", "arrays of arrays are not supported", at)
    if kind not in _NUMBERS and kind not in (_BOOL, _STRING):
        raise cur.fail(f"{field}.element_type", f"value type {kind} is not known; allowed: 0 to 12", at)
    count_at = cur.pos
    count = await cur.u64(f"{field}.count")
    # An empty string still has its length of 8 bytes.
    each = 8 if kind == _STRING else 1 if kind == _BOOL else struct.calcsize(_NUMBERS[kind][1])
    if count * each > min(cur.left, MAX_HEADER):
        found = f"{count} elements need {count * each} bytes or more; {cur.left} are left of the file"
        raise cur.fail(f"{field}.count", f"{found} and a header may have {MAX_HEADER}", count_at)
    if kind == _STRING:
        return await cur.strings(count, field)
    if kind == _BOOL:
        if count > MAX_BOOLS:
            raise cur.fail(f"{field}.count", f"{count} bools; allowed: at most {MAX_BOOLS}", count_at)
        return [bool(b) for b in await _read_bools(cur, count, field)]
    return await cur.numbers(_NUMBERS[kind][1], count, field)


async def _read_bools(cur: Cursor, count: int, field: str) -> bytes:
    at = cur.pos
    raw = await cur.take(count, field)
    for i, b in enumerate(raw):
        if b > 1:
            raise cur.fail(field, f"a bool of {b}; allowed: 0, 1", at + i)
    return raw


def _checked_alignment(cur: Cursor, kind: int, value: Value, at: int) -> int:
    if kind == _UINT32 and isinstance(value, int) and 0 < value <= MAX_ALIGNMENT and not value & (value - 1):
        return value
    raise cur.fail(
        "metadata general.alignment",
        f"general.alignment is {shown(value)}; allowed: a uint32 power of two from 1 to {MAX_ALIGNMENT}",
        at,
    )


async def _read_tensors(cur: Cursor, count: int, alignment: int) -> tuple[dict[str, TensorInfo], int]:
    """The tensor table, and the position of the data section.

    Tensors must lie in the order of the table, each at the next multiple of the alignment, so that
    none overlap and no byte is unaccounted for; llama.cpp demands the same.
    """
    tensors: dict[str, TensorInfo] = {}
    offsets_at: list[int] = []
    end = 0
    for i in range(count):
        name = await _read_name(cur, f"tensor[{i}].name", MAX_TENSOR_NAME, tensors)
        shape, quant, nbytes = await _read_shape(cur, f"tensor {name}")
        at = cur.pos
        offset = await cur.u64(f"tensor {name}.offset")
        expected = _padded(end, alignment)
        if offset != expected:
            found = (
                f"tensor {name} lies at {offset}; allowed: {expected}, the end of the one before it padded"
            )
            raise cur.fail(f"tensor {name}.offset", f"{found} to {alignment}", at)
        end = offset + nbytes
        if end > MAX_SAFE:
            raise cur.fail(f"tensor {name}.offset", f"tensor {name} ends at {end}; allowed: {MAX_SAFE}", at)
        offsets_at.append(at)
        tensors[name] = TensorInfo(name, shape, quant, offset, nbytes)
    data_offset = _padded(cur.pos, alignment)
    for t, at in zip(tensors.values(), offsets_at, strict=True):
        if data_offset + t.offset + t.nbytes > cur.size:
            raise cur.fail(
                f"tensor {t.name}.data",
                f"the file has {cur.size} bytes, but its tensors end at {data_offset + end}: "
                f"{data_offset + end - cur.size} bytes are missing, the first of them of tensor {t.name} "
                f"(an interrupted download?)",
                at,
            )
    return tensors, data_offset


async def _read_shape(cur: Cursor, field: str) -> tuple[tuple[int, ...], Quant, int]:
    """Shape (outermost first; the file has it innermost first), type and bytes of a tensor."""
    at = cur.pos
    n_dims = await cur.u32(f"{field}.n_dims")
    if not 1 <= n_dims <= MAX_DIMS:
        raise cur.fail(f"{field}.n_dims", f"{field} has {n_dims} dimensions; allowed: 1 to {MAX_DIMS}", at)
    shape_at = cur.pos
    dims = struct.unpack(f"<{n_dims}Q", await cur.take(8 * n_dims, f"{field}.shape"))
    # Checked without the zeros, because a zero would hide a factor that overflows elsewhere.
    n_elements = 1
    for n in dims:
        n_elements *= n or 1
    if n_elements > MAX_SAFE:
        found = f"{field} has shape {dims[::-1]}; allowed: at most {MAX_SAFE} elements"
        raise cur.fail(f"{field}.shape", found, shape_at)
    type_at = cur.pos
    kind = await cur.u32(f"{field}.type")
    quant = BY_GGML_TYPE.get(kind)
    if quant is None:
        what = f"{_REMOVED_TYPES[kind]}, removed from ggml" if kind in _REMOVED_TYPES else "not known"
        raise cur.fail(f"{field}.type", f"{field} has quant type {kind} ({what})", type_at)
    if dims[0] % quant.block_size:
        found = f"{field} has rows of {dims[0]} elements; {quant.name} needs multiples of {quant.block_size}"
        raise cur.fail(f"{field}.shape", found, shape_at)
    return dims[::-1], quant, quant.nbytes(n_elements if all(dims) else 0)


def _padded(n: int, alignment: int) -> int:
    """`n` rounded up to a multiple of `alignment`."""
    return -(-n // alignment) * alignment
