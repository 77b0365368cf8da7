"""The figures of `bench` for people: lines of text, and tables that are Markdown as well."""

from collections.abc import Mapping, Sequence
from typing import Any

NOISY = "\\*"  # behind a figure that never got a quiet run


def as_text(report: Mapping[str, Any]) -> str:
    """What a terminal shows: pagelm's own figures, then the tables of peers and contexts, if any."""

    def spread(key: str) -> str:
        return "{p50:.2f} tok/s (min {min:.2f}, max {max:.2f})".format_map(report[key])

    heap, busy = report["guest_peak_heap_bytes"], report["busy_cores"]
    work = report["dispatches_per_token"], report["submits_per_token"]
    rows = {
        "device": device_of(report),
        "prefill": f"{spread('prefill_tok_s')}, {report['prompt_tokens']} tokens",
        "decode": f"{spread('decode_tok_s')}, {report['gen']} tokens",
        "first token": f"{report['ttft_s']:.3f} s",
        "per token": "{:g} dispatches, {:g} submits".format(*work),
        "guest memory": "shared with the host" if heap is None else f"{heap:,} bytes at most",
        "other work": "unknown" if busy is None else f"{busy} cores busy before; {noise(report)}",
        "machine": "{cpu}, {cores} cores".format_map(report["machine"]),
        "versions": ", ".join(f"{name} {v}" for name, v in report["versions"].items()),
    }
    lines = "".join(f"{name:<13} {value}\n" for name, value in rows.items())
    return "\n".join(part for part in (lines, *_tables(report)) if part)


def as_markdown(report: Mapping[str, Any]) -> str:
    """A report to paste: conditions, the table of programs, the table of contexts."""
    versions = ", ".join(f"{name} {v}" for name, v in report["versions"].items() if name != "os")
    machine = "{cpu}, {cores} cores".format_map(report["machine"])
    rounds = "One round" if report["rounds"] == 1 else f"Medians of {report['rounds']} rounds (min to max)"
    conditions = (
        f"{report['date']}, {machine}; {device_of(report)}; {versions}. {rounds}, "
        f"{report['prompt_tokens']} prompt tokens; {noise(report)}.\n"
    )
    return "\n".join((conditions, *_tables({**report, "peers": report.get("peers", {})})))


def device_of(report: Mapping[str, Any]) -> str:
    kind = report.get("cache_type", "f32")  # reports of before have none
    cache = "" if kind == "f32" else f", {kind} cache"
    return f"{report['device']} ({', '.join(filter(None, report['adapter'].values()))}){cache}"


def noise(report: Mapping[str, Any]) -> str:
    """Whose runs were discarded for other work, and who had none in some round that should have counted."""
    everyone = {"pagelm": report, **report.get("peers", {})}
    counts = [f"{name} {len(one['discarded'])}" for name, one in everyone.items() if one["discarded"]]
    noisy = [name for name, one in everyone.items() if one["noisy_rounds"]]
    said = f"noisy runs discarded: {', '.join(counts)}" if counts else "no run discarded for noise"
    said += f" (limit {report['max_noise']:g} cores)"
    return f"{said}; {NOISY} never quiet in some round: {', '.join(noisy)}" if noisy else said


def _tables(report: Mapping[str, Any]) -> list[str]:
    tables = []
    if "peers" in report:
        tables.append(table(programs(report)))
    if "context" in report:
        tables.append(table(contexts(report["context"])))
    return tables


def programs(report: Mapping[str, Any]) -> list[list[str]]:
    """Rows of all programs; pagelm's ratios stand in its peers' rows."""
    head = ["", "device", "generated", "prefill, tok/s", "decode, tok/s", "first token, s", "pagelm is"]
    version = f"pagelm {report['versions']['pagelm']}"
    rows = [head, [version, device_of(report), *_speeds(report), ""]]
    for name, peer in report["peers"].items():
        ratio = "prefill ×{prefill:.2f}, decode ×{decode:.2f}".format_map(report["ratios"][name])
        threads = f", {peer['threads']} thread{'s' if peer['threads'] > 1 else ''}"
        rows.append([f"{name} {peer['version']}", f"{peer['device']}{threads}", *_speeds(peer), ratio])
    return rows


def _speeds(one: Mapping[str, Any]) -> list[str]:
    mark = NOISY if one["noisy_rounds"] else ""
    spreads = [
        "{p50:.1f} ({min:.1f} to {max:.1f})".format_map(one[key]) for key in ("prefill_tok_s", "decode_tok_s")
    ]
    return [str(one["gen"]), *(spread + mark for spread in spreads), f"{one['ttft_s']:.2f}{mark}"]


def contexts(measured: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = [["context, tokens", "decode, tok/s", "of the first"]]
    for one in measured:
        mark = NOISY if one["noisy"] else ""
        rows.append([str(one["tokens"]), f"{one['decode_tok_s']:.2f}{mark}", f"{one['ratio']:.0%}"])
    return rows


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned to be read as it is; the first row is the head."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    head, *body = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |\n"
        for row in rows
    )
    return head + "|" + "|".join("-" * (width + 2) for width in widths) + "|\n" + "".join(body)
