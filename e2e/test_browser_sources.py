"""Uploads in Chromium: bytes go from a server, a file or memory into GPU buffers, whatever goes wrong.

The good and the bad servers are other origins than the page's, as a model's server mostly is.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_server import CUT_BYTES, BadServer, bad_server
from in_worker import InWorker
from tiny_gguf import tiny_model

from pagelm.sources import TIMEOUT_S

DATA = np.random.default_rng(7).integers(0, 256, (34 << 20) + 3, dtype=np.uint8).tobytes()
START = 1001  # where the weights begin: an odd place

SETUP = f"""
import asyncio, hashlib, js
from pagelm import errors
from pagelm.device import CHUNK_BYTES, Chunk, Piece
from pagelm.device.browser import BrowserGpu
from pagelm.device.browser_sources import BlobSource, UrlSource
from pagelm.device.default import open_source

async def upload(source, *, gap=0, start={START}):
    '''Everything from `start` on in chunks with `gap` bytes between them, each in two buffers.

    Returns (position, bytes, sha256) of what is in the buffers afterwards.
    '''
    gpu = await BrowserGpu.open()
    placed = []
    for at in range(start, source.size, CHUNK_BYTES + gap):
        n = min(CHUNK_BYTES, source.size - at)
        parts = (at, n // 3), (at + n // 3, n - n // 3)
        pieces = tuple(Piece(gpu.buffer(4 + m, "w"), 4, a, m) for a, m in parts)
        await gpu.upload(source, Chunk(at, n, pieces))
        placed += pieces
    found = []
    for p in placed:
        data = await gpu.read(p.buffer, 0, p.buffer.nbytes)
        assert data[:4] == bytes(4) and data[4 + p.nbytes:] == bytes(-p.nbytes % 4)
        found.append((p.at, p.nbytes, hashlib.sha256(data[4:4 + p.nbytes]).hexdigest()))
    source.close()
    gpu.close()
    return found

async def refused(call):
    '''The error that a call ends with, as "Type: message".'''
    try:
        await call
    except errors.PagelmError as e:
        return f"{{type(e).__name__}}: {{e}}"
    return "nothing was refused"
"""


@pytest.fixture(scope="module")
def worker(_browser_lm: Any) -> InWorker:
    inside = InWorker(_browser_lm)
    inside.python(SETUP)
    return inside


@pytest.fixture(scope="module")
def _server() -> Iterator[BadServer]:
    with bad_server(DATA) as server:
        yield server


@pytest.fixture
def server(_server: BadServer) -> BadServer:
    _server.requests.clear()
    return _server


@pytest.fixture
def plain_streams(worker: InWorker) -> Iterator[None]:
    """A browser whose response bodies are no byte streams."""
    worker.javascript("""() => {
      const get = (self.keptGetReader = ReadableStream.prototype.getReader);
      ReadableStream.prototype.getReader = function (options) {
        if (options?.mode) throw new TypeError("not a byte stream");
        return get.call(this);
      };
    }""")
    yield
    worker.javascript("() => { ReadableStream.prototype.getReader = self.keptGetReader; }")


def assert_uploaded(found: list[tuple[int, int, str]], gap: int = 0) -> None:
    assert sum(n for _, n, _ in found) >= (len(DATA) - START) - 2 * gap
    for at, n, digest in found:
        assert hashlib.sha256(DATA[at : at + n]).hexdigest() == digest, (at, n)


def streams(server: BadServer) -> list[int]:
    """Positions of the requests for everything from there on."""
    return [int(r[6:-1]) for _, _, r in server.requests if r.endswith("-")]


# ---- good servers, files, memory ----


def test_contiguous_chunks_travel_in_one_request(worker: InWorker, server: BadServer) -> None:
    assert_uploaded(worker.python(f"await upload(await open_source('{server.url('good')}'))"))
    assert streams(server) == [START]


def test_small_gaps_are_read_over_and_large_ones_asked_around(worker: InWorker, server: BadServer) -> None:
    assert_uploaded(worker.python(f"await upload(await open_source('{server.url('good')}'), gap=29)"), 29)
    assert streams(server) == [START]
    server.requests.clear()
    gap = (1 << 20) + 1
    assert_uploaded(worker.python(f"await upload(await open_source('{server.url('good')}'), gap={gap})"), gap)
    assert streams(server) == list(range(START, len(DATA), (16 << 20) + gap))


def test_size_comes_from_content_length_where_the_server_hides_the_range(
    worker: InWorker, server: BadServer
) -> None:
    assert_uploaded(worker.python(f"await upload(await UrlSource.open('{server.url('hidden')}'))"))
    assert ("HEAD", "hidden", "") in server.requests


@pytest.mark.usefixtures("plain_streams")
@pytest.mark.parametrize("gap", [0, 29])
def test_upload_works_without_byte_streams(worker: InWorker, server: BadServer, gap: int) -> None:
    assert_uploaded(worker.python(f"await upload(await open_source('{server.url('good')}'), gap={gap})"), gap)
    assert streams(server) == [START]


def test_upload_works_from_a_file_of_the_page(worker: InWorker, server: BadServer) -> None:
    worker.javascript(
        "async (url) => { self.file = new File([await (await fetch(url)).arrayBuffer()], 'my.gguf'); }",
        server.url("good"),
    )
    name, size, found = worker.python("""
source = await open_source(js.file)
[source.name, source.size, await upload(source)]
""")
    assert (name, size) == ("my.gguf", len(DATA))
    assert_uploaded(found)


STORE = """async ([url, name]) => {
  const folder = await navigator.storage.getDirectory();
  self.handle = await folder.getFileHandle(name, { create: true });
  const access = await self.handle.createSyncAccessHandle();
  access.truncate(0);
  access.write(new Uint8Array(await (await fetch(url)).arrayBuffer()));
  access.close();
}"""


@pytest.fixture
def stored(worker: InWorker, server: BadServer) -> Iterator[None]:
    """The file in the origin's private file system; `js.handle` is its handle."""
    worker.javascript(STORE, [server.url("good"), "stored.gguf"])
    yield
    worker.javascript(
        "async () => { await (await navigator.storage.getDirectory()).removeEntry('stored.gguf'); }"
    )


@pytest.fixture
def no_access(worker: InWorker) -> Iterator[None]:
    """A place where files cannot be read in place, such as the page itself."""
    worker.javascript("""() => {
      self.keptAccess = FileSystemFileHandle.prototype.createSyncAccessHandle;
      delete FileSystemFileHandle.prototype.createSyncAccessHandle;
    }""")
    yield
    worker.javascript("() => { FileSystemFileHandle.prototype.createSyncAccessHandle = self.keptAccess; }")


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("reader", ["HandleReader", "BlobReader"])
def test_upload_works_from_the_private_file_system(
    worker: InWorker, reader: str, request: pytest.FixtureRequest
) -> None:
    """In place where the browser can; two models may be read from one file at the same time."""
    if reader == "BlobReader":
        request.getfixturevalue("no_access")
    kinds, name, size, header, *found = worker.python("""
sources = [await open_source(js.handle) for _ in range(2)]
[[str(s.reader.constructor.name) for s in sources], sources[0].name, sources[0].size,
 hashlib.sha256(await sources[0].read(5, 70_000)).hexdigest(), *[await upload(s) for s in sources]]
""")
    assert kinds == [reader] * 2
    assert (name, size) == ("stored.gguf", len(DATA))
    assert header == hashlib.sha256(DATA[5:70_005]).hexdigest()
    for each in found:
        assert_uploaded(each)


@pytest.mark.usefixtures("stored")
def test_reading_past_the_end_of_a_stored_file_is_refused(worker: InWorker) -> None:
    past, short = worker.python("""
source = await open_source(js.handle)
past = await refused(source.read(source.size - 1, 2))
source.reader.size += 1  # as if it had been longer when it was opened
short = await refused(source.read(source.size - 1, 2))
source.close()
[past, short]
""")
    assert past.startswith("SourceError: stored.gguf: bytes") and past.endswith(f"it has {len(DATA)}")
    assert short == f"SourceError: stored.gguf: it ended after {len(DATA)} of {len(DATA) + 1} bytes"


@pytest.mark.usefixtures("stored", "no_access")
def test_stored_file_that_was_removed_is_told(worker: InWorker) -> None:
    told = worker.python("""
folder = await js.navigator.storage.getDirectory()
handle = await folder.getFileHandle("gone.gguf", create=True)
await folder.removeEntry("gone.gguf")
await refused(open_source(handle))
""")
    assert told.startswith("SourceError: gone.gguf: ")


def test_upload_works_from_bytes(worker: InWorker) -> None:
    found = worker.python("""
data = bytes(i % 251 for i in range(100_003))
found = await upload(await open_source(data))
[hashlib.sha256(data[at : at + n]).hexdigest() == digest for at, n, digest in found]
""")
    assert found == [True, True]


@pytest.mark.parametrize("source", ["UrlSource.open(URL)", "open_source(js.file)"])
def test_header_reads_give_exactly_what_is_there(worker: InWorker, server: BadServer, source: str) -> None:
    worker.javascript(
        "async (url) => { self.file = new File([await (await fetch(url)).arrayBuffer()], 'my.gguf'); }",
        server.url("good"),
    )
    reads = [(0, 4), (5, 70_000), (len(DATA) - 1, 1), (3, 0)]
    digests, past = worker.python(f"""
URL = '{server.url("good")}'
source = await {source}
[[hashlib.sha256(await source.read(at, n)).hexdigest() for at, n in {reads}],
 [await refused(source.read(source.size - 1, 2)), await refused(source.read(-1, 1))]]
""")
    assert digests == [hashlib.sha256(DATA[at : at + n]).hexdigest() for at, n in reads]
    assert all(text.startswith("SourceError") and f"it has {len(DATA)}" in text for text in past)


def test_python_memory_does_not_grow_with_what_is_uploaded(worker: InWorker, server: BadServer) -> None:
    before, after = worker.python(f"""
import pyodide_js
before = pyodide_js._module.HEAPU8.byteLength
gpu = await BrowserGpu.open()
buffer = gpu.buffer(CHUNK_BYTES, "w")
for _ in range(3):
    source = await UrlSource.open('{server.url("good")}')
    for at in range(0, source.size - CHUNK_BYTES, CHUNK_BYTES):
        await gpu.upload(source, Chunk(at, CHUNK_BYTES, (Piece(buffer, 0, at, CHUNK_BYTES),)))
    source.close()
gpu.close()
[before, pyodide_js._module.HEAPU8.byteLength]
""")
    assert after == before


def test_upload_runs_ahead_of_the_gpu_by_a_bounded_number_of_bytes(
    worker: InWorker, server: BadServer
) -> None:
    """It does not wait where a chunk ends, nor does it pile up what the GPU has not taken over yet."""
    worker.javascript("""() => {
      const { prototype } = GPUQueue;
      self.kept = [prototype.writeBuffer, prototype.onSubmittedWorkDone];
      self.ahead = { now: 0, most: 0, waits: 0 };
      prototype.writeBuffer = function (buffer, offset, data, from, size) {
        ahead.now += size ?? data.byteLength;
        ahead.most = Math.max(ahead.most, ahead.now);
        return kept[0].apply(this, arguments);
      };
      prototype.onSubmittedWorkDone = async function () {
        const before = ahead.now;
        ahead.waits += 1;
        await kept[1].call(this);
        await new Promise((resolve) => setTimeout(resolve, 30)); // a slow GPU
        ahead.now -= Math.min(before, ahead.now, 2 << 20);
      };
    }""")
    try:
        assert_uploaded(worker.python(f"await upload(await open_source('{server.url('good')}'))"))
        ahead = worker.javascript("() => self.ahead")
    finally:
        worker.javascript(
            "() => { [GPUQueue.prototype.writeBuffer, GPUQueue.prototype.onSubmittedWorkDone] = self.kept; }"
        )
    assert 4 << 20 < ahead["most"] <= (6 << 20) + 64
    assert ahead["waits"] <= len(DATA) / (2 << 20) + 4  # one a step, and one more a chunk at most


def test_device_that_is_lost_during_an_upload_is_told(worker: InWorker, server: BadServer) -> None:
    told = worker.python(f"""
gpu = await BrowserGpu.open()
buffer = gpu.buffer(CHUNK_BYTES, "w")
source = await UrlSource.open('{server.url("good")}')
async def all_of_it():
    for at in (0, CHUNK_BYTES):
        await gpu.upload(source, Chunk(at, CHUNK_BYTES, (Piece(buffer, 0, at, CHUNK_BYTES),)))
    await gpu.idle()
running = asyncio.ensure_future(refused(all_of_it()))
await asyncio.sleep(0)
gpu._js.device.destroy()
told = await running
source.close()
told
""")
    assert told.startswith("DeviceError: the GPU device was lost")


# ---- connections that are cut ----


@pytest.mark.parametrize("plain", [False, True])
def test_cut_connection_goes_on_where_it_ended(
    worker: InWorker, server: BadServer, request: pytest.FixtureRequest, plain: bool
) -> None:
    if plain:
        request.getfixturevalue("plain_streams")
    assert_uploaded(worker.python(f"await upload(await UrlSource.open('{server.url('cut')}'))"))
    at = streams(server)
    assert at == sorted(at)
    # A first cut of a byte stream loses what one chunk had so far, later ones lose nothing.
    assert len(at) <= len(DATA) // CUT_BYTES + 4


def test_server_that_always_hangs_up_is_given_up_on(worker: InWorker, server: BadServer) -> None:
    text = worker.python(f"await refused(upload(await UrlSource.open('{server.url('hangs-up')}')))")
    assert text.startswith(f"SourceError: {server.url('hangs-up')}: ")
    assert "tried 4 times" in text
    assert "Failed to fetch" in text or "connection was cut" in text


def test_server_error_is_tried_again_and_told(worker: InWorker, server: BadServer) -> None:
    text = worker.python(f"await refused(upload(await UrlSource.open('{server.url('breaks')}')))")
    assert "the server answered 503" in text
    assert len(streams(server)) == 4


def test_device_still_works_after_a_failed_upload(worker: InWorker, server: BadServer) -> None:
    text, value = worker.python(f"""
gpu = await BrowserGpu.open()
buffer = gpu.buffer(8, "w")
source = await UrlSource.open('{server.url("breaks")}')
text = await refused(gpu.upload(source, Chunk(0, 8, (Piece(buffer, 0, 0, 8),))))
good = await UrlSource.open('{server.url("good")}')
await gpu.upload(good, Chunk(5, 6, (Piece(buffer, 0, 5, 6),)))
value = (await gpu.read(buffer, 0, 8)).hex()
gpu.close()
[text, value]
""")
    assert text.startswith("SourceError")
    assert value == DATA[5:11].hex() + "0000"


# ---- servers that fall silent ----


@pytest.fixture
def impatience(worker: InWorker) -> Iterator[None]:
    """Thirty seconds pass in half a second."""
    worker.javascript("""() => {
      self.keptSetTimeout = self.setTimeout;
      self.setTimeout = (f, ms, ...more) => self.keptSetTimeout(f, ms === 30000 ? 500 : ms, ...more);
    }""")
    yield
    worker.javascript("() => { self.setTimeout = self.keptSetTimeout; }")


@pytest.mark.usefixtures("impatience")
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("way", ["silent", "falls-silent", "stalls-at-once", "stalls", "hidden-silent"])
def test_silent_server_is_given_up_on(
    worker: InWorker, server: BadServer, way: str, plain: bool, request: pytest.FixtureRequest
) -> None:
    if plain:
        request.getfixturevalue("plain_streams")
    at_once = way in ("silent", "stalls-at-once")
    for do in ("source.read(5, 400_000)", "upload(source)"):
        server.requests.clear()
        text = worker.python(f"""
async def all_of_it():
    source = await open_source('{server.url(way)}')
    await {do}
await refused(all_of_it())
""")
        assert text.startswith(f"SourceError: {server.url(way)}: no answer within {TIMEOUT_S:g} s")
        assert len(server.requests) == (1 if at_once else 2)


# ---- servers that are wrong ----


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("no-range", "answered 200 to a request for bytes=0-0; it must answer 206"),
        ("web-page", "a web page (text/html; charset=utf-8), not with a model"),
        ("missing", "the server answered 404"),
        ("other-range", "with Content-Range 'bytes 1-1/"),
        ("nonsense-range", "the server's Content-Range is 'all of it'"),
        ("unknown-size", "/*'"),
        ("closed", "CORS: it must send Access-Control-Allow-Origin"),
    ],
)
def test_wrong_server_is_refused_at_once(worker: InWorker, server: BadServer, way: str, told: str) -> None:
    text = worker.python(f"await refused(open_source('{server.url(way)}'))")
    assert text.startswith(f"SourceError: {server.url(way)}: ")
    assert told in text
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("short", "answered a request for bytes=1001- with Content-Range 'bytes 1001-"),
        ("grows", f"it had {len(DATA)} bytes and has {len(DATA) + 1} now: the file was changed"),
        ("changes", "the file was changed while it was read"),
    ],
)
def test_server_that_turns_wrong_is_refused(worker: InWorker, server: BadServer, way: str, told: str) -> None:
    text = worker.python(f"await refused(upload(await open_source('{server.url(way)}')))")
    assert text.startswith(f"SourceError: {server.url(way)}: ")
    assert told in text
    assert len(streams(server)) == 1


