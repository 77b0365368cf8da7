"""The choice of kernels by measurement: "can this run here" is not "is this the fastest thing here".

Every candidate (`adapt.candidates`) multiplies a matrix of the model's own type and row length with a vector,
is held to what the plainest form makes of it, and is timed; the fastest that is right is kept for the next
time. What is measured is a product as decoding has it, and not a token: that takes a fraction of the time and
few kernels to compile, and products are what decoding spends its time on.
"""

import asyncio
import json
import math
import random
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from reprlib import repr as shown
from typing import Any

from .adapt import Choice, candidates, plainest
from .cancel import Cancel
from .device import Buffer, Gpu, Recording, Step, Store
from .errors import LimitError, PagelmError, ShaderError
from .forward import plain_product
from .kernels import compose
from .metrics import Progress
from .weights import TILE_ROWS, Matrices, Matrix, Section, Slab, padded

MODES = ("off", "cached", "force")
LIMIT_S = 1.2  # then the best so far has to do
COMPILE_S = 0.6  # no candidate begins to compile or is tried after it
BATCH_S = 0.012  # that a batch of dispatches takes at least, so that its ends do not count
MAX_BATCH = 1024  # dispatches; also their number where a clock stands still
ROUNDS = 3  # batches of every candidate that is still in the race; the best of them counts
SLOW = (2.0, 1.2)  # times the best, after the first round and after the second: out of the race
TIE = 1.03  # times the best: as good, and the candidate that is listed first is kept
MAX_REL = 1e-5  # of the largest result, as everywhere: f32 against f32
MAX_ROWS = 4096
MAX_BYTES = 3 << 20  # of the matrix that is measured
OUT_OF_TIME = "not timed: no time left"
PERIOD = 16381  # words after which random data repeats: a prime, so that no two tiles are the same


