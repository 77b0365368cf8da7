"""How many cores work that is not ours keeps busy, from Linux's /proc; None where there is no /proc.

Ours is this process and the processes of whatever is measured. The other programs that a benchmark holds
ready are not: should one of them compute while it ought to wait, that counts as other work.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

PROC = Path("/proc")
BUSY_CORES = 0.15  # more of other people's work than this makes figures doubtful
CHILDREN_TOO = slice(11, 15)  # of /proc/PID/stat after the name: utime, stime, and those of dead children
ITSELF = slice(11, 13)


class Meter(Protocol):
    """What the rounds need to know of the machine."""

    def start(self, roots: Collection[int]) -> Callable[[], float | None]:
        """Begin to watch. The function returned tells how many cores, on average since then, were kept
        busy by all but this process and the trees of processes below `roots`."""
        ...


class ProcMeter:
    """`Meter` from /proc/stat and /proc/PID/stat."""

    def start(self, roots: Collection[int]) -> Callable[[], float | None]:
        began, before = time.perf_counter(), other_seconds(roots)

        def cores() -> float | None:
            after, passed = other_seconds(roots), time.perf_counter() - began
            if before is None or after is None or passed <= 0:
                return None
            return round(max(0.0, after - before) / passed, 3)

        return cores


def busy_cores(seconds: float = 0.5) -> float | None:
    """How many cores all but this process and its children keep busy just now."""
    cores = ProcMeter().start(children())
    time.sleep(seconds)
    return cores()


def other_seconds(roots: Collection[int]) -> float | None:
    """CPU seconds since boot of all but this process and the trees below `roots`."""
    try:
        per_second = os.sysconf("SC_CLK_TCK")
        first = (PROC / "stat").read_text().split("\n", 1)[0].split()
        user, nice, system, _idle, _disk, irq, softirq, steal = (int(n) for n in first[1:9])
        busy = user + nice + system + irq + softirq + steal
        ours = _ticks(os.getpid(), ITSELF) + sum(_ticks(pid, CHILDREN_TOO) for pid in _trees(roots))
        return (busy - ours) / per_second
    except (OSError, ValueError, AttributeError):
        return None


def children() -> set[int]:
    """Processes that this one started and that still run."""
    return {pid for pid, parent in _parents().items() if parent == os.getpid()}


def _trees(roots: Iterable[int]) -> set[int]:
    """`roots` and all below them."""
    below: dict[int, list[int]] = {}
    for pid, parent in _parents().items():
        below.setdefault(parent, []).append(pid)
    found, todo = set(), list(roots)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found.add(pid)
            todo += below.get(pid, [])
    return found


def _parents() -> dict[int, int]:
    found = {}
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            found[int(entry.name)] = int(fields[1])
    return found


def _ticks(pid: int, which: slice) -> int:
    return sum(int(n) for n in _stat(pid)[which])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything; [] for a process that ended."""
    try:
        return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
