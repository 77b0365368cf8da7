"""What runs, and how that was proven: architectures by tensor types, from registries and host/proofs.json.

The proofs are written by tests/prove.py, which runs a tiny random model of every pair on every device.
"""

import json
from pathlib import Path
from typing import Any

from pagelm.arch import supported
from pagelm.quants import SUPPORTED

PROOFS = Path(__file__).with_name("proofs.json")
# Packaged models whose results are held to llama.cpp's: architecture, the types of their matrices.
REAL = {
    "smollm2": ("llama", ("Q4_1", "Q8_0")),
    "gemma3": ("gemma3", ("Q4_K", "Q5_0", "Q6_K", "Q8_0")),
}
MARKS = {"real": "R", "model": "m", "part": "1", "kernel": "k"}
LEGEND = {
    "real": "a real model with such tensors gives llama.cpp's tokens, natively and in Chromium",
    "model": "a tiny random model of the pair gives the numpy oracle's logits natively and in Chromium",
    "part": "the same on one of the two only",
    "kernel": "the type's kernels are proven, and the architecture in another type",
}


def capabilities() -> dict[str, Any]:
    """Everything as plain data.

    `architectures`: name -> type -> {"proof", "native", "browser"}: the latter two are the largest difference
    of logits from the oracle's, in units of the largest logit, None where the pair was not run. Every
    architecture was also held to llama.cpp's own logits in F32 (tests/archs).
    """
    proofs = json.loads(PROOFS.read_text(encoding="utf-8"))
    devices = {
        device: {"adapter": found["adapter"], "date": found["date"]} for device, found in proofs.items()
    }
    table = {arch: {kind: _proof(proofs, arch, kind) for kind in SUPPORTED} for arch in supported()}
    return {"types": list(SUPPORTED), "architectures": table, "devices": devices, "proofs": LEGEND}


def _proof(proofs: dict[str, Any], arch: str, kind: str) -> dict[str, Any]:
    found = {d: proofs.get(d, {}).get("pairs", {}).get(arch, {}).get(kind) for d in ("native", "browser")}
    runs = sum(value is not None for value in found.values())
    proof = ("kernel", "part", "model")[runs]
    if any(arch == of and kind in kinds for of, kinds in REAL.values()):
        proof = "real"
    return {"proof": proof, **found}


def table(found: dict[str, Any], markdown: bool = False) -> str:
    """The matrix as text, or as a Markdown table."""
    kinds = found["types"]
    rows = [
        [arch, *(MARKS[types[kind]["proof"]] for kind in kinds)]
        for arch, types in found["architectures"].items()
    ]
    if markdown:
        lines = [f"| | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
    widths = [max(len(row[0]) for row in rows), *map(len, kinds)]
    lines = (zip(row, widths, strict=True) for row in (["", *kinds], *rows))
    return "\n".join("  ".join(cell.ljust(width) for cell, width in line).rstrip() for line in lines)


def notes(found: dict[str, Any]) -> list[str]:
    """The legend, and where it was run."""
    lines = [f"{MARKS[name]}: {text}" for name, text in LEGEND.items()]
    return [*lines, *(f"{d}: {w['adapter']}, {w['date']}" for d, w in found["devices"].items())]


def markdown(found: dict[str, Any]) -> str:
    """The README's part: the matrix, the legend and the adapters."""
    return "\n".join([table(found, markdown=True), "", "; ".join(notes(found)) + "."])
