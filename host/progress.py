"""Progress bars on stderr, in bytes: only when it is a terminal, never mixed with what a command prints."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from pagelm.metrics import Progress


class _Bars:
    """A bar for each thing that is going on, until it is done; things may go on side by side."""

    def __init__(self, disable: bool | None) -> None:
        self.disable = disable
        self.bars: dict[str, Any] = {}

    def show(self, what: str, done: int, total: int, unit: str = "B") -> None:
        bar = self.bars.get(what)
        if bar is None:
            if done >= total:
                return
            bar = self.bars[what] = tqdm(
                desc=what,
                total=total,
                unit=unit,
                unit_scale=unit == "B",
                unit_divisor=1024,
                leave=False,
                disable=self.disable,
                dynamic_ncols=True,
            )
        bar.total = total
        bar.update(done - bar.n)
        if done >= total:
            self.bars.pop(what).close()

    def close(self) -> None:
        while self.bars:
            self.bars.popitem()[1].close()


@contextlib.contextmanager
def byte_bar(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
    """A callback (what, bytes done, bytes in all) that draws a bar when stderr is a terminal."""
    bars = _Bars(disable=True if quiet else None)
    try:
        yield bars.show
    finally:
        bars.close()


@contextlib.contextmanager
def load_bar(quiet: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A callback for the engine's `Progress` records: bytes for the weights, counts for the kernels."""
    bars = _Bars(disable=True if quiet else None)
    units = {"weights": "B", "header": "B"}

    def show(progress: Progress) -> None:
        bars.show(progress.phase, progress.done, progress.total, units.get(progress.phase, "it"))

    try:
        yield show
    finally:
        bars.close()
