"""The parser on generated files: what the `gguf` package writes comes back; damage never gets through."""

import math
import struct
import tempfile
import tracemalloc
from pathlib import Path

import gguf as reference
import numpy as np
import pytest
from explore import explore, parse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_corpus import SEEDS, seeds
from tiny_gguf import tiny_model

from pagelm.errors import GgufError
from pagelm.string_array import StringArray

MAX_BYTES = 64 << 20
# Examples are the same in every run: a red run must be red again.
slow = settings(
    deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)

INTEGERS = {"uint8": 8, "int8": -8, "uint16": 16, "int16": -16, "uint32": 32, "int32": -32} | {
    "uint64": 64,
    "int64": -64,
}


def integers(name: str) -> st.SearchStrategy[int]:
    bits = INTEGERS[name]
    return st.integers(0, 2**bits - 1) if bits > 0 else st.integers(-(2 ** (-bits - 1)), 2 ** (-bits - 1) - 1)


texts = st.text(max_size=40)
floats = st.floats(width=32)
scalars = st.one_of(
    *(st.tuples(st.just(name), integers(name)) for name in INTEGERS),
    st.tuples(st.just("float32"), floats),
    st.tuples(st.just("float64"), st.floats()),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("string"), st.text(min_size=1, max_size=40)),  # the package leaves empty ones out
)
# The package chooses the element type by the first value; these are the types it chooses.
arrays = st.one_of(
    st.lists(integers("int32"), min_size=1, max_size=20),
    st.lists(floats, min_size=1, max_size=20),
    st.lists(st.booleans(), min_size=1, max_size=20),
    st.lists(texts, min_size=1, max_size=20),
).map(lambda values: ("array", values))
keys = st.from_regex(r"\A[a-z][a-z0-9_]{0,10}(\.[a-z0-9_]{1,10}){0,3}\Z")
RESERVED = ("general.architecture", "general.alignment")
TYPES = ("F32", "F16", "Q4_0", "Q4_1", "Q5_0", "Q8_0")
tensors = st.dictionaries(
    st.from_regex(r"\A[a-z][a-z0-9_.]{0,40}\Z"),
    st.tuples(st.sampled_from(TYPES), st.lists(st.integers(1, 3), max_size=3), st.integers(1, 3)),
    max_size=5,
)


seed_names = st.sampled_from(sorted(seeds()))


def same(ours: object, theirs: object) -> bool:
    if isinstance(theirs, float):
        return isinstance(ours, float) and (ours == theirs or (math.isnan(ours) and math.isnan(theirs)))
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return type(ours) is type(theirs) and ours == theirs


