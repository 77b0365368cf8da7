"""What the README says is there, and what is there the README says."""

import os
import re
from pathlib import Path

import pytest

from pagelm import arch
from pagelm.host.cli import cli
from pagelm.quants import SUPPORTED
from pagelm.tokenizer import MODELS
from pagelm.tokenizer.pres import PRES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(name: str) -> str:
    found = re.search(rf"^\| {name} \| (.*) \|$", README, re.M)
    assert found, f"no row {name!r} in the README"
    return found.group(1)


def test_supported_table_is_what_the_registries_hold():
    assert re.findall(r"`([\w-]+)`", row("architectures")) == list(arch.supported())
    assert tuple(row("tensor types").split(";")[0].split(", ")) == SUPPORTED
    assert sorted(re.findall(r"`(\w+)`", row("tokenizers"))) == sorted(MODELS)
    assert re.findall(r"all (\d+) of llama.cpp's pre-tokenizers", row("tokenizers")) == [str(len(PRES))]


def test_every_command_is_in_the_table_with_real_options():
    rows = re.findall(r"^\| `pagelm ([\w-]+)([^|]*)\|", README, re.M)
    assert {name for name, _ in rows} == set(cli.commands)
    for name, rest in rows:
        known = {opt for p in cli.commands[name].params for opt in (*p.opts, *p.secondary_opts)}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, name


def test_every_environment_variable_is_in_the_table():
    used = set()
    for folder in ("guest", "host", "tests", "e2e"):
        for parent, folders, names in os.walk(ROOT / folder):
            folders[:] = [f for f in folders if f not in ("node_modules", "__pycache__", "host")]
            for name in names:
                if name.endswith(".py"):
                    text = (Path(parent) / name).read_text(encoding="utf-8")
                    used |= set(re.findall(r"PAGELM_[A-Z_]+", text))
    assert used == set(re.findall(r"^\| `(PAGELM_[A-Z_]+)` \|", README, re.M))


@pytest.mark.parametrize("path", re.findall(r"\]\(([\w./-]+)\)", README))
def test_links_lead_somewhere(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", re.findall(r"`((?:guest|host|shaders|tests|e2e)/[\w./]*)`", README))
def test_paths_exist(path):
    if "NAME" not in path:
        assert (ROOT / path).exists()


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    assert set(re.findall(r"make ([a-z]+)", README)) <= targets


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.S), ids=["page", "native"])
def test_examples_are_python(code):
    flags = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, as in a page or notebook
    compile(code, "README.md", "exec", flags=flags)
