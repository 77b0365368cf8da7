"""What guessing tokens is worth: plain against guessed decode on prompts that ask for text to be rewritten.

Both kinds take turns, so that whatever else the machine does hits both. The ids must be the same.
"""

import json
import statistics
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pagelm.errors import PagelmError
from pagelm.host.bench import BUSY_CORES, busy_cores, versions
from pagelm.host.lm import Lm, needing


def prompts_of(path: Path | None = None) -> dict[str, str]:
    """Prompts by name: those of rewriting.json beside this file, or of a file as `pagelm check` takes it.

    Raises: PagelmError for a file without prompts.
    """
    if path is not None:
        with needing("numpy", "oracle", "--prompts"):
            from pagelm.host.check import read_prompts

        return {f"{i}": prompt for i, prompt in enumerate(read_prompts(path), 1)}
    cases = json.loads(files(__package__).joinpath("rewriting.json").read_text(encoding="utf-8"))
    return {case["name"]: case["prompt"] for case in cases}


async def bench(
    lm: Lm,
    prompts: Mapping[str, str],
    *,
    gen: int = 128,
    rounds: int = 5,
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, Any]:
    """Time `rounds` of both kinds for each prompt, up to `gen` tokens or the end token.

    Per prompt: tokens, plain_tok_s, guess_tok_s (p50, min, max), ratio of the medians, guessed and accepted
    tokens of a round and their quotient. A first generation of each kind, which compiles, is not counted.

    Raises: PagelmError when the ids of both kinds differ, or a prompt is answered with fewer than 2 tokens.
    """
    busy = busy_cores()
    if busy is not None and busy > BUSY_CORES:
        say(f"warning: {busy} cores are busy with other work; the figures will be too low")
    report = {}
    for name, prompt in prompts.items():
        speeds: dict[bool, list[float]] = {False: [], True: []}
        ids, counts = None, (0, 0)
        for i in range(-1, rounds):  # round -1 warms up
            for guess in (False, True):
                result = await lm.generate(prompt, gen, False, guess=guess)
                ids = ids or result["ids"]
                if result["ids"] != ids:
                    raise PagelmError(f"prompt {name}: guessing changed the ids; please report this adapter")
                if len(ids) < 2:
                    raise PagelmError(f"prompt {name} is answered with {len(ids)} tokens; 2 can be timed")
                if i >= 0:
                    speeds[guess].append(result["timing"]["decode_tok_s"])
                before, counts = counts, (result["stats"]["guessed"], result["stats"]["accepted"])
        guessed, accepted = (b - a for a, b in zip(before, counts, strict=True))
        plain, fast = (statistics.median(speeds[guess]) for guess in (False, True))
        report[name] = {
            "tokens": len(ids or ()),
            "plain_tok_s": _spread(speeds[False]),
            "guess_tok_s": _spread(speeds[True]),
            "ratio": fast / plain,
            "guessed": guessed,
            "accepted": accepted,
            "acceptance": accepted / guessed if guessed else None,
        }
        say(f"{name}: {len(ids or ())} tokens timed in {rounds} rounds of both kinds")
    return {
        "device": lm.device,
        "adapter": lm.adapter,
        "gen": gen,
        "rounds": rounds,
        "prompts": report,
        "median_ratio": statistics.median(r["ratio"] for r in report.values()),
        "min_ratio": min(r["ratio"] for r in report.values()),
        "busy_cores": busy,
        "versions": versions(),
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"p50": statistics.median(values), "min": min(values), "max": max(values)}


def _line(row: Mapping[str, Any]) -> str:
    rate = (
        "nothing guessed"
        if row["acceptance"] is None
        else f"{row['acceptance']:.0%} of {row['guessed']} right"
    )
    return (
        f"{row['plain_tok_s']['p50']:.2f} -> {row['guess_tok_s']['p50']:.2f} tok/s, "
        f"x {row['ratio']:.2f}; {row['tokens']} tokens, {rate}"
    )


def as_text(report: Mapping[str, Any]) -> str:
    """The figures for people."""
    busy = report["busy_cores"]
    adapter = ", ".join(filter(None, report["adapter"].values()))
    rows = {
        "device": f"{report['device']} ({adapter})",
        **{name: _line(row) for name, row in report["prompts"].items()},
        "ratio": f"x {report['median_ratio']:.2f} in the median, x {report['min_ratio']:.2f} at least",
        "other work": "unknown" if busy is None else f"{busy} cores busy before",
        "versions": ", ".join(f"{name} {v}" for name, v in report["versions"].items()),
    }
    return "".join(f"{name:<13} {value}\n" for name, value in rows.items())
