"""How long loading takes in the browser: medians over rounds, from the local server and from stored files.

Two things make it up, which overlap: bringing the weights in and compiling the kernels. Each is reported,
and the weights once more with nothing to compile beside them.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pagelm.host.browser_lm import BrowserLm

PLACES = ("server", "opfs")  # the HTTP server of this program; the origin's private file system


async def time_loads(
    model: str, *, n_ctx: int | None, rounds: int, say: Callable[[str], object] = lambda line: None
) -> dict[str, Any]:
    """Load `model`, a path or a URL, `rounds` times from each place.

    MB/s are millions of bytes of weights per second. Raises: what the server, the browser and loading raise.
    """
    path = None if "://" in model else Path(model)
    report: dict[str, Any] = {"device": "browser", "rounds": rounds}
    with TemporaryDirectory(prefix="pagelm-", ignore_cleanup_errors=True) as profile:
        lm = await BrowserLm.start(path, profile=Path(profile))
        try:
            for place in PLACES:
                loads: list[dict[str, float]] = []

                def told(event: Mapping[str, Any], place: str = place, loads: Any = loads) -> None:
                    loads.append({k: v for k, v in event.items() if k != "kind"})
                    say(f"{place}, round {len(loads)}: {event['load_s']:.2f} s")

                args = {
                    "url": lm.model_url or model,
                    "stored": place == "opfs",
                    "rounds": rounds,
                    "n_ctx": n_ctx,
                }
                await lm.call("time_loads", args, told)
                report["weights_bytes"] = int(loads[0]["weights_bytes"])
                report[place] = summary(loads)
        finally:
            await lm.close()
    return report


def summary(loads: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Spreads of what loads.py measured, rates in MB/s."""

    def rates(seconds: str) -> list[float]:
        return [load["weights_bytes"] / 1e6 / load[seconds] for load in loads]

    return {
        "load_s": spread([load["load_s"] for load in loads]),
        "compile_s": spread([load["compile_s"] for load in loads]),
        "weights_s": spread([load["weights_s"] for load in loads]),
        "weights_mb_s": spread(rates("weights_s")),
        "weights_alone_mb_s": spread(rates("alone_s")),
        "compile_again_s": spread([load["alone_compile_s"] for load in loads]),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": statistics.median(values), "min": min(values), "max": max(values)}


def as_text(report: Mapping[str, Any]) -> str:
    """The figures for people."""
    lines = []
    for place in PLACES:
        found = report[place]
        rows = {
            "all of loading": "{p50:.2f} s (min {min:.2f}, max {max:.2f})".format_map(found["load_s"]),
            "  compiling": "{p50:.2f} s".format_map(found["compile_s"]),
            "  weights": "{p50:.0f} MB/s (min {min:.0f}, max {max:.0f})".format_map(found["weights_mb_s"]),
            "weights alone": "{p50:.0f} MB/s (min {min:.0f}, max {max:.0f})".format_map(
                found["weights_alone_mb_s"]
            ),
        }
        lines += [f"{place}: {report['weights_bytes'] / 1e6:.0f} MB of weights, {report['rounds']} rounds"]
        lines += [f"  {name:<16} {value}" for name, value in rows.items()]
    return "\n".join(lines) + "\n"
