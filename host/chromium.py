"""Finds Chromium and starts it, without a window and with WebGPU, through Playwright.

PAGELM_CHROMIUM names another browser. PAGELM_ADAPTER chooses who computes: `default` is what the
browser picks (a GPU where there is one, SwiftShader where there is none), `swiftshader` is always the
same software adapter.
"""

import asyncio
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pagelm.host.assets import SetupError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
APPLICATIONS = (  # macOS keeps programs off the PATH
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
COMMON_FLAGS = (
    "--enable-unsafe-webgpu",  # Linux: WebGPU is still behind this flag; it also leaves GPU times unrounded
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
ADAPTER_FLAGS = {
    # Vulkan is what WebGPU uses on Linux; without a GPU Chromium falls back to SwiftShader by itself.
    "default": ("--enable-features=Vulkan",) if sys.platform == "linux" else (),
    "swiftshader": ("--use-webgpu-adapter=swiftshader",),
}
LAUNCH_S = 60
CLOSE_S = 10


def chromium_flags() -> list[str]:
    """Flags for the adapter that PAGELM_ADAPTER names. Raises: SetupError for an unknown name."""
    adapter = os.environ.get("PAGELM_ADAPTER") or "default"
    if adapter not in ADAPTER_FLAGS:
        raise SetupError(f"PAGELM_ADAPTER={adapter} is unknown; allowed: {', '.join(ADAPTER_FLAGS)}")
    return [*COMMON_FLAGS, *ADAPTER_FLAGS[adapter]]


def bundled_chromium() -> str | None:
    """Where Playwright would keep a browser of its own, there or not; None without Playwright.

    Asked in a process of its own: Playwright's event loop gets into the way of one that runs here.
    """
    code = "from playwright.sync_api import sync_playwright as s; p = s().start()"
    code += "; print(p.chromium.executable_path); p.stop()"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LAUNCH_S)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_chromium(bundled: Callable[[], str | None] | None = None) -> str:
    """The browser's path: PAGELM_CHROMIUM, else one on this machine, else Playwright's own.

    `bundled` says where that is, for callers who have a Playwright running.

    Raises: SetupError that says how to get one.
    """
    if own := os.environ.get("PAGELM_CHROMIUM"):
        if path := shutil.which(own):
            return path
        raise SetupError(f"PAGELM_CHROMIUM={own} is not a program; name the browser's executable file")
    for name in (*NAMES, *APPLICATIONS):
        if path := shutil.which(name):
            return path
    if (own := (bundled or bundled_chromium)()) and Path(own).is_file():
        return own
    raise SetupError(
        "no Chromium was found on the PATH; install one (Debian: apt-get install chromium; or: "
        "python -m playwright install chromium), or name its executable file in PAGELM_CHROMIUM"
    )


@asynccontextmanager
async def open_chromium(profile: Path | None = None) -> "AsyncIterator[Browser | BrowserContext]":
    """A headless browser for the length of the block; it is closed however the block ends.

    With `profile`, a folder, it keeps there what pages store, as a user's browser does; otherwise it is like
    a private window, which keeps their files in memory.

    Raises: SetupError when Playwright or the browser is missing or does not start.
    """
    try:
        from playwright.async_api import Error, async_playwright
    except ModuleNotFoundError as error:
        raise SetupError("--device browser needs Playwright; run: pip install 'pagelm[browser]'") from error

    manager = async_playwright()
    try:
        playwright = await manager.start()
    except Exception as error:  # the driver's own failures have no type of their own
        raise SetupError(f"Playwright did not start: {error}; try reinstalling it") from error
    try:
        path = find_chromium(lambda: playwright.chromium.executable_path)
        with guarded(path) as program:
            browser: Browser | BrowserContext
            options: Any = {"executable_path": program, "args": chromium_flags(), "timeout": LAUNCH_S * 1000}
            try:
                if profile is None:
                    browser = await playwright.chromium.launch(**options)
                else:
                    browser = await playwright.chromium.launch_persistent_context(profile, **options)
            except Error as error:
                raise SetupError(f"{path} did not start: {_first_line(error)}") from error
            try:
                yield browser
            finally:
                # After Ctrl-C or a crash the other side may be gone already; then there is nothing to close.
                await _ignore_failure(browser.close())
    finally:
        await _ignore_failure(playwright.stop())


@contextmanager
def guarded(path: str) -> Iterator[str]:
    """A program that becomes the browser at `path`; all of it ends when the block or this process ends.

    See chromium_guard.py, which needs nothing of Playwright for it. `path` itself where that cannot be.
    """
    if os.name != "posix" or not sys.executable:
        yield path
        return
    import fcntl

    with TemporaryDirectory(prefix="pagelm-", ignore_cleanup_errors=True) as folder:
        lock, script = Path(folder, "lock"), Path(folder, "chromium")
        guard = Path(__file__).with_name("chromium_guard.py")
        words = shlex.join([sys.executable, "-I", "-S", str(guard), str(lock), path])
        script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        script.chmod(0o700)
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield str(script) if os.access(script, os.X_OK) else path  # not where nothing there may be run


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


async def _ignore_failure(closing: Awaitable[None]) -> None:
    try:
        await asyncio.wait_for(closing, CLOSE_S)
    except Exception:
        pass
