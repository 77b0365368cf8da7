"""`pagelm bench`: how fast a device is (device.py), and other programs on the same machine (peers.py)."""

from pagelm.host.bench.device import TEXT, bench, context_for, parse_lengths, prompt_of, versions
from pagelm.host.bench.peers import parse_peers
from pagelm.host.bench.quiet import BUSY_CORES, busy_cores
from pagelm.host.bench.report import as_markdown, as_text
from pagelm.host.bench.rounds import Turns

__all__ = [
    "BUSY_CORES",
    "TEXT",
    "Turns",
    "as_markdown",
    "as_text",
    "bench",
    "busy_cores",
    "context_for",
    "parse_lengths",
    "parse_peers",
    "prompt_of",
    "versions",
]
