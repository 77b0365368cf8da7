"""`Store` in the page: the browser's Cache API. The JavaScript half is store.js beside this file."""

from pyodide.ffi import JsException

from .browser import script


class BrowserStore:
    """See `device.Store`. Shared by all pages and workers of an origin, kept as long as the browser likes."""

    async def get(self, key: str) -> str | None:
        try:
            return str(await script("store.js").get(key)) or None
        except JsException:
            return None

    async def set(self, key: str, text: str) -> None:
        try:
            await script("store.js").set(key, text)
        except JsException:
            pass  # no room, or storage is not allowed here: then nothing is kept
