"""`pagelm bench`: how fast a device is (device.py), and other programs on the same machine (peers.py)."""

from pagelm.host.bench.device import bench, context_for, parse_lengths, prompt_of, versions
from pagelm.host.bench.peers import parse_peers
from pagelm.host.bench.report import as_markdown, as_text
from pagelm.host.bench.rounds import MAX_NOISE, Turns

__all__ = [
    "MAX_NOISE",
    "Turns",
    "as_markdown",
    "as_text",
    "bench",
    "context_for",
    "parse_lengths",
    "parse_peers",
    "prompt_of",
    "versions",
]
