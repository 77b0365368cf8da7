"""Finding the browser and choosing its flags; starting it is for the e2e tests."""

import contextlib
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from needs import missing_browser

from pagelm.host.assets import SetupError
from pagelm.host.chromium import bundled_chromium, chromium_flags, find_chromium, guarded

ASK = bundled_chromium  # as it is before a fixture replaces it


def program(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(autouse=True)
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PAGELM_CHROMIUM", raising=False)
    monkeypatch.delenv("PAGELM_ADAPTER", raising=False)
    monkeypatch.setattr("pagelm.host.chromium.APPLICATIONS", ())
    monkeypatch.setattr("pagelm.host.chromium.bundled_chromium", lambda: None)
    return tmp_path


def test_named_browser_wins_over_the_path(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = program(empty_path / "chromium")
    assert find_chromium() == str(on_path)
    named = program(empty_path / "mine")
    monkeypatch.setenv("PAGELM_CHROMIUM", str(named))
    assert find_chromium() == str(named)


def test_named_browser_that_is_none_is_refused(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(empty_path / "chromium")
    monkeypatch.setenv("PAGELM_CHROMIUM", str(empty_path / "nothing"))
    with pytest.raises(SetupError, match="PAGELM_CHROMIUM"):
        find_chromium()


def test_bundled_browser_is_the_last_resort(empty_path: Path) -> None:
    bundled = program(empty_path / "playwrights-own")
    assert find_chromium(lambda: str(bundled)) == str(bundled)
    on_path = program(empty_path / "google-chrome")
    assert find_chromium(lambda: str(bundled)) == str(on_path)


def test_missing_browser_says_what_to_do(empty_path: Path) -> None:
    with pytest.raises(SetupError, match=r"apt-get install chromium.*PAGELM_CHROMIUM"):
        find_chromium(lambda: str(empty_path / "nothing"))


def test_everybody_finds_the_browser_that_playwright_brought(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = program(empty_path / "playwrights-own")
    monkeypatch.setattr("pagelm.host.chromium.bundled_chromium", lambda: str(bundled))
    assert find_chromium() == str(bundled)
    monkeypatch.setattr("needs.pyodide_dir", lambda: empty_path)
    assert missing_browser.__wrapped__() == ""


@pytest.mark.playwright
def test_playwright_says_where_its_own_browser_would_be() -> None:
    assert Path(ASK() or "").is_absolute()


BROWSER = """#!/bin/sh
/bin/sleep 600 &
echo $$ $! "$@"
wait
"""
OWNER = """
import subprocess, sys
from pagelm.host.chromium import guarded
with guarded(sys.argv[1]) as path:
    subprocess.run([path, "--flag", "two words"], start_new_session=True)
"""


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked after counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until(what: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not what():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture
def browser(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Something that runs on, with a child, as a browser does."""
    path = program(empty_path / "a browser")
    path.write_text(BROWSER)
    monkeypatch.setenv("TMPDIR", str(empty_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return path


@pytest.mark.linux
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL, None], ids=["TERM", "KILL", "end of block"])
def test_browser_ends_with_whoever_started_it(browser: Path, sig: signal.Signals | None) -> None:
    with contextlib.ExitStack() as stack:
        if sig is None:
            command = [stack.enter_context(guarded(str(browser))), "--flag", "two words"]
        else:
            command = [sys.executable, "-c", OWNER, str(browser)]
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=sig is None)
        assert started.stdout is not None
        parent, child, *words = started.stdout.readline().split(maxsplit=2)
        assert words == ["--flag two words\n"]
        assert not gone(int(parent)) and not gone(int(child))
        if sig is not None:
            started.send_signal(sig)
    wait_until(lambda: gone(int(parent)) and gone(int(child)))
    started.wait(30)
    started.stdout.close()
    wait_until(lambda: list(browser.parent.glob("pagelm-*")) == [])


def test_browser_that_exits_is_not_kept_by_its_guard(browser: Path) -> None:
    browser.write_text("#!/bin/sh\necho done\nexit 3\n")
    with guarded(str(browser)) as path:
        done = subprocess.run([path], capture_output=True, text=True, timeout=30, start_new_session=True)
    assert (done.returncode, done.stdout) == (3, "done\n")


def test_folder_where_nothing_may_be_run_costs_the_guard_only(
    browser: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with guarded(str(browser)) as path:
        assert path == str(browser)


def test_adapter_is_chosen_by_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--use-webgpu-adapter=swiftshader" not in chromium_flags()
    monkeypatch.setenv("PAGELM_ADAPTER", "swiftshader")
    assert "--use-webgpu-adapter=swiftshader" in chromium_flags()


def test_unknown_adapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGELM_ADAPTER", "gpu9")
    with pytest.raises(SetupError, match="allowed: default, swiftshader"):
        chromium_flags()
