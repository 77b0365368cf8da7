"""The server: routes, types, headers, ranges, and what it refuses to give away."""

import http.client
import json
import socket
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pagelm.errors import SourceError
from pagelm.host import assets
from pagelm.host.assets import PYODIDE_FILES, SetupError
from pagelm.host.server import RunningServer, ServerError, start_server

MODEL = bytes(range(256)) * 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of a small file, with a stand-in for Pyodide."""
    folder = tmp_path_factory.mktemp("serve")
    pyodide = folder / "pyodide"
    pyodide.mkdir()
    for name in PYODIDE_FILES:
        (pyodide / name).write_bytes(b"x")
    (folder / "secret.txt").write_text("not for the page")
    (pyodide / "link.txt").symlink_to(folder / "secret.txt")
    model = folder / "a model.gguf"
    model.write_bytes(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAGELM_PYODIDE", str(pyodide))
        with start_server(model) as running:
            yield running


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()


def ask(server: RunningServer, path: str, method: str = "GET", **headers: str) -> Answer:
    """One request with the path as it is: clients such as urllib tidy up `..`."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    try:
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def model_path(server: RunningServer) -> str:
    return "/" + json.loads(ask(server, "/model.json").body)["model"]["url"]


def test_server_listens_on_loopback_only(server: RunningServer) -> None:
    assert urlsplit(server.url).hostname == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "mime"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/page/page.js", "text/javascript; charset=utf-8"),
        ("/page/page.css", "text/css; charset=utf-8"),
        ("/pyodide/pyodide.mjs", "text/javascript; charset=utf-8"),
        ("/pyodide/pyodide.asm.wasm", "application/wasm"),
        ("/pyodide/python_stdlib.zip", "application/zip"),
        ("/wheel.json", "application/json"),
    ],
)
def test_server_sends_the_type_a_browser_needs(server: RunningServer, path: str, mime: str) -> None:
    answer = ask(server, path)
    assert (answer.status, answer.headers["content-type"]) == (200, mime)


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/wheel.json", "/nowhere"])
def test_every_answer_isolates_the_page(server: RunningServer, path: str) -> None:
    headers = ask(server, path).headers
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    [
        "/pyodide/../secret.txt",
        "/pyodide/%2e%2e/secret.txt",
        "/pyodide/..%2fsecret.txt",
        "/pyodide//../secret.txt",
        "/pyodide/link.txt",
        "/page/../server.py",
        "/page/..%5cserver.py",
        "/page/%00",
        "/page/",
        "/page",
        "/model/secret.txt",
        "/model/..%2fsecret.txt",
        "/model/",
        "/wheel/other.whl",
    ],
)
def test_server_gives_nothing_outside_its_folders(server: RunningServer, path: str) -> None:
    answer = ask(server, path)
    assert answer.status in (307, 404)
    assert b"not for the page" not in answer.body


