"""How fast is a device: medians over rounds, with the spread, the work per token and the machine's state.

Every round is a generation of the same length from the same ids, no token being guessed (see
bench_guess.py). The first one, which warms caches up, is not counted. A machine that is busy with something
else is reported with the figures, not hidden.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pagelm
from pagelm.errors import PagelmError
from pagelm.host.lm import Lm

BUSY_CORES = 0.3  # more of other people's work than this makes figures doubtful
TEXT = (
    "The lighthouse stood at the end of a long spit of sand, and for most of the year nobody came there but "
    "the keeper, the supply boat and the birds. In the mornings he wrote down the weather: the wind, the "
    "height of the waves, what the clouds were doing over the bay. In the evenings he lit the lamp, wound "
    "the clockwork that turned it, and sat down with a book beside the stove. Once a month the boat brought "
    "oil, flour, coffee and a bundle of newspapers, which he read in order, one each day, so that he was "
    "never more than thirty days behind the rest of the world. When people asked whether he was lonely he "
    "would think about it for a while, and then say that he had never had the time. "
)


async def prompt_of(lm: Lm, n_tokens: int) -> list[int]:
    """Exactly `n_tokens` ids of English text, the same ones every time."""
    once = await lm.encode(TEXT)
    ids = once if len(once) >= n_tokens else await lm.encode(TEXT * (n_tokens // len(once) + 2))
    return ids[:n_tokens]


async def bench(
    lm: Lm,
    *,
    prompt_tokens: int = 128,
    gen: int = 128,
    rounds: int = 5,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, Any]:
    """Time `rounds` generations of `gen` tokens after a prompt, past end tokens. Rates in tokens per second.

    Raises: PagelmError for fewer than 2 generated tokens, or when the context ends before the generation.
    """
    if gen < 2:
        raise PagelmError(f"--gen is {gen}; it must be at least 2: the first token counts as prefill")
    busy = busy_cores()
    if busy is not None and busy > BUSY_CORES:
        say(f"warning: {busy} cores are busy with other work; the figures will be too low")
    ids = await prompt_of(lm, prompt_tokens)
    prefill, decode, ttft = [], [], []
    for i in range(-1, rounds):  # round -1 warms up
        result, first_s = await _round(lm, ids, gen)
        if i >= 0:
            prefill.append(result["timing"]["prefill_tok_s"])
            decode.append(result["timing"]["decode_tok_s"])
            ttft.append(first_s)
        name = f"round {i + 1}" if i >= 0 else "warm-up"
        speeds = result["timing"]["prefill_tok_s"], result["timing"]["decode_tok_s"]
        say(f"{name}: prefill {speeds[0]:.2f} tok/s, decode {speeds[1]:.2f} tok/s")
    dispatches, submits = await _work_per_token(lm, ids[:1])
    return {
        "device": lm.device,
        "adapter": lm.adapter,
        "prompt_tokens": len(ids),
        "gen": gen,
        "rounds": rounds,
        "prefill_tok_s": _spread(prefill),
        "decode_tok_s": _spread(decode),
        "dispatches_per_token": dispatches,
        "submits_per_token": submits,
        "ttft_s": statistics.median(ttft),
        "guest_peak_heap_bytes": await lm.heap_bytes(),
        "timing": result["timing"],
        "stats": result["stats"],
        "busy_cores": busy,
        "versions": versions(),
    }


async def _round(lm: Lm, ids: Sequence[int], gen: int) -> tuple[dict[str, Any], float]:
    """One generation, and the seconds until its first piece of text was here."""
    start = time.perf_counter()
    seen: list[float] = []
    result = await lm.generate(
        ids, gen, True, lambda piece: seen.append(time.perf_counter() - start), guess=False
    )
    if len(result["ids"]) != gen:
        raise PagelmError(
            f"{len(result['ids'])} of {gen} tokens were generated ({result['stop_reason']}); "
            f"{len(ids)} + {gen} tokens need a larger --ctx"
        )
    return result, seen[0] if seen else time.perf_counter() - start


async def _work_per_token(lm: Lm, ids: Sequence[int], more: int = 4) -> tuple[float, float]:
    """Dispatches and submits of a decoded token: what `more` further tokens add to the counts."""
    counts = []
    for n in (1, 1, 1 + more):  # counts run on since loading: take them after a run, and after the next
        stats = (await lm.generate(ids, n, True, guess=False))["stats"]
        counts.append((stats["dispatches"], stats["submits"]))
    short = [b - a for a, b in zip(counts[0], counts[1], strict=True)]
    long = [b - a for a, b in zip(counts[1], counts[2], strict=True)]
    dispatches, submits = ((b - a) / more for a, b in zip(short, long, strict=True))
    return dispatches, submits


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": statistics.median(values), "min": min(values), "max": max(values)}


def busy_cores(seconds: float = 0.5) -> float | None:
    """How many cores other work keeps busy just now; None where /proc/stat does not exist."""

    def ticks() -> int:
        fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4]  # all but idle and waiting for the disk

    try:
        before = ticks()
        time.sleep(seconds)
        return round((ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds, 2)
    except (OSError, ValueError, AttributeError):
        return None


def versions() -> dict[str, str]:
    """pagelm, Python and the packages that reach the GPU, as far as installed."""
    found = {"pagelm": pagelm.__version__, "python": platform.python_version(), "os": platform.platform()}
    for package in ("wgpu", "playwright", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def as_text(report: Mapping[str, Any]) -> str:
    """The figures for people."""

    def spread(key: str) -> str:
        return "{p50:.2f} tok/s (min {min:.2f}, max {max:.2f})".format_map(report[key])

    heap, busy = report["guest_peak_heap_bytes"], report["busy_cores"]
    work = report["dispatches_per_token"], report["submits_per_token"]
    adapter = ", ".join(filter(None, report["adapter"].values()))
    rows = {
        "device": f"{report['device']} ({adapter})",
        "prefill": f"{spread('prefill_tok_s')}, {report['prompt_tokens']} tokens",
        "decode": f"{spread('decode_tok_s')}, {report['gen']} tokens",
        "first token": f"{report['ttft_s']:.3f} s",
        "per token": "{:g} dispatches, {:g} submits".format(*work),
        "guest memory": "shared with the host" if heap is None else f"{heap:,} bytes at most",
        "other work": "unknown" if busy is None else f"{busy} cores busy before",
        "versions": ", ".join(f"{name} {v}" for name, v in report["versions"].items()),
    }
    return "".join(f"{name:<13} {value}\n" for name, value in rows.items())
