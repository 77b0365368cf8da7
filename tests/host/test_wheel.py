"""The wheel made of the installed package: what is in it, and that installers can rely on it."""

import base64
import csv
import hashlib
import io
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import pagelm
from pagelm.host.assets import SetupError, package_dir
from pagelm.host.wheel import make_wheel, read_wheel

INFO = f"pagelm-{pagelm.__version__}.dist-info"


@pytest.fixture(scope="module")
def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(make_wheel().data))


def test_wheel_is_named_for_the_version() -> None:
    assert make_wheel().name == f"pagelm-{pagelm.__version__}-py3-none-any.whl"


def test_wheel_is_the_same_every_time() -> None:
    assert make_wheel().data == make_wheel().data


@pytest.mark.parametrize("package", ["pagelm", "pagelm.shaders", "pagelm.host"])
def test_wheel_holds_every_source_file_of_a_package(archive: zipfile.ZipFile, package: str) -> None:
    root = package_dir(package)
    wanted = {
        f"{package.replace('.', '/')}/{path.relative_to(root).as_posix()}"
        for suffix in ("py", "wgsl", "js", "html", "css")
        for path in root.rglob(f"*.{suffix}")
        if "node_modules" not in path.parts
    }
    assert wanted and wanted <= set(archive.namelist())


def test_wheel_leaves_out_what_npm_and_python_left_behind(archive: zipfile.ZipFile) -> None:
    clutter = [
        n for n in archive.namelist() if "node_modules" in n or "__pycache__" in n or n.endswith(".pyc")
    ]
    assert clutter == []


def test_record_lists_every_file_with_its_hash(archive: zipfile.ZipFile) -> None:
    rows = list(csv.reader(archive.read(f"{INFO}/RECORD").decode().splitlines()))
    assert [row[0] for row in rows] == archive.namelist()
    for name, digest, size in rows[:-1]:
        data = archive.read(name)
        wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (digest, int(size)) == (f"sha256={wanted}", len(data))
    assert rows[-1] == [f"{INFO}/RECORD", "", ""]


def test_metadata_names_package_and_version(archive: zipfile.ZipFile) -> None:
    metadata = BytesParser().parsebytes(archive.read(f"{INFO}/METADATA"))
    assert (metadata["Name"], metadata["Version"]) == ("pagelm", pagelm.__version__)


def test_given_wheel_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pagelm-9.9-py3-none-any.whl"
    path.write_bytes(b"wheel")
    assert (read_wheel(path).name, read_wheel(path).data) == (path.name, b"wheel")


@pytest.mark.parametrize("name", ["other-1.0-py3-none-any.whl", "pagelm-1.0-cp311-linux.whl", "pagelm.zip"])
def test_given_file_that_is_no_wheel_of_pagelm_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(SetupError, match="not a wheel of pagelm"):
        read_wheel(tmp_path / name)
