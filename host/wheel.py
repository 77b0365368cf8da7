"""Makes the wheel that the page installs, from the package as it is installed here.

Editable or not, what runs in the page is then the same code as the one that serves it. The result is
the same, byte for byte, for the same files. Building from a source tree is `python -m build`'s job.
"""

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pagelm
from pagelm.host.assets import SetupError, package_dir

PACKAGES = ("pagelm", "pagelm.shaders", "pagelm.host")
SKIPPED = {"node_modules", "__pycache__"}
WHEEL = b"Wheel-Version: 1.0\nGenerator: pagelm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel file in memory; `name` is its file name, which installers read."""

    name: str
    data: bytes


def read_wheel(path: Path) -> Wheel:
    """A wheel made elsewhere. Raises: SetupError when it is not there or is no wheel of pagelm."""
    if not (path.name.startswith("pagelm-") and path.name.endswith("-none-any.whl") and path.is_file()):
        raise SetupError(f"{path} is not a wheel of pagelm; expected a file pagelm-VERSION-py3-none-any.whl")
    return Wheel(path.name, path.read_bytes())


def make_wheel() -> Wheel:
    """A wheel of the installed package. Raises: SetupError when pagelm is not installed."""
    version = pagelm.__version__
    contents = {name: path.read_bytes() for name, path in _package_files().items()}
    info = f"pagelm-{version}.dist-info"
    contents[f"{info}/METADATA"] = _metadata(version)
    contents[f"{info}/WHEEL"] = WHEEL
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in contents.items())
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # no clock: same files, same bytes
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return Wheel(f"pagelm-{version}-py3-none-any.whl", out.getvalue())


def _package_files() -> dict[str, Path]:
    """Path in the wheel -> path here. An editable install has its three packages in three places."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        root = package_dir(package)
        for path in root.rglob("*"):
            below = path.relative_to(root)
            hidden = any(part in SKIPPED or part.startswith(".") for part in below.parts)
            if path.is_file() and path.suffix != ".pyc" and not hidden:
                found[f"{package.replace('.', '/')}/{below.as_posix()}"] = path
    return dict(sorted(found.items()))


def _metadata(version: str) -> bytes:
    """METADATA as installed, with the version of the code: an editable install keeps an old one."""
    try:
        found = distribution("pagelm")
        text = found.read_text("METADATA") or found.read_text("PKG-INFO")  # the latter in a source tree
    except PackageNotFoundError:
        text = None
    if text is None:
        raise SetupError("pagelm is not installed here, so no wheel can be made of it; run: pip install -e .")
    headers, blank, body = text.partition("\n\n")
    lines = [f"Version: {version}" if line.startswith("Version:") else line for line in headers.split("\n")]
    return ("\n".join(lines) + blank + body).encode()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
