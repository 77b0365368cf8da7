"""When guesses are worth verifying, and the program that does it: compiled when they first are."""

import asyncio
import time
import warnings
from array import array
from collections.abc import Awaitable, Mapping, Sequence

from .device import Buffer, Gpu, Recording
from .forward import GUESS_TILE, STATE_VERDICT
from .program import Pipelines, Program, kv_bucket

MOST = GUESS_TILE - 1  # guesses that one pass verifies
MARGIN = 1.1  # what verifying must promise to gain, at least: it gives up the submit that goes ahead
RATIO = 2.0  # time of a pass that verifies to that of a plain one, until both have been measured
GROWTH = 1.02  # of a cost from one measurement to the next, unless it is better
EVIDENCE = 0.8  # the rate from which it is worth compiling for: that delays the tokens of the moment
SURE = 0.9  # a rate at which the cost alone decides
FORGET = 0.98  # each time it does: it may have been measured in a bad moment


class Verifier:
    """Belongs to a model: what passes cost on this adapter, and the program once it is there."""

    def __init__(self, gpu: Gpu, program: Program, n_ctx: int) -> None:
        self.program = program
        self._gpu = gpu
        self._n_ctx = n_ctx
        self._plain = Cost(together=4)
        self._verify = Cost(together=1)
        self._compiling: asyncio.Future[None] | None = None
        self._failed = False

    # ---- whether it pays --------------------------------------------------------------------------------

    @property
    def ratio(self) -> float:
        """Time of a pass that verifies, in plain ones."""
        return (
            self._verify.seconds / self._plain.seconds if self._plain.known and self._verify.known else RATIO
        )

    def pays(self, rate: float) -> bool:
        """Whether verifying MOST guesses promises to be faster, each being right with probability `rate`."""
        promised = sum(rate**i for i in range(MOST + 1)) / MARGIN  # tokens of one pass
        if promised > self.ratio:
            return True
        if rate > SURE:
            self._verify.seconds *= FORGET
        return False

    def took(self, seconds: float, verified: bool) -> None:
        """Learn what a pass took, of one kind or the other."""
        if not self.compiling:
            (self._verify if verified else self._plain).learn(seconds)

    # ---- the program ------------------------------------------------------------------------------------

    @property
    def compiling(self) -> bool:
        """Whether a compilation is under way."""
        return self._compiling is not None and not self._compiling.done()

    def ready(self, buffers: Mapping[str, Buffer], pipelines: Pipelines, rate: float = 1.0) -> bool:
        """Whether the program is there. The first call with a `rate` that is worth it starts to compile it.

        What the compiler refuses is told in a warning and not tried again: there is another way.
        """
        if self._failed:
            return False
        if self._compiling is None or self._compiling.cancelled():
            if rate < EVIDENCE:
                return False
            self._compiling = asyncio.ensure_future(self._compile(buffers, pipelines))
        if not self._compiling.done():
            return False
        if error := self._compiling.exception():
            self._failed = True
            warnings.warn(f"no tokens are guessed: {error}", RuntimeWarning, stacklevel=2)
        return not self._failed

    async def _compile(self, buffers: Mapping[str, Buffer], pipelines: Pipelines) -> None:
        await self.program.compile(buffers, pipelines)
        size = 1
        while size < self._n_ctx:  # every grid that will be needed, so that none is built while decoding
            size *= 2
            self._recording(size)

    def submit(self, state: Buffer, n_past: int, ids: Sequence[int]) -> tuple[Awaitable[int], float, float]:
        """Send the pass over a token and the guesses after it, `ids`, after `n_past` tokens in the cache.

        Returns the verdict to come (shaders/accept.wgsl), and the seconds that recording and submitting took.
        """
        t0 = time.perf_counter()
        recording = self._recording(n_past + len(ids))
        t1 = time.perf_counter()
        self._gpu.write(state, 0, array("I", [n_past, len(ids), 0, 0, *ids]).tobytes())
        verdict = self._gpu.submit(recording, (state, STATE_VERDICT))
        assert verdict is not None
        return verdict, t1 - t0, time.perf_counter() - t1

    def _recording(self, n_kv: int) -> Recording:
        return self.program.recording(GUESS_TILE, kv_bucket(n_kv, self._n_ctx))

    def close(self) -> None:
        """Stop compiling: the buffers are about to go."""
        if self._compiling is not None:
            self._compiling.cancel()


class Cost:
    """Seconds of a pass: the best seen, for other work can only add to it. It grows with each pass, as the
    context does. Passes are measured so many `together`: what is late may make the next one seem early.
    """

    def __init__(self, together: int) -> None:
        self.seconds = 0.0
        self._together = together
        self._seen = 0
        self._sum = 0.0

    @property
    def known(self) -> bool:
        """Whether there is more than the first measurement: something is always cold then."""
        return self._seen > self._together

    def learn(self, seconds: float) -> None:
        self._seen += 1
        self._sum += seconds
        if self._seen % self._together == 0:
            mean, self._sum = self._sum / self._together, 0.0
            self.seconds = min(mean, self.seconds * GROWTH) if self.seconds else mean
