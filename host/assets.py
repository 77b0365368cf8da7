"""Finds what the page needs and the package does not carry: the files of Pyodide."""

import json
import os
from importlib.resources import files
from pathlib import Path

from pagelm.device.file_store import cache_dir
from pagelm.errors import PagelmError

PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")


class SetupError(PagelmError):
    """Something that the set-up installs (Pyodide, Chromium, Playwright) is missing or the wrong one."""


def package_dir(name: str) -> Path:
    """The folder of a package that lies in the file system."""
    return Path(str(files(name)))


def pyodide_version() -> str:
    """The version that package.json pins."""
    pins = json.loads((package_dir("pagelm.host") / "package.json").read_text())
    return str(pins["dependencies"]["pyodide"])


def pyodide_dir() -> Path:
    """The folder with Pyodide's files: PAGELM_PYODIDE, else node_modules beside the host, else the cache.

    Raises: SetupError naming the folders looked in, or the files missing from PAGELM_PYODIDE.
    """
    if own := os.environ.get("PAGELM_PYODIDE"):
        if missing := _missing(Path(own)):
            raise SetupError(
                f"PAGELM_PYODIDE={own} lacks {', '.join(missing)}; name a folder of the npm package"
            )
        return Path(own)
    version = pyodide_version()
    places = [
        package_dir("pagelm.host") / "node_modules" / "pyodide",
        cache_dir() / f"pyodide-{version}",
    ]
    for place in places:
        if not _missing(place):
            _check_version(place, version)
            return place
    raise SetupError(
        f"Pyodide {version} was not found in {' or '.join(map(str, places))}; run `make setup`, "
        "or name the folder of the npm package pyodide in PAGELM_PYODIDE"
    )


def _missing(folder: Path) -> list[str]:
    return [name for name in PYODIDE_FILES if not (folder / name).is_file()]


def _check_version(folder: Path, wanted: str) -> None:
    """An old node_modules would boot another Python than the one tested; better to say so."""
    about = folder / "package.json"
    found = json.loads(about.read_text()).get("version") if about.is_file() else wanted
    if found != wanted:
        raise SetupError(f"{folder} holds Pyodide {found}, but {wanted} is wanted; run `make setup`")
