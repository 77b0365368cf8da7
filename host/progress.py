"""Progress bars on stderr, in bytes: only when it is a terminal, never mixed with what a command prints."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from pagelm.metrics import Progress


class _Bars:
    """One bar per thing that is going on; a new thing closes the bar before it."""

    def __init__(self, disable: bool | None) -> None:
        self.disable = disable
        self.bar: Any = None
        self.what = ""

    def show(self, what: str, done: int, total: int, unit: str = "B") -> None:
        if self.bar is None or self.what != what:
            self.close()
            self.what = what
            self.bar = tqdm(
                desc=what,
                total=total,
                unit=unit,
                unit_scale=unit == "B",
                unit_divisor=1024,
                leave=False,
                disable=self.disable,
                dynamic_ncols=True,
            )
        self.bar.total = total or None
        self.bar.update(done - self.bar.n)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        self.bar = None


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
