"""Split models: parts found by name or given in any order; sets of files that are no model are refused."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf as gguf_py
import numpy as np
import pytest
from cut_server import CutServer
from fake_gpu import FakeGpu
from fake_model import TINY, run
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_gguf import F32, I32, STR, U16, U32
from split_gguf import split, taken_apart, write_parts, write_spread
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from tiny_gguf import tiny_model

import pagelm
import pagelm.gguf
from pagelm.device import Limits
from pagelm.device.default import open_sources
from pagelm.errors import ArchError, Cancelled, GgufError, SourceError, SplitError
from pagelm.gguf import read_gguf
from pagelm.host.oracle.weights import Weights
from pagelm.host.server import serve_app
from pagelm.hparams import hparams_from
from pagelm.sources import FileSource, MemorySource
from pagelm.split import MAX_PARTS, SplitSource, part_names, read_model
from pagelm.weights import STAGING, matrices_of, reads_of

PIECES = {piece.name: piece.data for piece in taken_apart(TINY)[1]}
N = len(PIECES)
CUTS = {"first-empty": [0, 7, 8], "first-full": [6, 6], "one-each": [1] * N, "empty-between": [4, 0, 4]}


def sources(parts: list[bytes], names: list[str] | None = None) -> list[MemorySource]:
    names = names or [f"part {i}" for i in range(len(parts))]
    return [MemorySource(part, name) for part, name in zip(parts, names, strict=True)]


async def read(given):
    """Every tensor's bytes by name, the header, and the names of the parts in order."""
    source = given if isinstance(given, SplitSource) else SplitSource(given)
    gguf = await source.header()
    assert gguf.size == source.size
    found = {t.name: await source.read(gguf.at(t), t.nbytes) for t in gguf.tensors.values()}
    return found, gguf, [part.name for part in gguf.parts]


# ---- what is right ----


@pytest.mark.parametrize("cut", CUTS)
def test_parts_in_any_order_are_the_whole_model(cut):
    parts = split(TINY, CUTS[cut])
    for seed in range(3):
        given = sources(parts)
        random.Random(seed).shuffle(given)
        found, gguf, order = run(read(given))
        assert found == PIECES and list(found) == list(PIECES)
        assert order == [f"part {i}" for i in range(len(parts))]
        assert gguf.name == "part 0" and gguf.size == sum(map(len, parts))
        assert gguf.header_bytes == sum(part.data_offset for part in gguf.parts)
        assert [part.size for part in gguf.parts] == [len(part) for part in parts]
        hparams_from(gguf)


def test_metadata_is_the_first_parts():
    whole = run(read_gguf(MemorySource(TINY)))
    _, gguf, _ = run(read(sources(split(TINY, [3]))[::-1]))
    own = {"split.no": 0, "split.count": 2, "split.tensors.count": N}
    assert {k: v for k, v in gguf.metadata.items() if k not in own} == whole.metadata
    assert {k: gguf.metadata[k] for k in own} == own


def test_shards_of_the_gguf_package_are_read(tmp_path):
    writer = gguf_py.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=3, small_first_shard=True)
    writer.add_string("general.name", "in shards")
    arrays = {f"t{i}.weight": np.full((2, 32), i, np.float32) for i in range(8)}
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    paths = sorted(tmp_path.glob("*.gguf"))
    assert len(paths) == 4
    found, gguf, _ = run(read([FileSource(paths[2])]))
    assert found == {name: array.tobytes() for name, array in arrays.items()}
    assert gguf.string("general.name") == "in shards"


@pytest.mark.parametrize("named", [0, 1, 3])
def test_any_part_leads_to_the_others_beside_it(tmp_path, named):
    paths = write_parts(tmp_path, TINY, [0, 7, 8], "my model-v2")
    found, _, order = run(read([FileSource(paths[named])]))
    assert found == PIECES
    assert order == [str(path) for path in paths]


def test_the_oracle_reads_parts_from_files_and_sources(tmp_path):
    paths = write_parts(tmp_path, TINY, [5, 5])
    for model in (paths[1], SplitSource(sources(split(TINY, [5, 5]))[::-1])):
        weights = Weights(model)
        assert {name: weights.raw(name).tobytes() for name in PIECES} == PIECES


