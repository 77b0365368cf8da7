"""The wheel that a release builds: complete, without clutter, and the same as what `pagelm serve` makes."""

import io
import zipfile
from pathlib import Path

import pagelm
from pagelm.host.wheel import make_wheel

ROOT = Path(__file__).parent.parent
FOLDERS = {"guest": "pagelm", "shaders": "pagelm/shaders", "host": "pagelm/host"}
INFO = f"pagelm-{pagelm.__version__}.dist-info/"


def contents(archive: zipfile.ZipFile) -> dict[str, bytes]:
    return {name: archive.read(name) for name in archive.namelist() if not name.startswith(INFO)}


def test_built_wheel_holds_every_source_file_as_it_is(wheel: Path) -> None:
    built = contents(zipfile.ZipFile(wheel))
    wanted = {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}": path.read_bytes()
        for folder, package in FOLDERS.items()
        for suffix in ("py", "wgsl", "js", "html", "css", "json")
        for path in (ROOT / folder).rglob(f"*.{suffix}")
        if "node_modules" not in path.parts
    }
    assert {suffix for name in wanted for suffix in [name.rpartition(".")[2]]} >= {"py", "wgsl", "js", "html"}
    assert {name: built.get(name) for name in wanted} == wanted


def test_built_wheel_carries_nothing_from_npm_though_it_lies_there(wheel: Path) -> None:
    assert [name for name in zipfile.ZipFile(wheel).namelist() if "node_modules" in name] == []
    assert wheel.stat().st_size < 1_000_000


def test_wheel_that_serve_makes_has_the_same_contents(wheel: Path) -> None:
    """The server's one is made of the package that runs the tests, which must be this tree's."""
    made = contents(zipfile.ZipFile(io.BytesIO(make_wheel().data)))
    assert made == contents(zipfile.ZipFile(wheel))
