"""open_source and open_gpu outside a browser; inside one see e2e/test_browser_sources.py."""

import asyncio
from importlib.resources import files
from pathlib import Path

import pytest

from pagelm.device.default import open_source
from pagelm.errors import SourceError
from pagelm.sources import FileSource, MemorySource


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_are_a_source(kind: type) -> None:
    source = asyncio.run(open_source(kind(b"GGUF1234")))
    assert isinstance(source, MemorySource)
    assert asyncio.run(source.read(4, 4)) == b"1234"


@pytest.mark.parametrize("kind", [str, Path])
def test_path_is_a_file(tmp_path: Path, kind: type) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF1234")
    source = asyncio.run(open_source(kind(path)))
    assert isinstance(source, FileSource)
    assert source.size == 8
    source.close()


def test_url_goes_to_the_server() -> None:
    with pytest.raises(SourceError, match="http://127.0.0.1:9/model.gguf"):
        asyncio.run(open_source("http://127.0.0.1:9/model.gguf"))


def test_source_stays_what_it_is() -> None:
    source = MemorySource(b"GGUF")
    assert asyncio.run(open_source(source)) is source


def test_anything_else_is_refused_by_type() -> None:
    with pytest.raises(TypeError, match="not dict"):
        asyncio.run(open_source({"url": "model.gguf"}))


@pytest.mark.parametrize("name", ["replay.js", "streams.js"])
def test_javascript_ships_with_the_package(name: str) -> None:
    text = files("pagelm.device").joinpath(name).read_text(encoding="utf-8")
    assert text.rstrip().endswith("})();"), "its value is what the Python half calls"
