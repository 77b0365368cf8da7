"""The parser on good files: values, tensors, windows, getters; against the independent `gguf` package."""

import asyncio
import struct
import time
import tracemalloc
from array import array
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from tiny_gguf import tiny_model

from pagelm import cursor
from pagelm.errors import GgufError
from pagelm.gguf import Gguf, TensorInfo, read_gguf
from pagelm.quants import QUANTS
from pagelm.sources import FileSource, MemorySource
from pagelm.string_array import StringArray


def parse(data: bytes, name: str = "memory") -> Gguf:
    return asyncio.run(read_gguf(MemorySource(data, name)))


def text(s: str | bytes) -> bytes:
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(raw)) + raw


def one_value(kind: int, payload: bytes, *, version: int = 3) -> bytes:
    """A file with no tensors and the one key `k`."""
    return b"GGUF" + struct.pack("<IQQ", version, 0, 1) + text("k") + struct.pack("<I", kind) + payload


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (0, b"\xff", 255),
        (1, b"\xff", -1),
        (2, b"\xff\xff", 65535),
        (3, b"\xff\xff", -1),
        (4, b"\xff\xff\xff\xff", 2**32 - 1),
        (5, b"\xff\xff\xff\xff", -1),
        (6, struct.pack("<f", 0.5), 0.5),
        (7, b"\x00", False),
        (7, b"\x01", True),
        (8, text("Grüße"), "Grüße"),
        (8, text(b"a\xffb"), "a\ufffdb"),
        (8, text(""), ""),
        (10, b"\xff" * 8, 2**64 - 1),
        (11, b"\xff" * 8, -1),
        (12, struct.pack("<d", 0.1), 0.1),
    ],
)
def test_reader_reads_every_scalar_type(version, kind, payload, expected):
    gguf = parse(one_value(kind, payload, version=version))
    assert gguf.version == version
    assert gguf.metadata == {"k": expected}
    assert type(gguf.metadata["k"]) is type(expected)


@pytest.mark.parametrize(
    ("kind", "code"),
    [(0, "B"), (1, "b"), (2, "H"), (3, "h"), (4, "I"), (5, "i"), (6, "f"), (10, "Q"), (11, "q"), (12, "d")],
)
@pytest.mark.parametrize("count", [0, 1, 7])
def test_reader_reads_every_array_type(kind, code, count):
    values = array(code, range(count))
    gguf = parse(one_value(9, struct.pack("<IQ", kind, count) + values.tobytes()))
    assert gguf.metadata["k"] == values
    assert gguf.metadata["k"].typecode == code


def test_reader_reads_arrays_of_bools_and_strings():
    assert parse(one_value(9, struct.pack("<IQ", 7, 3) + b"\1\0\1")).metadata["k"] == [True, False, True]
    strings = ["", "a", "Grüße", "x" * 300]
    got = parse(one_value(9, struct.pack("<IQ", 8, 4) + b"".join(map(text, strings)))).metadata["k"]
    assert list(got) == strings and got == StringArray.of(strings)


def test_string_array_keeps_the_bytes_of_broken_utf8():
    strings = StringArray.of([b"ok", b"\xff\xfe", "é"])
    assert [strings.raw(i) for i in range(3)] == list(strings.raws()) == [b"ok", b"\xff\xfe", "é".encode()]
    assert strings[1].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert strings[-1] == "é" and strings[1:] == [strings[1], "é"] and "ok" in strings
    for i in (3, -4):
        with pytest.raises(IndexError):
            strings[i]


@pytest.mark.parametrize("window", [1, 7, 64, 1 << 20])
def test_reader_gives_the_same_for_every_window_size(monkeypatch, window):
    data = tiny_model()
    whole = parse(data)
    monkeypatch.setattr(cursor, "WINDOW", window)
    monkeypatch.setattr(cursor, "WINDOW_MAX", window)
    pieces = parse(data)
    assert pieces.metadata == whole.metadata and pieces.tensors == whole.tensors
    assert pieces.data_offset == whole.data_offset


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_tensor_table_matches_the_gguf_package(tmp_path, alignment):
    path = tmp_path / "m.gguf"
    data = tiny_model(
        path, quant={"ffn_down": "Q4_0", "attn_q": "Q4_1", "attn_k": "Q8_0", "": "F16"}, alignment=alignment
    )
    gguf = parse(data)
    reader = reference.GGUFReader(path)
    assert gguf.alignment == alignment and gguf.data_offset == reader.data_offset and gguf.size == len(data)
    assert [t.name for t in reader.tensors] == list(gguf.tensors)
    for theirs in reader.tensors:
        ours = gguf.tensors[theirs.name]
        assert gguf.at(ours) == theirs.data_offset
        assert ours.nbytes == theirs.n_bytes
        assert ours.shape == tuple(int(n) for n in theirs.shape[::-1])
        assert ours.quant.name == theirs.tensor_type.name
        assert data[gguf.at(ours) :][: ours.nbytes] == theirs.data.tobytes()


def test_quant_table_matches_the_gguf_package():
    for quant in QUANTS.values():
        kind = reference.GGMLQuantizationType(quant.ggml_type)
        assert kind.name == quant.name
        if quant.name == "Q8_1":  # the package counts two f32 per block; ggml-common.h has two f16
            continue
        assert reference.GGML_QUANT_SIZES[kind] == (quant.block_size, quant.block_bytes)


