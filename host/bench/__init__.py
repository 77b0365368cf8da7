"""`pagelm bench`: how fast a device is (device.py), and other programs on the same machine (peers.py)."""

from pagelm.host.bench.device import as_text, bench, prompt_of, versions
from pagelm.host.bench.peers import parse_peers
from pagelm.host.bench.rounds import Turns

__all__ = ["Turns", "as_text", "bench", "parse_peers", "prompt_of", "versions"]
