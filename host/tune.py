"""What `pagelm tune` prints: which kernels an adapter was given, and why."""

from typing import Any

from pagelm.errors import PagelmError
from pagelm.host.lm import Lm


def tuning_of(lm: Lm) -> dict[str, Any]:
    """Device, adapter and all of the tuning. Raises: PagelmError for a device that has nothing to choose."""
    if lm.tuning is None:
        raise PagelmError(f"the device {lm.device} has one way to compute; allowed: browser, native")
    return {"device": lm.device, "adapter": lm.adapter, **lm.tuning}


def as_text(report: dict[str, Any]) -> str:
    """A line for each candidate, in the order in which they were listed, and why the chosen one was."""
    adapter = ", ".join(filter(None, report["adapter"].values()))
    lines = [f"{report['device']} ({adapter})"]
    chosen_ms = next((row["ms"] for row in report["rows"] if row["verdict"] == "chosen"), None)
    if report["rows"]:
        lines.append(f"{'kernels':26} {'ms':>9} {'ratio':>6}  verdict")
    for row in report["rows"]:
        ms = ratio = "-"
        if row["ms"] is not None and chosen_ms:
            ms, ratio = f"{row['ms']:.4f}", f"{row['ms'] / chosen_ms:.2f}"
        lines.append(f"{row['name']:26} {ms:>9} {ratio:>6}  {row['verdict']}")
    lines.append(f"{report['name']} chosen because: {report['because']}")
    lines.append(f"source: {report['source']}, in {report['seconds']:.2f} s")
    return "\n".join(lines) + "\n"