def test_vocabulary_only_file_needs_no_data_section():
    gguf = parse(one_value(4, struct.pack("<I", 1)))
    assert gguf.tensors == {} and gguf.size < gguf.data_offset


def test_padding_after_the_last_tensor_may_be_missing_or_longer():
    data = tiny_model(n_layer=1)
    gguf = parse(data)
    last = list(gguf.tensors.values())[-1]
    end = gguf.at(last) + last.nbytes
    for size in (end, len(data)):
        assert parse(data[:size]).tensors == gguf.tensors
    assert parse(data + b"trailer").tensors == gguf.tensors
    with pytest.raises(GgufError, match="1 bytes are missing") as e:
        parse(data[: end - 1])
    assert e.value.field == "tensor output_norm.weight.data"


def tensor_row(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def test_tensor_without_elements_takes_no_bytes():
    rows = tensor_row("a", (32, 0), 8, 0) + tensor_row("b", (1,), 0, 0)
    header = b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + rows
    gguf = parse(header + bytes(-len(header) % 32) + bytes(4))
    assert gguf.tensors["a"] == TensorInfo("a", (0, 32), QUANTS["Q8_0"], 0, 0)
    assert gguf.tensors["b"].nbytes == 4


class LyingSource(MemorySource):
    """Says that it is larger than it is; fails the test when bytes past the real ones are asked for."""

    def __init__(self, data: bytes, size: int) -> None:
        super().__init__(data)
        self.real = self.size
        self.size = size
        self.asked = 0

    async def read(self, at: int, nbytes: int) -> bytes:
        self.asked = max(self.asked, nbytes)
        return (bytes(self._data[at : at + nbytes]) + bytes(nbytes))[:nbytes]


@pytest.mark.parametrize("kind", [0, 4, 7, 8, 12])
def test_huge_counts_cost_neither_memory_nor_time_even_in_a_huge_file(kind):
    source = LyingSource(one_value(9, struct.pack("<IQ", kind, 2**44)), 2**50)
    tracemalloc.start()
    start = time.perf_counter()
    with pytest.raises(GgufError) as e:
        asyncio.run(read_gguf(source))
    elapsed = time.perf_counter() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert e.value.field == "metadata k.count"
    assert source.asked <= cursor.WINDOW_MAX
    assert peak < 2 << 20 and elapsed < 5


def test_file_size_past_what_javascript_can_count_is_refused():
    with pytest.raises(GgufError, match=str(2**53)) as e:
        asyncio.run(read_gguf(LyingSource(one_value(7, b"\0"), 2**53)))
    assert e.value.field == "file.size"


def test_reader_reads_no_weights():
    reads = []

    class Watched(MemorySource):
        async def read(self, at: int, nbytes: int) -> bytes:
            reads.append((at, nbytes))
            return await super().read(at, nbytes)

    data = tiny_model(n_vocab=20000, n_embd=256)
    gguf = asyncio.run(read_gguf(Watched(data)))
    assert sum(n for _, n in reads) < gguf.data_offset + cursor.WINDOW_MAX < len(data) / 2
    assert [at for at, _ in reads] == list(np.cumsum([0] + [n for _, n in reads])[:-1])


GETTERS = {
    "string": ("a", [1, True, 0.5, StringArray.of(["a"])]),
    "uint": (7, ["7", True, -1, 7.0, 2**53, array("I", [7])]),
    "number": (0.5, ["0.5", True, array("f", [0.5])]),
    "flag": (True, [1, 0, "true", [True]]),
    "strings": (StringArray.of(["a"]), ["a", array("I"), [True]]),
    "ints": (array("i", [1]), [1, array("f", [1]), StringArray.of(["1"])]),
    "floats": (array("f", [1]), [1.0, array("i", [1]), [True]]),
}


@pytest.mark.parametrize("getter", GETTERS)
def test_getters_name_key_value_and_what_is_allowed(getter):
    good, bads = GETTERS[getter]
    assert getattr(Gguf(metadata={"k": good}), getter)("k") == good
    assert getattr(Gguf(), getter)("k", default=None) is None
    with pytest.raises(GgufError, match="k is missing; allowed: ") as e:
        getattr(Gguf(name="m.gguf"), getter)("k")
    assert e.value.field == "metadata k" and str(e.value).startswith("m.gguf: ")
    for bad in bads:
        with pytest.raises(GgufError, match=r"k is .*; allowed: "):
            getattr(Gguf(metadata={"k": bad}), getter)("k", default=None)


def test_getters_give_the_byte_where_the_value_stands():
    data = one_value(8, text("x" * 500))
    with pytest.raises(GgufError, match=r"'x{60}'… \(500 characters\)") as e:
        parse(data).uint("k")
    assert e.value.offset == data.index(text("x" * 500))


def test_integer_from_float_getter_is_a_float():
    assert type(Gguf(metadata={"k": 7}).number("k")) is float


@pytest.mark.model
def test_default_model_parses_in_well_under_a_second_and_little_memory(model_path: Path):
    source = FileSource(model_path)
    start = time.perf_counter()
    gguf = asyncio.run(read_gguf(source))
    assert time.perf_counter() - start < 1
    assert len(gguf.tensors) == 272 and len(gguf.strings("tokenizer.ggml.merges")) == 48900
    assert gguf.data_offset == 1785664 and gguf.size == 98362432
    del gguf
    tracemalloc.start()
    kept_alive = asyncio.run(read_gguf(source))
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    source.close()
    assert len(kept_alive.tensors) == 272 and kept < 2 << 20 and peak < 4 << 20
