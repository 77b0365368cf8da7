"""Writes the figures of PERFORMANCE.md: python tests/make_performance.py ["TITLE=REPORT.json" …]

REPORT.json is what `pagelm bench --json` printed; it replaces the recorded one of that title. The records are
performance.json. What is recorded is compared with what is here now: figures of another browser, driver or
peer are marked stale, with what changed, until they are measured again.
"""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagelm.errors import PagelmError
from pagelm.host.bench import as_markdown
from pagelm.host.chromium import find_chromium

RECORDS = Path(__file__).with_name("performance.json")
PAGE = Path(__file__).parent.parent / "PERFORMANCE.md"
PINS = Path(__file__).parent.parent / "host" / "bench" / "npm"
UNUSED = ("stats", "timing", "os")  # of a report, here
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"


def peers_pinned() -> dict[str, str]:
    """Name of a peer -> the version of its package that `bench` installs."""
    llama, wllama = (
        next(iter(json.loads((PINS / name / "package.json").read_text())["dependencies"].values()))
        for name in ("llama.cpp", "wllama")
    )
    return {"llama.cpp": llama, "llama.cpp-vulkan": llama, "wllama": wllama, "wllama-webgpu": wllama}


def found_here() -> dict[str, str]:
    """Versions that figures depend on, as far as they can be told on this machine."""
    here = dict(peers_pinned())
    try:
        said = subprocess.run([find_chromium(), "--version"], capture_output=True, text=True, timeout=60)
        here["chromium"] = next(word for word in said.stdout.split() if word[0].isdigit())
    except (PagelmError, StopIteration):
        pass
    if importlib.util.find_spec("wgpu") is not None:
        code = "import wgpu; i = wgpu.gpu.request_adapter_sync().info; print(i['device'], i['description'])"
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        here["native driver"] = said.stdout.strip() if said.returncode == 0 else ""
    return {name: version for name, version in here.items() if version}


def recorded_in(report: Mapping[str, Any]) -> dict[str, str]:
    """The same of a report."""
    found = {name.partition(":")[0]: peer["version"] for name, peer in report.get("peers", {}).items()}
    if report["device"] == "browser" and "chromium" in report["versions"]:
        found["chromium"] = report["versions"]["chromium"]
    if report["device"] == "native":
        found["native driver"] = "{device} {description}".format_map(report["adapter"])
    return found


def changes(report: Mapping[str, Any], here: Mapping[str, str]) -> list[str]:
    """What is another version here than in the report; empty where the figures still hold."""
    return [
        f"{name} was {version}, is {here[name]}"
        for name, version in recorded_in(report).items()
        if here.get(name, version) != version
    ]


def figures(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The part of PERFORMANCE.md that is generated."""
    parts = []
    for title, record in records.items():
        stale = record["stale"]
        mark = f"**Stale**, measure again: {'; '.join(stale)}.\n\n" if stale else ""
        parts.append(f"### {title}{' (stale)' if stale else ''}\n\n{mark}{as_markdown(record['report'])}")
    return "\n" + "\n".join(parts) + "\n"


def with_figures(page: str, text: str) -> str:
    """The page with the generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + text + END + rest.partition(END)[2]


def main(arguments: list[str]) -> None:
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    for argument in arguments:
        title, _, path = argument.rpartition("=")
        report = json.loads(Path(path).read_text())
        kept = {name: value for name, value in report.items() if name not in UNUSED}
        kept["versions"] = {name: v for name, v in report["versions"].items() if name not in UNUSED}
        records[title] = {"stale": [], "report": kept}
    here = found_here()
    for record in records.values():
        record["stale"] = changes(record["report"], here)
    RECORDS.write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(with_figures(PAGE.read_text("utf-8"), figures(records)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
