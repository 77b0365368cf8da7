"""Where the GPU's time goes, for people: tables of kernels, gaps between tokens, and a trace to look at.

The measuring is `pagelm.profile`'s, in the page or in this process. Dispatches of one kind (the same label in
every layer) make a row. The trace is in Chrome's format, for chrome://tracing or https://ui.perfetto.dev.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from pagelm.host.bench import BUSY_CORES, busy_cores, prompt_of, versions
from pagelm.host.lm import Lm

TOKENS = 16
ROUNDED_NS = 1000  # a clock with steps as long as this needs means where a finer one has medians

Numbers = Mapping[str, Any]


async def profile(lm: Lm, *, prompt_tokens: int = 128, tokens: int = TOKENS) -> dict[str, Any]:
    """Profile a prompt of so many tokens and `tokens` more. The report is plain data.

    device, adapter, busy_cores, versions; copy_bytes_s and fma_flops_s of the adapter; resolution_ns;
    "prompt" and "decode", each with n_past, n_tokens, kernels (see `rows_of`), sum_ms and whole_ms of a pass;
    of decode also depth, wall_ms and plain_wall_ms a token, and gaps_ms between tokens; "raw", what was
    measured.

    Raises: what `Lm.profile` raises.
    """
    busy = busy_cores()
    raw = await lm.profile(await prompt_of(lm, prompt_tokens), tokens)
    peaks, decode = raw["peaks"], raw["decode"]
    middle = statistics.fmean if raw["resolution_ns"] >= ROUNDED_NS else statistics.median
    report: dict[str, Any] = {
        "device": lm.device,
        "adapter": lm.adapter,
        "busy_cores": busy,
        "versions": versions(),
        **peaks,
        "resolution_ns": raw["resolution_ns"],
    }
    for kind in ("prompt", "decode"):
        part = raw[kind]
        report[kind] = {
            "n_past": part["n_past"],
            "n_tokens": part["n_tokens"],
            "kernels": rows_of(part, peaks, middle),
            "sum_ms": middle([sum(durations(spans)) for spans in part["passes"]]) / 1e6,
            "whole_ms": middle([b - a for a, b in part["whole"]]) / 1e6,
        }
    report["decode"] |= {
        "depth": raw["depth"],
        "wall_ms": decode["wall_s"] * 1e3,
        "plain_wall_ms": decode["plain_wall_s"] * 1e3,
        "gaps_ms": [(end - start) / 1e6 for start, end in gaps_of(decode["whole"])],
    }
    report["raw"] = raw
    return report


def rows_of(part: Numbers, peaks: Numbers, middle: Any = statistics.median) -> list[dict[str, Any]]:
    """A row for every kind of dispatch of a pass, in order, and one named "all".

    kind, count, ns (of all of its dispatches in a pass: `middle` of the passes), share (of the sum), bytes,
    flops, bytes_s and flops_s, and what part of the adapter's best these are: of_copy, of_fma.
    """
    kinds: dict[str, list[int]] = {}
    for i, op in enumerate(part["ops"]):
        kinds.setdefault(op["label"].rpartition(".")[2], []).append(i)
    kinds["all"] = list(range(len(part["ops"])))
    took = [durations(spans) for spans in part["passes"]]
    rows = []
    for kind, places in kinds.items():
        ns = middle([sum(ns[i] for i in places) for ns in took])
        nbytes, flops = (sum(part["ops"][i][what] for i in places) for what in ("bytes", "flops"))
        bytes_s, flops_s = ((1e9 * n / ns if ns else 0.0) for n in (nbytes, flops))
        rows.append(
            {
                "kind": kind,
                "count": len(places),
                "ns": ns,
                "bytes": nbytes,
                "flops": flops,
                "bytes_s": bytes_s,
                "flops_s": flops_s,
                "of_copy": bytes_s / peaks["copy_bytes_s"],
                "of_fma": flops_s / peaks["fma_flops_s"],
            }
        )
    total = sum(row["ns"] for row in rows[:-1])
    for row in rows:
        row["share"] = (1.0 if row["kind"] == "all" else row["ns"] / total) if total else 0.0
    return rows


def durations(spans: Sequence[Sequence[int]]) -> list[int]:
    """How long each dispatch had the GPU to itself, one waiting for the other.

    An adapter may read its clock for the start of a pass while the one before is still at work.
    """
    ends = [0, *accumulate((end for _, end in spans), max)]
    return [max(0, end - max(start, before)) for (start, end), before in zip(spans, ends, strict=False)]


def gaps_of(whole: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """From the end of each token's pass to the start of the next; empty where they overlap."""
    return [(min(a[1], b[0]), b[0]) for a, b in pairwise(whole)]


