"""Resident memory of Chromium's processes that run pages, for tests of what loading costs."""

import os
import threading
from pathlib import Path

MIB = 1 << 20


def renderers() -> set[int]:
    """This program's own processes of Chromium that run pages; a machine may have other browsers."""
    parents: dict[int, int] = {}
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            if b"--type=renderer" in command:
                found.add(int(folder.name))

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == os.getpid():
                return True
        return False

    return set(filter(ours, found))


def rss(pids: set[int]) -> int:
    """Resident bytes of the processes together."""
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
        except OSError:
            continue
    return total


class Peak:
    """The most resident memory that processes have during a block, looked at every 20 ms."""

    def __init__(self, pids: set[int]) -> None:
        self._pids, self.bytes, self._done = pids, 0, threading.Event()

    def __enter__(self):
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.bytes = max(self.bytes, rss(self._pids))

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
