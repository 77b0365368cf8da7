"""`Store` in the file system: one JSON file in the cache folder."""

import json
import os
import tempfile
from pathlib import Path

MAX_ENTRIES = 100


def cache_dir() -> Path:
    """Where things are kept from run to run: PAGELM_CACHE, else `pagelm` in the user's cache folder."""
    if own := os.environ.get("PAGELM_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pagelm"


class FileStore:
    """See `device.Store`. `path`: the file, which is replaced as a whole; the oldest entries go first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def get(self, key: str) -> str | None:
        return self._entries().get(key)

    async def set(self, key: str, text: str) -> None:
        entries = self._entries()
        entries.pop(key, None)
        entries[key] = text
        kept = dict(list(entries.items())[-MAX_ENTRIES:])
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{self._path.name}-", dir=self._path.parent) as folder:
                written = Path(folder) / self._path.name
                written.write_text(json.dumps(kept, indent=1), encoding="utf-8")
                os.replace(written, self._path)
        except OSError:
            pass  # a cache that cannot be written is none

    def _entries(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(found, dict):
            return {}
        return {key: text for key, text in found.items() if isinstance(text, str)}