HEAD = ("kernel", "count", "ms", "share", "MB", "GB/s", "of copy", "MFLOP", "GFLOP/s", "of FMA")


def as_text(report: Numbers) -> str:
    """The tables, and what they are to be held against."""
    adapter = ", ".join(filter(None, report["adapter"].values()))
    lines = [
        f"device        {report['device']} ({adapter})",
        f"at best       copies {report['copy_bytes_s'] / 1e9:.2f} GB/s, "
        f"computes {report['fma_flops_s'] / 1e9:.1f} GFLOP/s (f32, measured)",
        f"versions      {', '.join(f'{name} {v}' for name, v in report['versions'].items())}",
    ]
    if report["busy_cores"] is not None and report["busy_cores"] > BUSY_CORES:
        lines.append(f"other work    {report['busy_cores']} cores busy before: the figures are too low")
    if report["resolution_ns"] >= ROUNDED_NS:
        step = report["resolution_ns"] / 1e3
        lines.append(
            f"rounded       all times are multiples of {step:g} µs: means; short single dispatches say little"
        )
    titles = {"prompt": "prompt: the last {n_tokens} tokens, from position {n_past}"}
    titles["decode"] = "decode: a token at position {n_past}"
    for kind, title in titles.items():
        part = report[kind]
        lines += ["", title.format_map(part), *_table([HEAD, *map(_cells, part["kernels"])])]
        lines.append(
            f"  the pass as one: {part['whole_ms']:.3f} ms; a dispatch at a time: {part['sum_ms']:.3f} ms"
        )
    return "\n".join([*lines, "", *_between(report["decode"])]) + "\n"


def _between(decode: Numbers) -> list[str]:
    gaps = decode["gaps_ms"]
    return [
        f"between tokens, {decode['depth']} submits in flight",
        f"  a token takes {decode['wall_ms']:.3f} ms by the host's clock"
        f" ({decode['plain_wall_ms']:.3f} ms when the GPU's is not read)",
        f"  of which the GPU computes {decode['whole_ms']:.3f} ms",
        f"  idle from one token's pass to the next: {statistics.median(gaps):.3f} ms "
        f"(min {min(gaps):.3f}, max {max(gaps):.3f})",
    ]


def _cells(row: Numbers) -> tuple[str, ...]:
    of_fma = ("", "", "")
    if row["flops"]:
        of_fma = f"{row['flops'] / 1e6:.1f}", f"{row['flops_s'] / 1e9:.2f}", f"{row['of_fma']:.0%}"
    return (
        row["kind"],
        str(row["count"]),
        f"{row['ns'] / 1e6:.3f}",
        f"{row['share']:.1%}",
        f"{row['bytes'] / 1e6:.2f}",
        f"{row['bytes_s'] / 1e9:.2f}",
        f"{row['of_copy']:.0%}",
        *of_fma,
    )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


# ---- the trace ----

LANES = {
    1: "prompt, a dispatch at a time",
    2: "prompt, the whole pass",
    3: "decode, a dispatch at a time",
    4: "decode, tokens submitted ahead",
    5: "idle between those tokens",
}


def trace_of(report: Numbers) -> dict[str, Any]:
    """The report as a Chrome trace: a lane for each way of measuring, times in microseconds.

    Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    """
    return {
        "traceEvents": list(_events(report["raw"])),
        "displayTimeUnit": "ms",
        "otherData": {
            "device": report["device"],
            "adapter": ", ".join(filter(None, report["adapter"].values())),
            **{f"version of {name}": version for name, version in report["versions"].items()},
        },
    }


def _events(raw: Numbers) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "GPU"}}
    for lane, name in LANES.items():
        yield {"ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": 1, "tid": lane, "name": "thread_sort_index", "args": {"sort_index": lane}}

    def span(lane: int, name: str, times: Sequence[int], **args: Any) -> dict[str, Any]:
        start, end = times
        when = {"ts": start / 1e3, "dur": (end - start) / 1e3}
        return {
            "ph": "X",
            "pid": 1,
            "tid": lane,
            "cat": LANES[lane].split(",")[0],
            "name": name,
            **when,
            "args": args,
        }

    for lane, kind in ((1, "prompt"), (3, "decode")):
        part = raw[kind]
        for spans in part["passes"]:
            for op, times in zip(part["ops"], spans, strict=True):
                yield span(lane, op["label"], times, **{k: op[k] for k in ("kernel", "bytes", "flops")})
        for i, times in enumerate(part["whole"]):
            at = part["n_past"] if kind == "prompt" else part["first"] + i
            yield span(lane + 1, f"{part['n_tokens']} token(s) at position {at}", times)
    for times in gaps_of(raw["decode"]["whole"]):
        if times[1] > times[0]:
            yield span(5, "idle", times)
