"""Byte sources: memory, file, and HTTP servers that lie in every way we could think of."""

import asyncio
import http.server
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagelm import sources
from pagelm.errors import PagelmError, SourceError
from pagelm.sources import FileSource, HttpSource, MemorySource

BODY = bytes(range(256)) * 40  # 10,240 bytes, every position recognisable


def read(source: MemorySource | FileSource | HttpSource, at: int, nbytes: int) -> bytes:
    return asyncio.run(source.read(at, nbytes))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(BODY)
    return path


@pytest.mark.parametrize("kind", ["memory", "bytearray", "memoryview", "file"])
def test_source_gives_exactly_the_bytes_asked_for(kind, file):
    data = {"bytearray": bytearray, "memoryview": memoryview}.get(kind, bytes)(BODY)
    source = FileSource(file) if kind == "file" else MemorySource(data)
    assert source.size == len(BODY)
    for at, n in ((0, 0), (0, 1), (5, 300), (len(BODY), 0), (len(BODY) - 1, 1), (0, len(BODY)), (17, 1)):
        got = read(source, at, n)
        assert type(got) is bytes and got == BODY[at : at + n]
    for at, n in ((0, len(BODY) + 1), (len(BODY), 1), (-1, 1), (0, -1), (1, 2**64)):
        with pytest.raises(SourceError, match=f"it has {len(BODY)}"):
            read(source, at, n)
    source.close()
    source.close()


def test_memory_source_of_wider_items_counts_bytes():
    from array import array

    assert MemorySource(memoryview(array("I", [1, 2, 3]))).size == 12


def test_file_source_names_what_is_wrong(tmp_path, file):
    with pytest.raises(SourceError, match="no such file"):
        FileSource(tmp_path / "missing.gguf")
    with pytest.raises(SourceError, match="directory"):
        FileSource(tmp_path)
    with pytest.raises(SourceError, match="null"):
        FileSource("a\0b")
    with pytest.raises(SourceError, match="not a regular file"):
        FileSource("/dev/null")
    source = FileSource(file)
    source.close()
    with pytest.raises(SourceError, match="already closed"):
        read(source, 0, 1)


def test_file_source_without_permission(monkeypatch, file):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    # Simulated: the tests may run as a user whom no mode bits stop.
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(SourceError, match="permission denied"):
        FileSource(file)


