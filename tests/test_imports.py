"""Who may import whom. Walks the syntax tree of every module, so that imports inside functions count.

Arrows point down only: an edge that is not in EDGES fails, and so does a module that EDGES does not
know. Add a line here when you add a module, and think about the direction.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUEST = ROOT / "guest"
HOST = ROOT / "host"

# guest module or package -> the guest modules it may import; `errors` and its own package are free for all.
EDGES: dict[str, set[str]] = {
    "": {"cancel", "device", "device.default", "engine", "generation", "kernels", "loading", "metrics"}
    | {"kv_cache", "prompt", "split", "tune"},
    "loading": {
        "activations",
        "adapt",
        "cancel",
        "device",
        "engine",
        "forward",
        "gguf",
        "hparams",
        "kv_cache",
        "metrics",
        "program",
    }
    | {"repack", "rope", "split", "tokenizer", "tune", "verify", "weights"},
    "engine": {
        "activations",
        "cancel",
        "device",
        "forward",
        "generation",
        "gguf",
        "guess",
        "hparams",
        "metrics",
        "program",
        "prompt",
        "tokenizer",
        "tune",
        "verify",
        "weights",
    },
    "profile": {
        "cancel",
        "device",
        "forward",
        "generation",
        "metrics",
        "probe",
        "program",
        "prompt",
        "work",
    },
    "work": {"hparams", "program", "weights"},
    "probe": {"device", "kernels"},
    "generation": {"cancel", "prompt", "verify"},
    "verify": {"device", "forward", "program"},
    "prompt": {"tokenizer"},
    "program": {"device", "kernels"},
    "forward": {"adapt", "hparams", "kernels", "kv_cache", "program", "weights"},
    "activations": {"device", "forward", "hparams", "program", "weights"},
    "tune": {"adapt", "cancel", "device", "forward", "kernels", "metrics", "weights"},
    "adapt": {"device", "kernels"},
    "repack": {"device", "kernels", "weights"},
    "weights": {"device", "gguf", "hparams", "quants", "tensors"},
    "tensors": {"gguf", "hparams", "quants"},
    "rope": {"hparams"},
    "kv_cache": {"device", "hparams"},
    "kernels": {"device", "quants"},
    "hparams": {"arch", "gguf", "keys"},
    "keys": {"gguf", "string_array"},
    "split": {"cancel", "device", "gguf", "sources"},
    "gguf": {"cursor", "device", "quants", "string_array"},
    "cursor": {"device", "string_array"},
    "device.default": {"device", "device.browser", "device.browser_sources", "device.native", "sources"}
    | {"device.browser_store", "device.file_store"},
    "device.browser": {"device"},
    "device.browser_sources": {"device.browser"},
    "device.browser_store": {"device.browser"},
    "device.native": {"device"},
    # The leaves.
    "arch": set(),
    "cancel": set(),
    "device": set(),
    "device.file_store": set(),
    "errors": set(),
    "guess": set(),
    "metrics": set(),
    "quants": set(),
    "sources": set(),
    "string_array": set(),
    "tokenizer": set(),
}
# Edges for types alone (`if TYPE_CHECKING:`), which do not exist when the program runs.
TYPE_EDGES = {("generation", "engine"), ("profile", "engine")}
PACKAGES = ("arch", "forward", "tokenizer")  # one line in EDGES stands for all of their modules
THIRD_PARTY = {"device.browser": {"js", "pyodide"}, "device.browser_sources": {"js", "pyodide"}} | {
    "device.browser_store": {"pyodide"},
    "device.native": {"wgpu"},
}
ORACLE_MAY = {"arch", "device", "errors", "gguf", "hparams", "quants", "sources", "split", "tensors"}


def modules(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if "node_modules" not in p.parts)


def dotted(path: Path, folder: Path) -> str:
    """`device.native` for guest/device/native.py, "" for guest/__init__.py."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, package: str) -> Iterator[tuple[str, int, bool]]:
    """Absolute names imported by a file of `package` with their line, and whether only for types.

    `from a.b import c` gives "a.b.c" where that is a module, else "a.b".
    """
    tree = ast.parse(path.read_text("utf-8"))
    typed = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test).endswith("TYPE_CHECKING")
        for statement in guard.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in typed
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")
                up = up[: len(up) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if is_module(full) else base, node.lineno, id(node) in typed


def is_module(name: str) -> bool:
    top, *rest = name.split(".")
    if top != "pagelm":
        return False
    for prefix, folder in (("host", HOST), ("", GUEST)):
        if not prefix or rest[:1] == [prefix]:
            tail = rest[1:] if prefix else rest
            path = folder.joinpath(*tail)
            return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
    return False


def guest_edges(path: Path) -> Iterator[tuple[str, str, int, bool]]:
    me = dotted(path, GUEST)
    package = ".".join(["pagelm", *path.relative_to(GUEST).parent.parts])
    for name, line, typed in imports(path, package):
        if name == "pagelm" or name.startswith("pagelm."):
            yield me, name.removeprefix("pagelm").removeprefix("."), line, typed


def row(module: str) -> str:
    top = module.partition(".")[0]
    return top if top in PACKAGES else module


@pytest.mark.parametrize("path", modules(GUEST), ids=lambda p: str(p.relative_to(ROOT)))
def test_guest_module_imports_only_downwards(path):
    me = row(dotted(path, GUEST))
    assert me in EDGES, f"{path.relative_to(ROOT)} is new: add its line to EDGES"
    for _, target, line, typed in guest_edges(path):
        to = row(target)
        if typed and (me, to) in TYPE_EDGES:
            continue
        allowed = to in ("errors", me) or to in EDGES[me]
        assert allowed, f"{path.relative_to(ROOT)}:{line} imports {to or 'the package'}; see EDGES"


@pytest.mark.parametrize("path", modules(GUEST), ids=lambda p: str(p.relative_to(ROOT)))
def test_guest_uses_the_standard_library_and_relative_imports(path):
    me = dotted(path, GUEST)
    package = ".".join(["pagelm", *path.relative_to(GUEST).parent.parts])
    for name, line, _ in imports(path, package):
        top = name.partition(".")[0]
        allowed = top == "pagelm" or top in sys.stdlib_module_names or top in THIRD_PARTY.get(me, ())
        assert allowed, f"{path.relative_to(ROOT)}:{line} imports {name}"
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").partition(".")[0] != "pagelm", (
                f"{path.relative_to(ROOT)}:{node.lineno}: inside guest/ imports are relative"
            )


