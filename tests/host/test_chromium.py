"""Finding the browser and choosing its flags; starting it is for the e2e tests."""

import stat
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import missing_browser

from pagelm.host.assets import SetupError
from pagelm.host.chromium import bundled_chromium, chromium_flags, find_chromium

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


@pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed")
def test_playwright_says_where_its_own_browser_would_be() -> None:
    assert Path(ASK() or "").is_absolute()


def test_adapter_is_chosen_by_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--use-webgpu-adapter=swiftshader" not in chromium_flags()
    monkeypatch.setenv("PAGELM_ADAPTER", "swiftshader")
    assert "--use-webgpu-adapter=swiftshader" in chromium_flags()


def test_unknown_adapter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGELM_ADAPTER", "gpu9")
    with pytest.raises(SetupError, match="allowed: default, swiftshader"):
        chromium_flags()
