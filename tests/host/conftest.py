"""What commands are run on: a tiny model's file, and a device that answers at once."""

import pytest
from fake_lm import FakeLm
from tiny_gguf import tiny_model

from pagelm.host.assets import PYODIDE_FILES


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "tiny.gguf"
    tiny_model(path, quant="F32", tied=False)
    return str(path)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A device that answers at once, in place of every device; `MODEL` is a file that exists."""
    lm = FakeLm(pieces=("one ", "two ", "drei"))
    lm.opened_with = []

    async def open_fake(device, model, **options):
        lm.opened_with.append((device, model, options))
        return lm

    monkeypatch.setattr("pagelm.host.options.open_lm", open_fake)
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    lm.model = str(model)
    return lm


@pytest.fixture
def with_pyodide(tmp_path, monkeypatch):
    """Stands in for Pyodide's files, in the environment of processes too."""
    for name in PYODIDE_FILES:
        (tmp_path / name).write_bytes(b"x")
    monkeypatch.setenv("PAGELM_PYODIDE", str(tmp_path))