@pytest.mark.parametrize("path", modules(GUEST), ids=lambda p: str(p.relative_to(ROOT)))
def test_guest_does_not_ask_where_it_runs_nor_which_architecture(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.platform":
            assert path.parent.name == "device", f"{path.relative_to(ROOT)}:{node.lineno} tests sys.platform"
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(n) for n in (node.left, *node.comparators)]
            literal = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node))
            named = any(s.endswith(("arch", "arch.name", "spec.name", "architecture")) for s in sides)
            where = f"{path.relative_to(ROOT)}:{node.lineno}"
            assert not (literal and named), f"{where}: {ast.unparse(node)}; make it a field of ArchSpec"


@pytest.mark.parametrize("path", modules(HOST / "oracle"), ids=lambda p: str(p.relative_to(ROOT)))
def test_oracle_shares_no_arithmetic_with_the_guest(path):
    for name, line, _ in imports(path, "pagelm.host.oracle"):
        if name.startswith("pagelm."):
            module = name.removeprefix("pagelm.")
            allowed = module.startswith("host.oracle") or row(module) in ORACLE_MAY
            assert allowed, f"{path.relative_to(ROOT)}:{line} imports {module}"


def test_edges_have_no_cycle_and_no_dead_lines():
    present = {row(dotted(p, GUEST)) for p in modules(GUEST)}
    assert set(EDGES) == present
    done: set[str] = set()

    def visit(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, f"cycle: {' -> '.join([*above, module])}"
        if module not in done:
            for to in EDGES[module]:
                visit(to, (*above, module))
            done.add(module)

    for module in EDGES:
        visit(module, ())
    used = {(row(me), row(to)) for p in modules(GUEST) for me, to, _, _ in guest_edges(p)}
    for module, targets in EDGES.items():
        for to in targets:
            assert (module, to) in used, f"EDGES allows {module or 'the package'} -> {to}, which nobody uses"


def test_the_walker_sees_every_form_of_import(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "import os.path\nfrom . import device\nfrom .gguf import Gguf\nfrom ..errors import X\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .engine import Model\n"
        "def f():\n    import numpy\n"
    )
    got = {(name, typed) for name, _, typed in imports(path, "pagelm.device")}
    assert got >= {("os.path", False), ("numpy", False), ("pagelm.errors", False)}
    got = {(name, typed) for name, _, typed in imports(path, "pagelm")}
    assert got >= {("pagelm.device", False), ("pagelm.gguf", False), ("pagelm.engine", True)}