@slow
@given(
    st.dictionaries(keys, st.one_of(scalars, arrays), max_size=8), tensors, st.sampled_from([1, 8, 32, 256])
)
def test_what_the_gguf_package_writes_comes_back(values, table, alignment):
    values = {k: v for k, v in values.items() if k not in RESERVED}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = reference.GGUFWriter(path, "llama")
        writer.add_custom_alignment(alignment)
        for key, (kind, value) in values.items():
            getattr(writer, f"add_{kind}")(key, value)
        raws = {}
        for name, (kind, outer, blocks) in table.items():
            block_size, block_bytes = reference.GGML_QUANT_SIZES[reference.GGMLQuantizationType[kind]]
            raw = np.random.default_rng(1).integers(0, 255, (*outer, blocks * block_bytes), dtype=np.uint8)
            raws[name] = ((*outer, blocks * block_size), kind, raw.tobytes())
            writer.add_tensor(name, raw, raw_dtype=reference.GGMLQuantizationType[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        data = path.read_bytes()
    gguf = explore(data)
    assert gguf is not None and gguf.alignment == alignment
    assert list(gguf.metadata) == ["general.architecture", "general.alignment", *values]
    for key, (kind, value) in values.items():
        ours = gguf.metadata[key]
        if isinstance(ours, StringArray):
            ours = list(ours)
        assert same(list(ours) if kind == "array" else ours, value), (key, ours, value)
    assert list(gguf.tensors) == list(raws)
    for name, (shape, kind, raw) in raws.items():
        t = gguf.tensors[name]
        assert (t.shape, t.quant.name, t.nbytes) == (shape, kind, len(raw))
        assert data[gguf.at(t) :][: t.nbytes] == raw


def small_model() -> bytes:
    return tiny_model(n_layer=1, n_embd=32, n_head=2, n_head_kv=1, n_ff=32, n_vocab=259)


@pytest.mark.parametrize("name", ["seed", *seeds()])
def test_truncation_at_every_byte_is_refused_or_changes_nothing(name):
    data = small_model() if name == "seed" else seeds()[name]
    whole = parse(data)
    tensors_end = max((whole.at(t) + t.nbytes for t in whole.tensors.values()), default=None)
    refused = 0
    # Every byte of the header; past it every 37th, because there one rule holds for all.
    for n in (*range(min(whole.data_offset, len(data))), *range(whole.data_offset, len(data), 37)):
        try:
            part = parse(data[:n])
        except GgufError as e:
            refused += 1
            assert e.field and e.offset is not None and 0 <= e.offset <= n
        else:
            assert part.tensors == whole.tensors and repr(part.metadata) == repr(whole.metadata)
            assert tensors_end is None or n >= tensors_end
    assert refused > 0


@slow
@given(
    st.sampled_from(sorted(seeds())), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=8)
)
def test_flipped_bytes_raise_nothing_but_typed_errors(name, flips):
    data = bytearray(seeds()[name])
    for where, mask in flips:
        data[min(int(where * len(data)), len(data) - 1)] ^= mask
    explore_within_memory(bytes(data))


NUMBERS = st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**53, 2**60, 2**63, 2**64 - 8, 2**64 - 1])


@slow
@given(seed_names, st.floats(0, 1), NUMBERS, st.sampled_from("IQ"))
def test_numbers_written_anywhere_raise_nothing_but_typed_errors(name, where, number, code):
    data = bytearray(seeds()[name])
    raw = struct.pack("<Q", number)[: struct.calcsize(code)]
    at = int(where * (len(data) - len(raw)))
    data[at : at + len(raw)] = raw
    explore_within_memory(bytes(data))


@slow
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_raise_nothing_but_typed_errors(tail, with_header):
    explore_within_memory((b"GGUF\3\0\0\0" if with_header else b"") + tail)


def explore_within_memory(data: bytes) -> None:
    tracemalloc.start(1)
    try:
        explore(data)
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()


def test_explore_notices_a_broken_promise(monkeypatch):
    """The control: the checks above can fail."""
    import explore as module

    real = module.parse
    calls = []

    def shifted(source: bytes):
        gguf = real(source)
        calls.append(gguf)
        gguf.data_offset += 32 if len(calls) == 1 else 0
        return gguf

    monkeypatch.setattr(module, "parse", shifted)
    with pytest.raises(AssertionError):
        explore(small_model())


def test_seeds_are_what_the_script_writes_and_right():
    assert {p.name: p.read_bytes() for p in SEEDS.iterdir()} == seeds()
    for name, data in seeds().items():
        assert explore(data) is not None, name


def test_time_is_linear_in_the_header():
    """Twice the strings must not cost four times the work; counted in bytes read, not in seconds."""
    from pagelm.sources import MemorySource

    class Counting(MemorySource):
        read_bytes = 0

        async def read(self, at: int, nbytes: int) -> bytes:
            self.read_bytes += nbytes
            return await super().read(at, nbytes)

    strings = struct.pack("<Q", 30) + b"x" * 30
    for count in (1000, 100_000):
        header = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, count)
        source = Counting(header + strings * count)
        assert len(parse(source).strings("k")) == count
        assert source.read_bytes == source.size