@dataclass(frozen=True, slots=True)
class Row:
    """One candidate: milliseconds of a product (None: not timed) and "chosen", "slower" or why it is out."""

    choice: Choice
    ms: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class Tuning:
    """Which kernels a model runs, and why. `source` is "measured", "cache" (measured earlier) or "name".

    `seconds` is what finding out took this time. `rows` are empty where nothing was ever measured.
    """

    choice: Choice
    source: str
    because: str
    seconds: float = 0.0
    rows: tuple[Row, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As plain data; choices have their `name` too."""
        rows = [{"name": row.choice.name, **asdict(row)} for row in self.rows]
        return {**asdict(self), "name": self.choice.name, "rows": rows}


class _Unmeasurable(Exception):
    """Nothing can be measured here, and why."""


class Tuner:
    """Chooses the kernels of one model. `mode`: "off" goes by the adapter's name, "cached" measures what was
    not measured before on this adapter, "force" measures. `version` is pagelm's.

    Raises: PagelmError for another mode.
    """

    def __init__(
        self,
        mode: str = "cached",
        store: Store | None = None,
        *,
        version: str = "",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if mode not in MODES:
            raise PagelmError(f"tune is {shown(mode)}; allowed: {', '.join(MODES)}")
        self._mode = mode
        self._store = store
        self._version = version
        self._clock = clock

    async def tune(
        self, gpu: Gpu, matrices: Matrices, named: Choice, report: Callable[[Progress], None], cancel: Cancel
    ) -> Tuning:
        """The choice for a model with these matrices; `named` is what `adapt.choose` gave.

        Raises: DeviceError, Cancelled. What is wrong with a candidate is told in its row.
        """
        if self._mode == "off":
            return Tuning(named, "name", "tuning is off: by the adapter's name")
        start, matrix = self._clock(), sample_of(matrices)
        found = candidates(gpu, named)
        key = self._key(gpu, matrix)
        if self._mode == "cached" and self._store is not None:
            kept = _read(await self._store.get(key), found)
            if kept is not None:
                return replace(kept, seconds=self._clock() - start)
        race = _Race(gpu, matrix, found, report, cancel, self._clock)
        try:
            rows = await race.run()
        except _Unmeasurable as e:
            seconds = self._clock() - start
            return Tuning(named, "name", f"{e}: by the adapter's name", seconds)
        chosen = next(row for row in rows if row.verdict == "chosen")
        tuning = Tuning(chosen.choice, "measured", _because(rows), self._clock() - start, tuple(rows))
        if self._store is not None and chosen.ms is not None:
            await self._store.set(key, json.dumps(tuning.as_dict()))
        return tuning

    def _key(self, gpu: Gpu, matrix: Matrix) -> str:
        """All that the result depends on."""
        who = asdict(gpu.adapter).values()
        what = (matrix.quant.name, matrix.scales, matrix.n_in, matrix.sections[0].n_rows)
        return " | ".join(map(str, ("tuning", self._version, gpu.runtime, *who, *what)))


def sample_of(matrices: Matrices) -> Matrix:
    """What is measured: the first rows of the largest matrix of a layer, as a matrix of its own."""
    layer = [matrix for name, group in matrices.items() if name.startswith("blk.0.") for matrix in group]
    matrix = max(layer, key=lambda matrix: matrix.slabs[0].nbytes)
    slab = matrix.slabs[0]
    tiles = padded(slab.n_rows) // TILE_ROWS
    tile_bytes, scale_bytes = slab.nbytes // tiles, slab.scale_bytes // tiles
    n = max(1, min(tiles, MAX_ROWS // TILE_ROWS, MAX_BYTES // tile_bytes))
    rows = min(n * TILE_ROWS, slab.n_rows)
    part = Slab("tuning", 0, rows, n * tile_bytes, max(4, n * scale_bytes))
    section = Section("tuning.weight", rows, 0)
    return Matrix("tuning", matrix.quant, matrix.n_in, (section,), (part,), scales=matrix.scales)


def _read(text: str | None, allowed: Sequence[Choice]) -> Tuning | None:
    """What was kept, or None where that is nothing that could be chosen here."""
    try:
        found = json.loads(text or "")
        choice = Choice(**found["choice"])
        rows = tuple(Row(Choice(**r["choice"]), r["ms"], str(r["verdict"])) for r in found["rows"])
        if choice in allowed:
            return Tuning(choice, "cache", str(found["because"]), rows=rows)
    except (ValueError, TypeError, KeyError):
        pass  # another version's, or no JSON at all
    return None


def _because(rows: Sequence[Row]) -> str:
    """Why the chosen one was, in a line."""
    chosen = next(row for row in rows if row.verdict == "chosen")
    if chosen.ms is None:
        return f"the first of the list that is right: there was no time to time any within {LIMIT_S:g} s"
    timed = sorted(
        (row for row in rows if row is not chosen and row.ms is not None), key=lambda row: row.ms or 0
    )
    if not timed:
        return "the only one that is right and was timed"
    ratio = (timed[0].ms or 0) / (chosen.ms or math.inf)
    if ratio <= TIE:
        return f"as fast as {timed[0].choice.name} within {TIE - 1:.0%}, and listed before it"
    return f"the fastest: {timed[0].choice.name} takes {ratio:.2f} times as long"


class _Runner:
    """A candidate on its way: its dispatch, how many make a batch, its best time so far in seconds."""

    __slots__ = ("best", "choice", "count", "recording", "step", "verdict")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.verdict = ""
        self.step: Step | None = None
        self.recording: Recording = None
        self.count = 1
        self.best = math.inf


class _Race:
    """Candidates against each other on one matrix."""

    def __init__(
        self,
        gpu: Gpu,
        matrix: Matrix,
        choices: Sequence[Choice],
        report: Callable[[Progress], None],
        cancel: Cancel,
        clock: Callable[[], float],
    ) -> None:
        self._gpu = gpu
        self._matrix = matrix
        self._runners = [_Runner(choice) for choice in choices]
        self._report = report
        self._cancel = cancel
        self._clock = clock
        self._start = clock()
        self._done, self._total = 0, len(choices) * (2 + ROUNDS)
        self._n_rows = matrix.sections[0].n_rows
        self._buffers: dict[str, Buffer] = {}

    async def run(self) -> list[Row]:
        """A row for each candidate in order, one of them "chosen".

        Raises: _Unmeasurable, DeviceError, Cancelled.
        """
        try:
            self._place()
            await self._compile_all()
            await self._check()
            await self._time()
        except LimitError as e:
            raise _Unmeasurable(f"no memory to measure in ({e})") from e
        finally:
            self._gpu.free(*self._buffers.values())
        self._report(Progress("tuning", self._total, self._total))
        return self._judged()

    def _step(self) -> None:
        self._cancel.check("choosing the kernels")
        self._done += 1
        self._report(Progress("tuning", min(self._done, self._total - 1), self._total))

    @property
    def _past(self) -> float:
        return self._clock() - self._start

    def _place(self) -> None:
        """The matrix, the vector and the rest, in buffers of their own."""
        gpu, (slab,) = self._gpu, self._matrix.slabs
        n_x = padded(self._matrix.n_in)
        numbers = random.Random(1)
        floats = _words(numbers, 0x807F83FF, 0x3C002C00)  # neither infinite nor NaN, as f32 and as f16
        x = array("f", [numbers.uniform(-1, 1) if i < self._matrix.n_in else 0 for i in range(n_x)])
        state = array("I", [0, 1, 0, 0, 0])
        self._sizes = sizes = {slab.name: slab.nbytes, slab.scales: slab.scale_bytes, "x": 4 * n_x}
        sizes |= {"state": 4 * len(state), "y": 4 * padded(self._n_rows)}
        for name, nbytes in sizes.items():
            self._buffers[name] = gpu.buffer(nbytes, f"tuning {name}")
        quants = _words(numbers, 0xFFFFFFFF, 0) if self._matrix.quant.block_size > 1 else floats
        for name, data in ((slab.name, quants), (slab.scales, floats)):
            for at in range(0, sizes[name], len(data)):
                gpu.write(self._buffers[name], at, data[: min(len(data), sizes[name] - at)])
        gpu.write(self._buffers["x"], 0, x.tobytes())
        gpu.write(self._buffers["state"], 0, state.tobytes())

    async def _compile_all(self) -> None:
        """All at once, as far as they get in time; the plainest first, which has to be there."""
        *others, plain = self._runners
        coming = {runner: asyncio.ensure_future(self._compile(runner)) for runner in (plain, *others)}
        try:
            tasks = coming.values()
            await asyncio.wait(tasks, timeout=COMPILE_S, return_when=asyncio.FIRST_EXCEPTION)
            await coming[plain]
            for runner, task in coming.items():
                if task.done():
                    task.result()
                else:
                    runner.verdict = "not timed: it took too long to compile"
        finally:
            for task in coming.values():
                task.cancel()
            await asyncio.gather(*coming.values(), return_exceptions=True)

    async def _compile(self, runner: _Runner) -> None:
        if self._past > COMPILE_S and runner is not self._runners[-1]:  # some devices compile one by one
            runner.verdict = OUT_OF_TIME
            return
        gpu, wg = self._gpu, runner.choice.workgroup_size
        try:
            op = plain_product(self._matrix, runner.choice)
            buffers = [self._buffers[name] for name in op.buffers]
            overrides = {**op.overrides, "WG": wg}
            names = [binding.name for binding in compose(op.variant, overrides).bindings]
            nbytes = {name: self._sizes[buffer] for name, buffer in zip(names, op.buffers, strict=True)}
            pipeline = await gpu.pipeline(compose(op.variant, overrides, nbytes))
            grid = op.grid(1, 1, wg, gpu.limits.max_compute_workgroups_per_dimension)
            runner.step = Step(pipeline, gpu.bind(pipeline, buffers), grid, "tuning")
            runner.recording = gpu.record([runner.step])
        except (ShaderError, LimitError) as e:
            runner.verdict = f"failed: {e}"
        self._step()

    async def _check(self) -> None:
        """Hold each candidate's result to that of the plainest form, which is the last of them."""
        *others, plain = self._runners
        assert plain.choice == plainest(self._gpu)
        if plain.step is None:
            raise _Unmeasurable(f"the plainest form {plain.verdict}")
        want = await self._result(plain)
        largest = max(map(abs, want))
        if not 0 < largest < math.inf or not all(map(math.isfinite, want)):
            raise _Unmeasurable(f"the plainest form's largest result is {largest:g}, nothing to be held to")
        for runner in others:
            if runner.step is None:
                continue
            if self._past > COMPILE_S:  # some drivers compile at the first dispatch
                runner.verdict = OUT_OF_TIME
                continue
            self._cancel.check("choosing the kernels")
            got = await self._result(runner)
            if got == want:
                continue
            off = max((abs(a - b) if math.isfinite(a) else math.inf for a, b in zip(got, want, strict=True)))
            if off > MAX_REL * largest:
                runner.verdict = (
                    f"wrong: off by {off / largest:.1e} of the largest result (allowed {MAX_REL:g})"
                )

    async def _result(self, runner: _Runner) -> "array[float]":
        """y of one dispatch, which is the one that warms up."""
        gpu, y = self._gpu, self._buffers["y"]
        gpu.write(y, 0, b"\xff" * 4 * padded(self._n_rows))  # NaN, where nothing is stored
        gpu.submit(runner.recording)
        return array("f", await gpu.read(y, 0, 4 * self._n_rows))

    async def _time(self) -> None:
        """Batches in turns. A candidate leaves the race where it is clearly slower, all when time is up."""
        running = [runner for runner in self._runners if not runner.verdict]
        for runner in running:
            await self._fit(runner)
        for i in range(ROUNDS):
            for runner in running:
                if self._past > LIMIT_S:
                    return
                runner.best = min(runner.best, await self._batch(runner))
                self._step()
            best = min(runner.best for runner in running)
            slow = SLOW[min(i, len(SLOW) - 1)]
            running = [runner for runner in running if runner.best <= slow * best]

    async def _fit(self, runner: _Runner) -> None:
        """Dispatches enough for a batch, found by trying."""
        took = 0.0
        while self._past < LIMIT_S:
            took = await self._batch(runner) * runner.count
            if took >= BATCH_S * 0.7 or runner.count == MAX_BATCH:
                break
            wanted = math.ceil(runner.count * BATCH_S / took) if took > 0 else MAX_BATCH
            runner.count = min(wanted, 16 * runner.count, MAX_BATCH)
            assert runner.step is not None
            runner.recording = self._gpu.record([runner.step] * runner.count)
        self._step()

    async def _batch(self, runner: _Runner) -> float:
        """Seconds of a dispatch: by the GPU's clock where it has one that can be believed."""
        self._cancel.check("choosing the kernels")
        gpu, begin, on_gpu = self._gpu, self._clock(), 0.0
        if gpu.timestamps:
            timed: Awaitable[list[tuple[int, int]]] = gpu.timed(runner.recording, whole=True)
            ((first, last),) = await timed
            on_gpu = (last - first) / 1e9
        else:
            gpu.submit(runner.recording)
            await gpu.idle()
        took = self._clock() - begin
        return (on_gpu if 0 < on_gpu <= took else took) / runner.count

    def _judged(self) -> list[Row]:
        """The verdicts. Where there was no time to time any, the first that is right is chosen."""
        best = min(runner.best for runner in self._runners)
        right = [runner for runner in self._runners if not runner.verdict]  # so is the last, at least
        chosen = next(runner for runner in right if runner.best <= TIE * best)
        for runner in right:
            timed = runner.best < math.inf
            runner.verdict = "chosen" if runner is chosen else "slower" if timed else OUT_OF_TIME
        return [
            Row(runner.choice, 1e3 * runner.best if runner.best < math.inf else None, runner.verdict)
            for runner in self._runners
        ]


def _words(numbers: random.Random, mask: int, base: int) -> bytes:
    """PERIOD random words, of which `mask` lets bits through to `base`."""
    mask_all, base_all = (
        int.from_bytes(word.to_bytes(4, "little") * PERIOD, "little") for word in (mask, base)
    )
    found = int.from_bytes(numbers.randbytes(4 * PERIOD), "little")
    return (found & mask_all | base_all).to_bytes(4 * PERIOD, "little")