def test_server_that_is_not_there_says_so(worker: InWorker) -> None:
    text = worker.python("await refused(open_source('http://127.0.0.1:9/model.gguf'))")
    assert "SourceError: http://127.0.0.1:9/model.gguf: " in text and "cannot be reached" in text


def test_what_is_no_url_is_refused(worker: InWorker) -> None:
    assert worker.python("await refused(open_source('http://[nowhere'))") == (
        "SourceError: 'http://[nowhere' is no URL"
    )


def test_picked_file_loads_and_one_that_changed_on_the_disk_is_told(browser_lm: Any, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model())
    lm, page = browser_lm, browser_lm.lm.page
    lm.loaded = None  # what the fixture thinks is loaded goes away
    lm.run(page.evaluate("document.body.innerHTML += '<input type=file id=pick>'"))
    lm.run(page.set_input_files("#pick", path))
    load = """() => window.pagelm.call("load", {file: document.getElementById("pick").files[0]})
      .then((info) => [info.name, info.size], (error) => `${error.name}: ${error.message}`)"""
    assert lm.run(page.evaluate(load)) == ["tiny.gguf", path.stat().st_size]
    path.write_bytes(tiny_model()[:-1])
    text = lm.run(page.evaluate(load))
    assert text.startswith("SourceError: tiny.gguf: ")
