"""Fixtures of the tests in a real browser: the built wheel, a server, Chromium, and a page driven from here.

Every test here needs Chromium and Pyodide, those marked `model` the default model's file as well. What is
missing skips them with the reason, and fails them when CI is set. A failure leaves the console's log and a
screenshot under test-results/.
"""

import asyncio
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pagelm.host.assets import SetupError, pyodide_dir
from pagelm.host.chromium import chromium_flags, find_chromium
from pagelm.host.server import RunningServer, start_server

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "test-results"
MODEL_VARIABLE = "PAGELM_TEST_MODEL"

sys.path.insert(0, str(ROOT / "tests"))  # `import tiny_gguf` in any test
sys.path.insert(0, str(ROOT / "e2e"))  # and the helpers that lie here


# ---- what is there ----


@functools.cache
def missing_browser() -> str:
    """Why no page can be opened here, or an empty string."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    try:
        find_chromium()
        pyodide_dir()
    except SetupError as error:
        return str(error)
    return ""


def default_model() -> Path | None:
    if own := os.environ.get(MODEL_VARIABLE):
        return Path(own)
    from pagelm.host import models

    path: Path | None = models.cached("smollm2")
    return path


@functools.cache
def missing_model() -> str:
    """Why the default model is not there, or an empty string."""
    path = default_model()
    if path is None or not path.is_file():
        return f"the default model is not here ({path}); run `make setup` or set {MODEL_VARIABLE}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")


def pytest_runtest_setup(item: pytest.Item) -> None:
    reason = missing_browser() or (missing_model() if item.get_closest_marker("model") else "")
    if reason and os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI is set and {reason}", pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The default model's file; mark the test `model`."""
    path = default_model()
    assert path is not None
    return path


@pytest.fixture(scope="session", autouse=True)
def _software_adapter() -> None:
    """The same adapter everywhere, unless the caller names one."""
    os.environ.setdefault("PAGELM_ADAPTER", "swiftshader")


# ---- the wheel and the server ----


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as a release builds it."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools ships again what was deleted since
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("pagelm-*.whl"))


@pytest.fixture(scope="session")
def server(wheel: Path, model_path: Path) -> Iterator[RunningServer]:
    """What `pagelm serve` runs, with the default model; mark the test `model`."""
    with start_server(model_path, wheel) as running:
        yield running


@pytest.fixture(scope="session")
def bare_server(wheel: Path) -> Iterator[RunningServer]:
    """What `pagelm serve` runs, without a model."""
    with start_server(None, wheel) as running:
        yield running


# ---- Chromium for the tests that use the page (pytest-playwright) ----


@pytest.fixture(scope="session")
def browser_type_launch_args(
    browser_type_launch_args: dict[str, Any], _software_adapter: None
) -> dict[str, Any]:
    return {**browser_type_launch_args, "executable_path": find_chromium(), "args": chromium_flags()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.failed:
        item.user_properties.append(("failed", True))
    return report


def failed(request: pytest.FixtureRequest) -> bool:
    return ("failed", True) in request.node.user_properties


def results_of(request: pytest.FixtureRequest) -> Path:
    folder = RESULTS / re.sub(r"[^\w.-]+", "-", request.node.nodeid)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def page(page: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """pytest-playwright's page; a failed test leaves its console and a screenshot."""
    log: list[str] = []
    page.on("console", lambda message: log.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: log.append(f"uncaught: {error}"))
    page.on("requestfailed", lambda asked: log.append(f"failed: {asked.url} {asked.failure}"))
    yield page
    if failed(request):
        folder = results_of(request)
        (folder / "console.log").write_text("\n".join(log) + "\n")
        page.screenshot(path=folder / "page.png", full_page=True)


# ---- the worker, driven from here ----


class SyncBrowserLm:
    """A BrowserLm for tests that are not async: it lives in a thread with a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser-lm", daemon=True)
        self._thread.start()
        self.lm: Any = None
        self.loaded: Any = None  # what the last `load` was given

    def start(self, serve: Path | None, **options: Any) -> None:
        from pagelm.host.browser_lm import BrowserLm

        self.lm = self.run(BrowserLm.start(serve, **options))

    def run(self, work: Coroutine[Any, Any, Any], timeout_s: float = 900) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    def call(
        self,
        method: str,
        args: Mapping[str, Any] | None = None,
        on_event: Callable[[dict[str, Any]], object] | None = None,
    ) -> Any:
        """One call of page/service.py; see BrowserLm.call."""
        return self.run(self.lm.call(method, args, on_event))

    def load(self, model: bytes | None = None, n_ctx: int | None = None) -> dict[str, Any]:
        """Load a small model given as bytes, or the default model; nothing is done if it is loaded."""
        if self.loaded != (model, n_ctx):
            self.loaded = None
            given = {"url": self.lm.model_url} if model is None else {"file": model}
            self.lm.info = self.call("load", {**given, "n_ctx": n_ctx})
            self.loaded = (model, n_ctx)
        info: dict[str, Any] = self.lm.info
        return info

    def trace(self, ids: list[int], n: int, forced: list[int] | None = None) -> list[tuple[int, Any]]:
        """All steps of BrowserLm.trace."""

        async def collect() -> list[tuple[int, Any]]:
            return [step async for step in self.lm.trace(ids, n, forced)]

        steps: list[tuple[int, Any]] = self.run(collect())
        return steps

    def close(self) -> None:
        if self.lm is not None:
            self.run(self.lm.close(), 60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


@pytest.fixture(scope="session")
def _browser_lm(wheel: Path, _software_adapter: None) -> Iterator[SyncBrowserLm]:
    lm = SyncBrowserLm()
    try:
        lm.start(None if missing_model() else default_model(), wheel=wheel)
        yield lm
    finally:
        lm.close()


@pytest.fixture
def browser_lm(_browser_lm: SyncBrowserLm, request: pytest.FixtureRequest) -> Iterator[SyncBrowserLm]:
    """The worker with the built wheel, for `call`, `load`, `trace`. One for the whole run."""
    yield _browser_lm
    if failed(request):
        (results_of(request) / "console.log").write_text("\n".join(_browser_lm.lm.log) + "\n")


@pytest.fixture
def loaded_lm(browser_lm: SyncBrowserLm) -> SyncBrowserLm:
    """`browser_lm` with the default model loaded; mark the test `model`."""
    browser_lm.load()
    return browser_lm
