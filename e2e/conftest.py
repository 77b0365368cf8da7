"""The built wheel, served, installed in Pyodide in headless Chromium: what all end-to-end tests share.

`guest` calls the guest in one page for the whole session, `lm` is the default model loaded in another. Both
live in a thread with an event loop of its own, so that the tests are plain functions.
"""

import asyncio
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagelm.host.browser_guest import BrowserGuest
from pagelm.host.browser_lm import BrowserLm
from pagelm.host.chromium import chromium_flags, find_chromium
from pagelm.host.native_lm import NativeLm
from pagelm.host.server import RunningServer, start_server

ROOT = Path(__file__).parent.parent
DATA = Path(__file__).parent / "data"
N_CTX = 512
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Runs a coroutine on the session's event loop and gives its result; at most 15 minutes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="e2e", daemon=True)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(900)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as `python -m build` makes it from a clean copy of what a checkout holds."""
    out = tmp_path_factory.mktemp("wheel")
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would ship files deleted since
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(out.glob("pagelm-*.whl"))


@pytest.fixture(scope="session")
def guest(run: Run, wheel: Path) -> Iterator[BrowserGuest]:
    """A page with pagelm and no model; `run(guest.call(method, args))`."""
    guest = run(BrowserGuest.open(wheel=wheel))
    yield guest
    run(guest.close())


@pytest.fixture(scope="session")
def lm(run: Run, wheel: Path, model_path: Path) -> Iterator[BrowserLm]:
    """The default model in the browser."""
    lm = run(BrowserLm.open(str(model_path), n_ctx=N_CTX, wheel=wheel))
    yield lm
    run(lm.close())


@pytest.fixture(scope="session")
def native_lm(run: Run, model_path: Path) -> Iterator[NativeLm]:
    """The default model on the native adapter."""
    lm = run(NativeLm.open(str(model_path), n_ctx=N_CTX))
    yield lm
    run(lm.close())


@pytest.fixture(scope="session")
def traced(run: Run) -> Callable[..., list[tuple[int, np.ndarray]]]:
    """All steps of `lm.trace(ids, n, forced)` as a list."""

    async def collect(lm: Any, *args: Any) -> list[tuple[int, np.ndarray]]:
        return [(token, np.array(logits)) async for token, logits in lm.trace(*args)]

    return lambda *args: run(collect(*args))


@pytest.fixture(scope="session")
def server(wheel: Path, model_path: Path) -> Iterator[RunningServer]:
    """The page's server with the default model, for tests that drive the page themselves."""
    with start_server(model_path, wheel) as server:
        yield server


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    return {**browser_type_launch_args, "executable_path": find_chromium(), "args": chromium_flags()}


@pytest.fixture(scope="session")
def base_url(server: RunningServer) -> str:
    return server.url