@pytest.mark.parametrize("named", [1, 3])
def test_all_parts_of_a_split_model_are_served_and_nothing_beside_them(
    tmp_path: Path, with_pyodide: None, named: int
) -> None:
    names = [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for i, name in enumerate(names, 1):
        (tmp_path / name).write_bytes(bytes(range(i)))
    for other in ("m-00004-of-00003.gguf", "m-00001-of-00002.gguf", "n-00001-of-00003.gguf", "m.gguf"):
        (tmp_path / other).write_bytes(b"not offered")
    with start_server(tmp_path / names[named - 1]) as running:
        offered = json.loads(ask(running, "/model.json").body)["model"]
        assert offered == {"name": names[named - 1], "url": f"model/{names[named - 1]}", "bytes": 6}
        for i, name in enumerate(names, 1):
            assert ask(running, f"/model/{name}").body == bytes(range(i))
        for other in ("m-00004-of-00003.gguf", "m-00001-of-00002.gguf", "n-00001-of-00003.gguf", "m.gguf"):
            assert ask(running, f"/model/{other}").status == 404
        (tmp_path / names[1]).unlink()
        assert ask(running, f"/model/{names[1]}").status == 404


def test_server_takes_no_uploads(server: RunningServer) -> None:
    assert ask(server, model_path(server), "PUT").status == 405
    assert ask(server, "/page/page.js", "POST").status == 405


@pytest.mark.parametrize(
    ("asked", "first", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=0-15", 0, 16),
        ("bytes=255990-255999", 255990, 256000),
        ("bytes=255999-", 255999, 256000),
        ("bytes=100-", 100, 256000),
        ("bytes=-1", 255999, 256000),
        ("bytes=-300", 255700, 256000),
        ("bytes=-999999", 0, 256000),
        ("bytes=255000-999999", 255000, 256000),
    ],
)
def test_range_gives_exactly_the_bytes_asked_for(
    server: RunningServer, asked: str, first: int, end: int
) -> None:
    answer = ask(server, model_path(server), Range=asked)
    assert answer.status == 206
    assert answer.headers["content-range"] == f"bytes {first}-{end - 1}/{len(MODEL)}"
    assert int(answer.headers["content-length"]) == end - first
    assert answer.body == MODEL[first:end]


@pytest.mark.parametrize("asked", ["bytes=256000-", "bytes=256000-256010", "bytes=-0"])
def test_range_past_the_end_is_refused_with_the_size(server: RunningServer, asked: str) -> None:
    answer = ask(server, model_path(server), Range=asked)
    assert answer.status == 416
    assert answer.headers["content-range"] == f"bytes */{len(MODEL)}"


@pytest.mark.parametrize("asked", ["bytes=5-2", "bytes=a-b", "lines=0-5", "bytes", "bytes=-"])
def test_malformed_range_gives_no_part(server: RunningServer, asked: str) -> None:
    assert ask(server, model_path(server), Range=asked).status in (200, 400, 416)


def test_model_without_range_comes_whole(server: RunningServer) -> None:
    answer = ask(server, model_path(server))
    assert (answer.status, answer.body) == (200, MODEL)
    assert answer.headers["accept-ranges"] == "bytes"


def test_head_tells_the_size_and_sends_nothing(server: RunningServer) -> None:
    whole = ask(server, model_path(server), "HEAD")
    assert (whole.status, whole.headers["content-length"], whole.body) == (200, str(len(MODEL)), b"")
    part = ask(server, model_path(server), "HEAD", Range="bytes=0-9")
    assert (part.status, part.headers["content-length"], part.body) == (206, "10", b"")


def test_if_range_gives_the_part_only_of_the_same_file(server: RunningServer) -> None:
    etag = ask(server, model_path(server), "HEAD").headers["etag"]
    assert ask(server, model_path(server), Range="bytes=0-9", If_Range=etag).status == 206
    other = ask(server, model_path(server), Range="bytes=0-9", If_Range='"another"')
    assert (other.status, other.body) == (200, MODEL)


def test_unchanged_page_file_is_not_sent_again(server: RunningServer) -> None:
    first = ask(server, "/page/page.js")
    assert first.headers["cache-control"] == "no-cache"
    again = ask(server, "/page/page.js", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_wheel_is_a_wheel_and_never_cached(server: RunningServer) -> None:
    info = ask(server, "/wheel.json")
    name = json.loads(info.body)["wheel"]
    wheel = ask(server, f"/wheel/{name}")
    assert name.startswith("pagelm-") and name.endswith("-py3-none-any.whl")
    assert info.headers["cache-control"] == wheel.headers["cache-control"] == "no-store"
    assert "pagelm/__init__.py" in zipfile.ZipFile(BytesIO(wheel.body)).namelist()


def test_model_json_is_null_without_a_model(monkeypatch: pytest.MonkeyPatch, pyodide_stub: Path) -> None:
    with start_server() as server:
        assert json.loads(ask(server, "/model.json").body) == {"model": None}
        assert ask(server, "/model/x.gguf").status == 404
        assert server.model_url is None


@pytest.fixture
def pyodide_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in PYODIDE_FILES:
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setenv("PAGELM_PYODIDE", str(tmp_path))
    return tmp_path


def test_taken_port_is_a_typed_error(pyodide_stub: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerError, match="choose another port"):
            start_server(port=taken.getsockname()[1])


def test_impossible_port_is_a_typed_error(pyodide_stub: Path) -> None:
    with pytest.raises(ServerError, match="70000"):
        start_server(port=70000)


def test_port_is_free_again_after_stop(pyodide_stub: Path) -> None:
    server = start_server()
    port = int(urlsplit(server.url).port or 0)
    server.stop()
    server.stop()
    with start_server(port=port) as again:
        assert ask(again, "/wheel.json").status == 200


def test_missing_model_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nothing\.gguf"):
        start_server(tmp_path / "nothing.gguf")


def test_missing_pyodide_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PAGELM_PYODIDE", raising=False)
    monkeypatch.setenv("PAGELM_CACHE", str(tmp_path))
    monkeypatch.setattr(assets, "package_dir", lambda name: _host_without_node_modules(tmp_path))
    with pytest.raises(SetupError, match="make setup"):
        assets.pyodide_dir()


def test_incomplete_pyodide_names_the_missing_file(pyodide_stub: Path) -> None:
    assert assets.pyodide_dir() == pyodide_stub
    (pyodide_stub / "pyodide.asm.wasm").unlink()
    with pytest.raises(SetupError, match=r"lacks pyodide\.asm\.wasm"):
        assets.pyodide_dir()


def test_pyodide_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    host = _host_without_node_modules(tmp_path)
    folder = host / "node_modules" / "pyodide"
    folder.mkdir(parents=True)
    for name in PYODIDE_FILES:
        (folder / name).write_bytes(b"x")
    monkeypatch.delenv("PAGELM_PYODIDE", raising=False)
    monkeypatch.setattr(assets, "package_dir", lambda name: host)
    (folder / "package.json").write_text('{"version": "1.2.3"}')
    assert assets.pyodide_dir() == folder
    (folder / "package.json").write_text('{"version": "1.2.2"}')
    with pytest.raises(SetupError, match=r"1\.2\.2"):
        assets.pyodide_dir()


def _host_without_node_modules(folder: Path) -> Path:
    host = folder / "host"
    host.mkdir(exist_ok=True)
    (host / "package.json").write_text('{"dependencies": {"pyodide": "1.2.3"}}')
    return host
