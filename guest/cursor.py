"""Forward reading of little-endian fields over a `Source`, through one window, never past its end.

Knows nothing of GGUF beyond "a string is a u64 length and its bytes"; errors name field and position.
"""

import struct
import sys
from array import array

from .device import Source
from .errors import GgufError
from .string_array import StringArray

MAX_HEADER = 256 << 20  # bytes; the largest header in the wild is about 20 MB
MAX_STRING = 16 << 20  # bytes of one string; llama.cpp allows 1 GiB, the longest real ones are templates
WINDOW = 256 << 10  # bytes of the first read; doubles up to WINDOW_MAX
WINDOW_MAX = 1 << 20
U64 = struct.Struct("<Q")


class Cursor:
    """Reads forward over a source through one window; knows where it is for messages."""

    __slots__ = ("_base", "_i", "_source", "_step", "_window", "name", "size")

    def __init__(self, source: Source) -> None:
        self._source = source
        self._window = b""
        self._base = 0  # file position of the window's first byte
        self._i = 0  # index of the next byte in the window
        self._step = WINDOW
        self.name = source.name
        self.size = source.size

    @property
    def pos(self) -> int:
        """File position of the next byte."""
        return self._base + self._i

    @property
    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.pos

    def fail(self, field: str, message: str, offset: int | None = None) -> GgufError:
        return GgufError(
            f"{self.name}: {message}", field=field, offset=self.pos if offset is None else offset
        )

    async def need(self, nbytes: int, field: str) -> None:
        """Make the window hold the next `nbytes` bytes, which must be few (a field or one string)."""
        have = len(self._window) - self._i
        if have >= nbytes:
            return
        if nbytes > self.left:
            raise self.fail(
                field,
                f"the file ends inside its header: {nbytes} bytes are needed here and {self.left} are left "
                f"of {self.size} (an interrupted download?)",
            )
        start = self._base + len(self._window)
        if start + nbytes - have > MAX_HEADER:
            raise self.fail(field, f"the header is longer than {MAX_HEADER} bytes")
        more = min(max(nbytes - have, self._step), self.size - start)
        tail = self._window[self._i :]
        self._base += self._i
        self._i = 0
        self._window = b""  # let the old window go before the next one is made
        data = await self._source.read(start, more)
        self._window = tail + data if tail else data
        self._step = min(self._step * 2, WINDOW_MAX)

    async def take(self, nbytes: int, field: str) -> bytes:
        await self.need(nbytes, field)
        i = self._i
        self._i = i + nbytes
        return self._window[i : i + nbytes]

    async def number(self, code: str, field: str) -> int | float:
        """One number of typecode `code`."""
        n = struct.calcsize("<" + code)
        await self.need(n, field)
        value: int | float = struct.unpack_from("<" + code, self._window, self._i)[0]
        self._i += n
        return value

    async def u32(self, field: str) -> int:
        return int(await self.number("I", field))

    async def u64(self, field: str) -> int:
        return int(await self.number("Q", field))

    async def string(self, field: str, most: int = MAX_STRING) -> bytes:
        """A length and as many bytes. The length may be at most `most`."""
        at = self.pos
        n = await self.u64(f"{field}.length")
        self._check_length(n, f"{field}.length", at, most)
        return await self.take(n, field)

    async def strings(self, count: int, field: str) -> StringArray:
        """`count` strings. The inner loop handles a window's worth without awaiting."""
        blob, ends = bytearray(), array("I")
        left = count
        while left := self._strings_in_window(left, blob, ends):
            # The window ends inside a string: fetch at least that one.
            element = f"{field}[{count - left}]"
            await self.need(8, f"{element}.length")
            n: int = U64.unpack_from(self._window, self._i)[0]
            self._check_length(n, f"{element}.length", self.pos, MAX_STRING)
            await self.need(8 + n, element)
        return StringArray(bytes(blob), ends)

    def _check_length(self, n: int, field: str, at: int, most: int) -> None:
        """A string's length, which was read at `at`."""
        if n > most:
            raise self.fail(field, f"a string of {n} bytes; allowed: at most {most}", at)
        if n > self.size - at - 8:
            raise self.fail(field, f"a string of {n} bytes, but {self.size - at - 8} are left", at)

    def _strings_in_window(self, left: int, blob: bytearray, ends: "array[int]") -> int:
        window, i, end = self._window, self._i, len(self._window)
        unpack = U64.unpack_from
        while left and i + 8 <= end:
            stop = i + 8 + unpack(window, i)[0]
            if stop > end:
                break
            blob += window[i + 8 : stop]
            ends.append(len(blob))
            i = stop
            left -= 1
        self._i = i
        return left

    async def numbers(self, code: str, count: int, field: str) -> "array[int] | array[float]":
        """`count` numbers of typecode `code`, window by window."""
        values: array[int] | array[float] = array(code)
        left = count * values.itemsize
        while left:
            await self.need(min(left, values.itemsize), field)
            n = min(left, len(self._window) - self._i)
            n -= n % values.itemsize
            values.frombytes(self._window[self._i : self._i + n])
            self._i += n
            left -= n
        if sys.byteorder == "big":
            values.byteswap()
        return values