def test_file_that_shrinks_while_it_is_read_is_noticed(file):
    source = FileSource(file)
    os.truncate(file, 100)
    assert read(source, 0, 100) == BODY[:100]
    with pytest.raises(SourceError, match=r"20 of 50 bytes from 80 .* shorter now"):
        read(source, 80, 50)
    source.close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[["Handler", int], None]  # set per server: handler, first byte asked for
    seen: list[str]

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        type(self).seen.append(f"{self.path} {asked}")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        type(self).answer(self, start)

    def send(self, status: int, body: bytes = b"", *, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if length != -1:
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the reader has what it wanted
        self.close_connection = True

    def send_range(self, first: int, body: bytes, said: str | None = None, **headers: str) -> None:
        said = said or f"bytes {first}-{first + len(body) - 1}/{len(BODY)}"
        self.send(206, body, Content_Range=said, **headers)

    def log_message(self, *args: object) -> None:
        pass


Serve = Callable[[Callable[[Handler, int], None]], tuple[str, list[str]]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(answer) -> URL of a server that answers so, and the list of requests it has seen."""
    servers = []

    def start(answer: Callable[[Handler, int], None]) -> tuple[str, list[str]]:
        handler = type("H", (Handler,), {"answer": staticmethod(answer), "seen": []})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/model.gguf", handler.seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def honest(h: Handler, start: int) -> None:
    h.send_range(start, BODY[start:], ETag='"1"')


def without_range(h: Handler, start: int) -> None:
    h.send(200, BODY)


async def http_reads(url: str, *reads: tuple[int, int], **options: float) -> tuple[list[bytes], HttpSource]:
    source = await HttpSource.open(url, **options)
    try:
        return [await source.read(at, n) for at, n in reads], source
    finally:
        source.close()


def refused(url: str, *reads: tuple[int, int], **options: float) -> str:
    with pytest.raises(SourceError) as e:
        asyncio.run(http_reads(url, *reads, **options))
    assert str(e.value).startswith(url)
    return str(e.value)


def test_http_reads_that_follow_each_other_cost_one_request(serve):
    url, seen = serve(honest)
    got, source = asyncio.run(http_reads(url, (0, 100), (100, 5000), (5100, 0), (5100, len(BODY) - 5100)))
    assert b"".join(got) == BODY and source.size == len(BODY) and source.requests == len(seen) == 1


def test_http_reads_elsewhere_ask_again(serve):
    url, seen = serve(honest)
    got, _ = asyncio.run(http_reads(url, (1000, 10), (0, 10), (len(BODY) - 1, 1)))
    assert got == [BODY[1000:1010], BODY[:10], BODY[-1:]]
    assert [s.split("=")[1] for s in seen] == ["0-", "1000-", "0-", f"{len(BODY) - 1}-"]


def test_http_reads_at_the_same_time_do_not_mix(serve):
    url, _ = serve(honest)

    async def main() -> list[bytes]:
        source = await HttpSource.open(url)
        got = await asyncio.gather(*(source.read(at, 100) for at in range(0, 2000, 100)))
        source.close()
        return got

    assert b"".join(asyncio.run(main())) == BODY[:2000]


def test_http_range_past_the_end_asks_nothing(serve):
    url, seen = serve(honest)
    with pytest.raises(SourceError, match=f"it has {len(BODY)}"):
        asyncio.run(http_reads(url, (len(BODY), 1)))
    assert len(seen) == 1


def test_http_closed_source_refuses(serve):
    url, _ = serve(honest)

    async def main() -> None:
        source = await HttpSource.open(url)
        source.close()
        await source.read(0, 1)

    with pytest.raises(SourceError, match="already closed"):
        asyncio.run(main())


def test_http_server_may_answer_a_part_at_a_time(serve):
    url, seen = serve(lambda h, start: h.send_range(start, BODY[start : start + 1000]))
    got, _ = asyncio.run(http_reads(url, (0, len(BODY))))
    assert got == [BODY] and len(seen) == 11


def test_http_address_with_spaces_and_letters_is_encoded(serve):
    url, seen = serve(honest)
    asyncio.run(http_reads(url.replace("model", "my mödel%20"), (0, 1)))
    assert seen[0].startswith("/my%20m%C3%B6del%20.gguf")


def test_http_redirect_is_followed_with_the_range(serve):
    url, seen = serve(honest)
    via, _ = serve(lambda h, start: h.send(302, Location=url))
    got, _ = asyncio.run(http_reads(via, (256, 4)))
    assert got == [BODY[256:260]] and seen[-1].endswith("bytes=256-")


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_http_redirect_to_another_scheme_is_refused(serve, target):
    url, _ = serve(lambda h, start: h.send(302, Location=target))
    assert refused(url)


def test_http_redirect_loop_is_refused(serve):
    url, _ = serve(lambda h, start: h.send(302, Location="/model.gguf"))
    assert "302" in refused(url)


def test_http_server_without_range_is_read_forward(serve):
    url, seen = serve(without_range)
    got, source = asyncio.run(http_reads(url, (0, 1000), (1000, 100), (500, 10)))
    assert got == [BODY[:1000], BODY[1000:1100], BODY[500:510]]
    assert source.size == len(BODY) and len(seen) == 2  # going back needs a new request, then skips


def test_http_server_without_range_cannot_reach_far_positions(serve, monkeypatch):
    monkeypatch.setattr(sources, "MAX_SKIP", 4000)
    url, _ = serve(without_range)
    assert asyncio.run(http_reads(url, (4000, 10)))[0] == [BODY[4000:4010]]
    assert "ignores Range" in refused(url, (4001, 10))


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("bytes 1-10239/10240", 0),
        ("bytes 0-10240/10240", 0),
        ("bytes 5-4/10240", 0),
        ("bytes 0-10239/*", 0),
        ("bytes */10240", 0),
        ("octets 0-10239/10240", 0),
        ("bytes 0-10239/99999999999999999999", 0),
        ("", 0),
    ],
)
def test_http_wrong_content_range_is_refused(serve, said, first):
    url, _ = serve(lambda h, start: h.send(206, BODY[first:], Content_Range=said))
    assert repr(said) in refused(url)


def test_http_answer_that_ignores_the_position_is_refused(serve):
    url, _ = serve(lambda h, start: h.send_range(0, BODY))
    assert "bytes 100- were asked for" in refused(url, (100, 1))


@pytest.mark.parametrize("status", [404, 410, 401, 403, 416, 500, 503])
def test_http_error_status_is_named(serve, status):
    url, _ = serve(lambda h, start: h.send(status, b"<html>no</html>", Content_Type="text/html"))
    message = refused(url)
    assert str(status) in message and ("check the address" in message) == (status in (404, 410))


@pytest.mark.parametrize("status", [204, 203])
def test_http_other_success_is_refused(serve, status):
    url, _ = serve(lambda h, start: h.send(status))
    assert f"answers {status}" in refused(url)


def test_http_web_page_instead_of_a_model_gets_a_hint(serve):
    url, _ = serve(lambda h, start: h.send(200, b"<!doctype html>", Content_Type="text/html; charset=utf-8"))
    assert "web page" in refused(url)


def test_http_compressed_answer_is_refused(serve):
    url, _ = serve(lambda h, start: h.send_range(start, BODY[start:], Content_Encoding="gzip"))
    assert "gzip" in refused(url)


def test_http_unknown_length_is_refused(serve):
    url, _ = serve(lambda h, start: h.send(200, BODY, length=-1))
    assert "does not say how long" in refused(url)


def cut_after(nbytes: int) -> Callable[[Handler, int], None]:
    """Promises all, sends `nbytes` bytes, hangs up."""

    def answer(h: Handler, start: int) -> None:
        said = f"bytes {start}-{len(BODY) - 1}/{len(BODY)}"
        h.send(206, BODY[start : start + nbytes], length=len(BODY) - start, Content_Range=said)

    return answer


def test_http_body_that_never_comes_is_noticed(serve):
    url, seen = serve(cut_after(0))
    assert "ended at byte 0" in refused(url, (0, len(BODY))) and len(seen) == 1


def test_http_body_that_breaks_off_is_taken_up_again(serve):
    url, seen = serve(cut_after(4000))
    assert asyncio.run(http_reads(url, (0, len(BODY))))[0] == [BODY]
    assert [s.split("=")[1] for s in seen] == ["0-", "4000-", "8000-"]


def test_http_body_that_breaks_off_again_and_again_is_given_up(serve):
    url, seen = serve(cut_after(1000))
    assert "ended at byte 4000" in refused(url, (0, len(BODY)))
    assert len(seen) == 1 + sources.MAX_RESUMES


def test_http_stream_that_the_server_closed_during_a_pause_is_taken_up_again(serve):
    url, seen = serve(cut_after(4000))

    async def main() -> bytes:
        source = await HttpSource.open(url)
        first = await source.read(0, 4000)
        second = await source.read(4000, 10)
        source.close()
        return first + second

    assert asyncio.run(main()) == BODY[:4010] and len(seen) == 2


def test_http_body_longer_than_promised_gives_no_extra_bytes(serve):
    url, seen = serve(
        lambda h, start: h.send(
            206, BODY[start:], length=10, Content_Range=f"bytes {start}-{start + 9}/{len(BODY)}"
        )
    )
    assert asyncio.run(http_reads(url, (0, 25)))[0] == [BODY[:25]]
    assert len(seen) == 3


def test_http_range_longer_than_the_body_is_noticed(serve):
    # Content-Length says 0, Content-Range says all: what arrives counts.
    url, _ = serve(lambda h, start: h.send(206, Content_Range=f"bytes 0-{len(BODY) - 1}/{len(BODY)}"))
    assert "ended at byte 0" in refused(url, (0, 20))


@pytest.mark.parametrize("what", ["size", "tag"])
def test_http_file_that_changes_between_reads_is_noticed(serve, what):
    calls = []

    def changing(h: Handler, start: int) -> None:
        calls.append(start)
        body = BODY + b"x" * (len(calls) - 1) if what == "size" else BODY
        h.send_range(
            start, body[start:], f"bytes {start}-{len(body) - 1}/{len(body)}", ETag=f'"{len(calls)}"'
        )

    url, _ = serve(changing)
    assert "has changed" in refused(url, (0, 10), (5000, 10))


def test_http_server_that_hangs_up_or_stays_silent(serve):
    url, _ = serve(lambda h, start: h.wfile.write(b"nonsense\r\n\r\n"))
    assert "HTTP" in refused(url)
    wait = threading.Event()
    url, _ = serve(lambda h, start: wait.wait(5) and None)
    assert "0.2 s" in refused(url, timeout_s=0.2)
    wait.set()


def test_http_source_works_again_after_an_error(serve):
    calls = []

    def flaky(h: Handler, start: int) -> None:
        calls.append(start)
        cut_after(0 if len(calls) == 1 else len(BODY))(h, start)

    async def main() -> bytes:
        source = await HttpSource.open(url)
        with pytest.raises(SourceError, match="ended at byte 0"):
            await source.read(0, 100)
        data = await source.read(0, 100)
        source.close()
        return data

    url, _ = serve(flaky)
    assert asyncio.run(main()) == BODY[:100]


def test_http_unreachable_server_and_bad_addresses():
    with pytest.raises(SourceError, match="refused"):
        asyncio.run(HttpSource.open("http://127.0.0.1:1/x"))
    for url in (
        "ftp://host/x",
        "model.gguf",
        "file:///etc/hostname",
        "http://",
        "http://[::1/x",
        "http://a b/",
    ):
        with pytest.raises(PagelmError):
            asyncio.run(HttpSource.open(url))