def test_closing_closes_the_parts_found_by_name_too(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(FileSource, "close", lambda self: closed.append(self.name))
    paths = write_parts(tmp_path, TINY, [5, 5])
    source = SplitSource([FileSource(paths[1])])
    assert (source.name, source.size) == (str(paths[1]), paths[1].stat().st_size)
    run(source.header())
    assert source.size == sum(path.stat().st_size for path in paths)
    source.close()
    assert sorted(closed) == [str(path) for path in paths]


def test_bytes_across_the_end_of_a_part_are_read_as_one(tmp_path):
    parts = split(TINY, [0, 7])
    source = SplitSource(sources(parts))
    data = b"".join(parts)
    assert source.size == len(data)
    border = len(parts[0])
    for at, n in ((0, len(data)), (border - 1, 2), (border, 1), (border, 0), (len(data), 0), (3, border + 5)):
        assert run(source.read(at, n)) == data[at : at + n]
    for at, n in ((len(data), 1), (-1, 2), (0, len(data) + 1)):
        with pytest.raises(SourceError, match=f"it has {len(data)}"):
            run(source.read(at, n))


@pytest.mark.parametrize(
    ("name", "first", "last", "count"),
    [
        ("a-00001-of-00003.gguf", "a-00001-of-00003.gguf", "a-00003-of-00003.gguf", 3),
        ("/d-00001-of-00002/x-00002-of-00002.GGUF", "/d-00001-of-00002/x-00001-of-00002.GGUF", None, 2),
        ("http://h/x-00001-of-00002.gguf?a=b#c", None, "http://h/x-00002-of-00002.gguf?a=b#c", 2),
        ("x-00001-of-00512.gguf", None, "x-00512-of-00512.gguf", 512),
    ],
)
def test_names_of_parts_follow_from_one(name, first, last, count):
    names = part_names(name)
    assert len(names) == len(set(names)) == count and name in names
    assert first in (None, names[0]) and last in (None, names[-1])


@pytest.mark.parametrize(
    "name",
    [
        "model.gguf",
        "a-00001-of-00003.bin",
        "a-00004-of-00003.gguf",
        "a-00000-of-00003.gguf",
        "a-1-of-3.gguf",
        "a-00001-of-00003.gguf.part",
        f"a-00001-of-{MAX_PARTS + 1:05}.gguf",
        "",
    ],
)
def test_other_names_are_no_parts(name):
    assert part_names(name) == []


def test_a_whole_model_with_the_name_of_a_part_is_read_alone(tmp_path):
    path = tmp_path / "a-00001-of-00003.gguf"
    path.write_bytes(TINY)
    assert run(read([FileSource(path)]))[0] == PIECES


def test_parts_may_repeat_the_metadata():
    """Not what gguf-split writes, but nothing is wrong with it, nor with a NaN in it."""
    odd = {
        "test.nan": (F32, float("nan")),
        "general.name": (STR, "tiny llama"),
        "general.alignment": (U32, 32),
    }
    parts = split(
        tiny_model(n_vocab=400, metadata={"test.nan": float("nan")}), [5, 5], changes={1: odd, 2: odd}
    )
    assert run(read(sources(parts)))[0] == PIECES


def test_one_part_of_one_is_a_whole_model():
    (only,) = split(TINY, [N])
    assert run(read([MemorySource(only)]))[0] == PIECES


# ---- over HTTP ----


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with serve_app(Starlette(routes=[Mount("/", StaticFiles(directory=folder))])) as server:
        yield server.url


@pytest.mark.parametrize("named", [0, 2])
def test_url_of_any_part_leads_to_the_others(tmp_path, named):
    paths = write_parts(tmp_path, TINY, [0, 7], "a b")
    with served(tmp_path) as url:
        address = f"{url}{paths[named].name.replace(' ', '%20')}?download=true"

        async def main():
            (source,) = await open_sources(address)
            try:
                return await read([source])
            finally:
                source.close()

        found, _, order = run(main())
    assert found == PIECES
    assert order == [f"{url}a%20b-0000{i}-of-00003.gguf?download=true" for i in (1, 2, 3)]


def test_url_of_a_part_that_is_missing_is_told(tmp_path):
    paths = write_parts(tmp_path, TINY, [0, 7])
    paths[1].unlink()
    with served(tmp_path) as url, pytest.raises(SourceError) as e:
        run(pagelm.load(url + paths[0].name, gpu=FakeGpu()))
    assert str(e.value).startswith(f"{url}{paths[1].name}: the server answers 404")
    assert f"it is needed with {url}{paths[0].name}, as one of the 3 parts" in str(e.value)


def test_connections_that_are_cut_in_any_part_are_taken_up_again(tmp_path):
    paths = write_parts(tmp_path, TINY, [0, 7])
    app = CutServer(tmp_path, 15000)
    with serve_app(app) as server:
        model = run(pagelm.load(server.url + paths[0].name, gpu=FakeGpu()))
    assert set(app.cuts) == {path.name for path in paths[1:]}
    run(model.close())


def test_tensors_past_4_gib_are_read_over_http(tmp_path, monkeypatch):
    monkeypatch.setattr(pagelm.gguf, "MAX_ALIGNMENT", 1 << 28)
    assert write_spread(tmp_path / "far.gguf", TINY, 1 << 28)[-1] >= 5 << 30
    with served(tmp_path) as url:

        async def main():
            (source,) = await open_sources(f"{url}far.gguf")
            try:
                return await read([source])
            finally:
                source.close()

        assert run(main())[0] == PIECES


# ---- loading ----


@pytest.mark.parametrize("kind", ["path", "text", "list", "bytes", "tuple-of-one"])
def test_load_takes_a_part_or_a_list(tmp_path, kind):
    paths = write_parts(tmp_path, TINY, [0, 7])
    spec = {
        "path": paths[1],
        "text": str(paths[2]),
        "list": [paths[2], str(paths[0]), paths[1]],
        "bytes": [path.read_bytes() for path in paths[::-1]],
        "tuple-of-one": (paths[1],),
    }[kind]
    whole, parts = FakeGpu(), FakeGpu()
    told = []
    expected = run(pagelm.load(TINY, gpu=whole))
    model = run(pagelm.load(spec, gpu=parts, on_progress=told.append))
    assert model.plan == expected.plan and model.tokenizer.n_vocab == expected.tokenizer.n_vocab
    assert len(model.gguf.parts) == 3
    weights = [p for p in told if p.phase == "weights"]
    assert weights[0].done == 0 and {p.total for p in weights} == {weights[-1].done}
    assert weights[-1].done == sum(map(len, PIECES.values()))
    assert [p.done for p in weights] == sorted(p.done for p in weights)
    header = next(p for p in told if p.phase == "header")
    assert header.done == header.total == model.gguf.header_bytes
    vectors = [b for b in parts.buffers if b.label in PIECES and b.label.endswith("norm.weight")]
    assert len(vectors) == 5 and all(b.data == PIECES[b.label] for b in vectors)
    run(model.close())


def test_an_empty_list_is_refused():
    with pytest.raises(SourceError, match="an empty list of files was given"):
        run(pagelm.load([], gpu=FakeGpu()))


def test_what_was_opened_is_closed_when_the_list_fails(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(FileSource, "close", lambda self: closed.append(self.name))
    paths = write_parts(tmp_path, TINY, [5])
    with pytest.raises(SourceError, match="nowhere"):
        run(open_sources([*paths, "nowhere"]))
    assert closed == [str(path) for path in paths]


class Watched(MemorySource):
    """Notes when it rests and is closed; fails where it is told to."""

    rests = closed = 0
    fail = False

    async def read(self, at, nbytes):
        if self.fail and at + nbytes > 3000:
            raise SourceError(f"{self.name}: gone")
        return await super().read(at, nbytes)

    def rest(self):
        self.rests += 1

    def close(self):
        self.closed += 1


def test_a_part_rests_when_its_weights_are_in():
    given = [Watched(part, f"part {i}") for i, part in enumerate(split(TINY, [7, 0, 7]))]
    gpu = FakeGpu()
    seen = []
    gpu.on_upload = lambda: seen.append([source.rests for source in given])
    model = run(pagelm.load(given, gpu=gpu))
    assert seen[0] == [0, 0, 0, 0] and seen[-1] == [1, 0, 1, 0]
    assert [source.closed for source in given] == [1, 1, 1, 1]
    run(model.close())


@pytest.mark.parametrize("part", [1, 2, 3])
def test_cancelling_in_any_part_frees_everything(part):
    gpu, cancel = FakeGpu(), pagelm.Cancel()
    given = [Watched(data, f"part {i}") for i, data in enumerate(split(TINY, [0, 7, 7]))]
    gpu.on_upload = lambda: len(gpu.chunks) == part and cancel.cancel()
    with pytest.raises(Cancelled, match="loading the weights"):
        run(pagelm.load(given, gpu=gpu, cancel=cancel))
    assert len(gpu.chunks) == part and gpu.memory_used == 0
    assert all(source.closed for source in given)


def test_cancelling_between_headers_reads_no_more():
    cancel = pagelm.Cancel()

    class Cancelling(MemorySource):
        async def read(self, at, nbytes):
            cancel.cancel()
            return await super().read(at, nbytes)

    parts = split(TINY, [5])
    with pytest.raises(Cancelled, match="reading the header"):
        run(pagelm.load([Cancelling(parts[0]), parts[1]], gpu=FakeGpu(), cancel=cancel))


def test_error_while_reading_names_the_part():
    given = [Watched(data, f"part {i}") for i, data in enumerate(split(TINY, [0, 7, 7]))]
    given[2].fail = True
    gpu = FakeGpu()
    with pytest.raises(SourceError, match="^part 2: gone"):
        run(pagelm.load(given, gpu=gpu))
    assert gpu.memory_used == 0 and all(source.closed for source in given)


@settings(deadline=None, max_examples=60)
@given(cuts=st.lists(st.integers(0, 6), max_size=6), limit=st.integers(3072, 40000), data=st.data())
def test_chunks_stay_in_their_part_and_bring_every_byte_once(cuts, limit, data):
    parts = split(TINY, cuts)
    given = sources(parts)
    data.draw(st.randoms(use_true_random=False)).shuffle(given)
    source = SplitSource(given)
    gguf = run(source.header())
    matrices, vectors = matrices_of(hparams_from(gguf), gguf, Limits(max_storage_buffer_binding_size=limit))
    buffers = {name: name for name in [*(v.buffer for v in vectors), STAGING]}
    staging = max(1000, limit // 2)
    taken, order = [], []
    for r in reads_of(gguf, matrices, vectors, buffers, staging):
        goes = []
        for part, chunk in source.chunks(r.chunk):
            order.append(given.index(part))
            assert chunk.nbytes <= staging and chunk.at + chunk.nbytes <= part.size
            for p in chunk.pieces:
                assert chunk.at <= p.at and p.at + p.nbytes <= chunk.at + chunk.nbytes
                taken.append((part.name, p.at, p.nbytes))
                goes.append((p.buffer, p.offset, p.nbytes))
        assert goes == [(p.buffer, p.offset, p.nbytes) for p in r.chunk.pieces]
    assert order == sorted(order)
    ends = {}
    for name, at, nbytes in sorted(taken):
        assert ends.get(name, 0) <= at  # no byte twice
        ends[name] = at + nbytes
    wanted = {(t.part, gguf.at(t) - gguf.parts[t.part].at) for t in gguf.tensors.values()}
    assert wanted <= {(int(name[5:]), at) for name, at, _ in taken}
    assert sum(n for _, _, n in taken) == sum(map(len, PIECES.values()))


# ---- sets that are none ----

A, B = split(TINY, [5, 5]), split(tiny_model(n_vocab=400, seed=2), [5, 5])
KV = {"general.name": (STR, "another"), "split.no": (U16, 1)}
NAMES = [f"a-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


def changed(no: int, **keys: tuple[int, object]) -> list[bytes]:
    return split(TINY, [5, 5], changes={no: {key.replace("__", "."): value for key, value in keys.items()}})


WRONG = {
    "one-missing": (
        [A[0], A[2]],
        ["x", "z"],
        "x: of 3 parts (split.count) part 2 is missing; given: x is part 1, z is part 3",
    ),
    "first-missing": ([A[2], A[1]], ["z", "y"], "part 1 is missing; given: y is part 2, z is part 3"),
    "two-missing": (
        [split(TINY, [1, 1, 1])[0], split(TINY, [1, 1, 1])[3]],
        ["a", "d"],
        "of 4 parts (split.count) parts 2, 3 are missing",
    ),
    "alone": ([A[1]], ["y"], "y: it is part 2 of 3 (split.no, split.count); the other 2 are missing"),
    "same-file-twice": ([A[0], A[1], A[1]], ["x", "y", "y"], "y and y: both are part 2 of 3 (split.no 1)"),
    "two-files-with-one-number": (
        [A[0], A[1], B[1], A[2]],
        ["x", "y", "other", "z"],
        "y and other: both are part 2 of 3 (split.no 1); give each part once",
    ),
    "parts-of-two-models-by-name": (
        A,
        [*NAMES[:2], "b-00003-of-00003.gguf"],
        "a-00001-of-00003.gguf and b-00003-of-00003.gguf: these are names of parts of two models",
    ),
    "counts-disagree": (
        [A[0], A[1], split(TINY, [5])[1]],
        ["x", "y", "z"],
        "x and z: split.count is 3 in the one and 2 in the other",
    ),
    "tensor-counts-disagree": (
        [*A[:2], changed(2, split__tensors__count=(I32, N + 1))[2]],
        ["x", "y", "z"],
        f"x and z: split.tensors.count is {N} in the one and {N + 1} in the other",
    ),
    "tensors-missing": (
        split(
            TINY,
            [5, 5],
            changes={i: {"split.tensors.count": (I32, N + 2)} for i in range(3)},
        ),
        ["x", "y", "z"],
        f"x: split.tensors.count is {N + 2}, and all 3 parts together have {N} tensors",
    ),
    "tensor-twice": (
        [A[0], split(TINY, [4, 5, N])[1], A[2]],
        ["x", "y", "z"],
        "x and y: both have the tensor blk.0.attn_v.weight",
    ),
    "metadata-disagrees": (
        [*A[:2], changed(2, general__name=(STR, "another"))[2]],
        ["x", "y", "z"],
        "x and z: general.name is 'tiny llama' in the one and 'another' in the other",
    ),
    "a-whole-model-among-them": ([*A, TINY], ["x", "y", "z", "w"], "w: it is no part of a split model"),
    "two-whole-models": ([TINY, TINY], ["v", "w"], "v: it is no part of a split model"),
    "number-past-the-count": (
        [*A[:2], changed(2, split__no=(U16, 3))[2]],
        ["x", "y", "z"],
        "z: split.no is 3; allowed: 0 to 2, split.count being 3",
    ),
    "number-past-the-count-alone": (
        [changed(0, split__no=(U16, 7))[0]],
        ["x"],
        "x: split.no is 7; allowed: 0 to 2",
    ),
    "number-missing": (
        [changed(0, split__no=(STR, "1"))[0]],
        ["x"],
        "x: split.no is '1'; allowed: an integer",
    ),
    "too-many-parts": (
        [changed(0, split__count=(U32, MAX_PARTS + 1))[0]],
        ["x"],
        f"x: split.count is {MAX_PARTS + 1}; allowed: 2 to {MAX_PARTS}",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_not_the_parts_of_one_model_are_refused(case):
    parts, names, told = WRONG[case]
    gpu = FakeGpu()
    with pytest.raises(GgufError, match=re.escape(told)) as e:
        run(pagelm.load(sources(parts, names), gpu=gpu))
    ranges = case.startswith(("number", "too-many"))
    assert isinstance(e.value, SplitError) != ranges
    assert e.value.field and "\n" not in str(e.value)
    assert gpu.buffers_created == 0


def test_the_same_parts_under_names_that_agree_or_say_nothing_are_right():
    for names in (NAMES, [NAMES[0], "renamed.gguf", NAMES[2]], ["a/" + NAMES[0], "b\\" + NAMES[1], NAMES[2]]):
        assert run(read(sources(A, names)))[0] == PIECES


def test_parts_under_each_others_names_are_put_in_order_by_what_they_say(tmp_path):
    for name, part in zip(NAMES, [A[2], A[0], A[1]], strict=True):
        (tmp_path / name).write_bytes(part)
    found, gguf, _ = run(read([FileSource(tmp_path / NAMES[0])]))
    assert found == PIECES and Path(gguf.name).name == NAMES[1]


@pytest.mark.parametrize("name", ["model.gguf", "a-00001-of-00002.gguf"])
def test_a_part_whose_name_does_not_lead_to_the_others_says_how_it_should_be(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(A[0])
    with pytest.raises(
        SplitError, match="the name ends in -00001-of-00003.gguf; rename the files, or give all"
    ):
        run(pagelm.load(path, gpu=FakeGpu()))


def test_a_part_that_is_not_beside_the_one_named_is_told(tmp_path):
    paths = write_parts(tmp_path, TINY, [5, 5])
    paths[2].unlink()
    with pytest.raises(SourceError) as e:
        run(pagelm.load(paths[1], gpu=FakeGpu()))
    assert str(e.value).startswith(f"{paths[2]}: no such file")
    assert f"needed with {paths[1]}, as one of the 3 parts of a model" in str(e.value)


def test_a_part_cut_short_is_told_by_name(tmp_path):
    paths = write_parts(tmp_path, TINY, [5, 5])
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    with pytest.raises(GgufError, match=f"^{re.escape(str(paths[2]))}: the file has .* bytes are missing"):
        run(pagelm.load(paths[0], gpu=FakeGpu()))


def test_a_single_header_is_no_model():
    gguf = run(read_gguf(MemorySource(A[0])))
    with pytest.raises(ArchError, match="split.count is 3, and headers of 1 of these parts were read"):
        hparams_from(gguf)
    with pytest.raises(SplitError, match="of 3 parts"):
        run(read_model(MemorySource(A[0])))


def test_what_the_browsers_driver_makes_of_the_error_is_the_same_type():
    from pagelm.host.browser_lm import _result

    with pytest.raises(SplitError, match="^x: part 2 is missing$"):
        _result({"error": {"type": "SplitError", "message": "x: part 2 is missing"}})
