"""A pytest plugin (`-p needs`) for all tests: fixed random numbers, loud numpy errors, what markers need.

A test whose marker stands in MISSING is skipped with the reason where the thing is missing, and fails there
when CI is set: a pipeline that tests less than it says is worse than one that is red.
"""

import functools
import importlib.util
import os
import platform
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from pagelm.errors import PagelmError
from pagelm.host import models
from pagelm.host.assets import pyodide_dir
from pagelm.host.chromium import find_chromium

MODEL_VARIABLE = "PAGELM_TEST_MODEL"
GEMMA_VARIABLE = "PAGELM_TEST_GEMMA"


@functools.cache
def missing_gpu() -> str:
    """Why there is no WebGPU adapter natively, or an empty string."""
    if importlib.util.find_spec("wgpu") is None:
        return "wgpu is not installed"
    import wgpu

    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    except Exception as e:  # the message is what the test run shows; nothing is hidden by it
        return f"wgpu finds no adapter: {e}"
    return "" if adapter else "wgpu finds no adapter"


@functools.cache
def missing_browser() -> str:
    """Why there is no Chromium to drive, or no Pyodide to run in it, or an empty string."""
    if reason := missing_playwright():
        return reason
    try:
        find_chromium()
        pyodide_dir()
    except PagelmError as e:
        return str(e)
    return ""


def default_model() -> Path:
    """The default model's file: what MODEL_VARIABLE names, else where the set-up keeps it."""
    return _file_of(models.DEFAULT_MODEL, MODEL_VARIABLE)


def gemma3_model() -> Path:
    """The file of Gemma 3 270M: what GEMMA_VARIABLE names, else where `make test` keeps it."""
    return _file_of("gemma3", GEMMA_VARIABLE)


def _file_of(name: str, variable: str) -> Path:
    if own := os.environ.get(variable):
        return Path(own)
    return models.cache_dir() / models.MODELS[name].filename


def missing_model() -> str:
    """Why the default model is not there, or an empty string."""
    path = default_model()
    if not path.is_file():
        return f"the default model is not here ({path}); run `make setup` or set {MODEL_VARIABLE}"
    return ""


def missing_gemma3() -> str:
    """Why Gemma 3 270M is not there, or an empty string."""
    path = gemma3_model()
    if not path.is_file():
        return f"Gemma 3 270M is not here ({path}); run `make gemma3` or set {GEMMA_VARIABLE}"
    return ""


def missing_playwright() -> str:
    return "" if importlib.util.find_spec("playwright") else "playwright is not installed"


def missing_linux() -> str:
    """What of Linux is not here, or an empty string."""
    files = ("/proc/self/stat", "/proc/self/environ", "/dev/full")
    return ", ".join(f"no {path}" for path in files if not os.path.exists(path))


def missing_npm() -> str:
    """Which of node and npm is not on the PATH, or an empty string."""
    return ", ".join(f"{name} is not installed" for name in ("node", "npm") if shutil.which(name) is None)


def missing_glibc() -> str:
    here = platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
    return "" if here else "the functions are those of glibc on x86-64"


MISSING = {
    "gpu": missing_gpu,
    "browser": missing_browser,
    "playwright": missing_playwright,
    "model": missing_model,
    "gemma3": missing_gemma3,
    "linux": missing_linux,
    "npm": missing_npm,
    "glibc": missing_glibc,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, missing in MISSING.items():
        if item.get_closest_marker(name) is None:
            continue
        if reason := missing():
            if os.environ.get("CI", "").lower() in ("1", "true"):
                pytest.fail(f"CI is set and {reason}", pytrace=False)
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def _deterministic_and_loud():
    random.seed(1)
    np.random.seed(1)
    before = np.seterr(all="raise")
    yield
    np.seterr(**before)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(1)


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The default model's file; mark the test `model`."""
    return default_model()


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """The file of Gemma 3 270M; mark the test `gemma3`."""
    return gemma3_model()
