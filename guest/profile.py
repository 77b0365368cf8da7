"""Where the GPU's time goes: every dispatch of a pass by the GPU's own clock, and what lies between tokens.

What is measured is what runs: the recorded programs of a loaded model, over a prompt that is given. The
figures come out raw; host/profile.py makes tables of them.
"""

import math
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .cancel import Cancel
from .device import Recording, check_timed
from .errors import PromptError
from .forward import STATE_NEXT, TOKEN_TILE
from .generation import DEPTH
from .metrics import Progress
from .probe import Peaks, peaks
from .program import Program, kv_bucket
from .prompt import is_integer
from .work import work_of

if TYPE_CHECKING:
    from .engine import Model

Span = tuple[int, int]  # start and end, in nanoseconds


async def profile(
    model: "Model",
    prompt: str | Sequence[int],
    *,
    tokens: int = 16,
    rounds: int = 4,
    on_progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> dict[str, Any]:
    """Time the last piece of the prompt `rounds` times, then `tokens` tokens after it; empties the context.

    Returns, all times in nanoseconds from one moment and all plain data:

    - "peaks": what the adapter does at best (`probe.Peaks`);
    - "prompt" and "decode": "n_past" and "n_tokens" of a pass (of decode: of the middle one), "ops" (label,
      kernel, bytes and flops of each dispatch, see `work.work_of`), "passes" (for each round or token the
      (start, end) of every dispatch, a compute pass each) and "whole" (for each the (start, end) of the whole
      as one pass, as it usually runs);
    - of "decode" also "first", the position of the first token, and "ids", all that were chosen;
    - "depth": submits in flight while decode's "whole" was measured; "wall_s" and "plain_wall_s": seconds a
      token by the host's clock, while the GPU's clock was read and without;
    - "resolution_ns": the greatest number of which all times are multiples.

    Raises: DeviceError where the adapter has no timestamp queries; LimitError for more dispatches than can be
    timed; PromptError, ContextFull, BusyError, Cancelled.
    """
    for name, value, least in (("tokens", tokens, 2), ("rounds", rounds, 1)):
        if not is_integer(value) or value < least:
            raise PromptError(f"{name} is {value!r}; allowed: an integer from {least}")
    report, cancel = on_progress or (lambda progress: None), cancel or Cancel()
    gpu = model._gpu
    check_timed(gpu.timestamps, gpu.adapter, max(len(p.ops) for p in (model._prompt, model._decode)))
    done, total = 0, 2 * rounds + 3 * tokens + 2

    def step() -> None:
        nonlocal done
        cancel.check("profiling")
        done += 1
        report(Progress("profile", done, total))

    with model._working():
        model._end_generation()
        holder = object()
        ids = model._begin(holder, prompt, append=False, more=tokens)
        try:
            first = await model._token(holder, await model._prefill(holder, ids, cancel))
            before = await model._held(holder, peaks(gpu))
            step()
            measured = _Passes(model, holder, ids, first, step)
            parts = {"prompt": await measured.prompt(rounds), "decode": await measured.decode(tokens)}
            # once more: what else the machine does may have spoilt the first
            after = await model._held(holder, peaks(gpu))
            step()
        finally:
            if model._holder is holder:
                model._take(None, append=False)
    best = Peaks(max(before.copy_bytes_s, after.copy_bytes_s), max(before.fma_flops_s, after.fma_flops_s))
    return {"peaks": asdict(best), "depth": DEPTH, **_from_one_moment(parts)}


class _Passes:
    """Runs passes of one prompt again and again, from the same state."""

    def __init__(
        self, model: "Model", holder: object, ids: Sequence[int], first: int, step: Callable[[], None]
    ) -> None:
        self._model = model
        self._holder = holder
        self._ids = ids
        self._first = first
        self._step = step

    async def prompt(self, rounds: int) -> dict[str, Any]:
        """The last piece of the prompt, as large as a submit takes it at most."""
        model = self._model
        piece = self._ids[-model.plan.n_batch :]
        n_past, size = len(self._ids) - len(piece), TOKEN_TILE
        while size < len(piece):
            size *= 2
        recording = model._prompt.recording(size, kv_bucket(n_past + size, model.n_ctx))

        async def once(whole: bool) -> list[Span]:
            self._step()
            self._start(n_past, piece)
            return await self._timed(recording, whole)

        await self._warm_up(recording, n_past, piece)
        passes, wholes = [], []
        for _ in range(rounds):
            passes.append(await once(False))
            wholes += await once(True)
        return {**self._described(model._prompt, n_past, len(piece)), "passes": passes, "whole": wholes}

    async def decode(self, tokens: int) -> dict[str, Any]:
        """Tokens after the prompt: a pass a dispatch; then a pass a token, submitted ahead; then untimed."""
        model, n_past = self._model, len(self._ids)
        recordings = [
            model._decode.recording(1, kv_bucket(n_past + i + 1, model.n_ctx)) for i in range(tokens)
        ]
        state = model._buffers["state"]
        await self._warm_up(recordings[0], n_past, [self._first])
        self._start(n_past, [self._first])
        passes = []
        for recording in recordings:
            self._step()
            passes.append(await self._timed(recording, False))
        whole, wall_s = await self._ahead(recordings, lambda r: model._gpu.timed(r, whole=True))
        ids, plain_s = await self._ahead(recordings, lambda r: model._gpu.submit(r, (state, STATE_NEXT)))
        return {
            **self._described(model._decode, n_past + tokens // 2, 1),
            "first": n_past,
            "ids": [self._first, *ids],
            "passes": passes,
            "whole": [span for (span,) in whole],
            "wall_s": wall_s,
            "plain_wall_s": plain_s,
        }

    def _start(self, n_past: int, ids: Sequence[int]) -> None:
        words = array("I", [n_past, len(ids), 0, 0, *ids])
        self._model._gpu.write(self._model._buffers["state"], 0, words.tobytes())

    async def _timed(self, recording: Recording, whole: bool) -> list[Span]:
        return await self._model._held(self._holder, self._model._gpu.timed(recording, whole=whole))

    async def _warm_up(self, recording: Recording, n_past: int, ids: Sequence[int]) -> None:
        """Once each way: some adapters compile then."""
        for whole in (False, True):
            self._start(n_past, ids)
            await self._timed(recording, whole)

    async def _ahead(
        self, recordings: Sequence[Recording], submit: Callable[[Recording], Awaitable[Any] | None]
    ) -> tuple[list[Any], float]:
        """Tokens as `Generation` has them, DEPTH in flight: their results, and seconds a token.

        From the first submit on: an adapter that computes within the submit is ahead of what comes back.
        """
        self._start(len(self._ids), [self._first])
        pending: deque[Awaitable[Any]] = deque()
        results, coming, begin = [], list(recordings), time.perf_counter()
        while coming or pending:
            while coming and len(pending) < DEPTH:
                self._step()
                value = submit(coming.pop(0))
                assert value is not None
                pending.append(value)
            results.append(await self._model._held(self._holder, pending.popleft()))
        return results, (time.perf_counter() - begin) / len(results)

    def _described(self, program: Program, n_past: int, n_tokens: int) -> dict[str, Any]:
        model, ops = self._model, []
        for op in program.ops:
            nbytes, flops = work_of(op, program.sizes, model.hparams, model.plan, n_past, n_tokens)
            ops.append({"label": op.label, "kernel": op.variant.name, "bytes": nbytes, "flops": flops})
        return {"n_past": n_past, "n_tokens": n_tokens, "ops": ops}


def _from_one_moment(kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Both kinds of pass with all times counted from the earliest, and "resolution_ns"."""
    spans = [s for kind in kinds.values() for part in (*kind["passes"], kind["whole"]) for s in part]
    base = min(start for start, _ in spans)

    def moved(part: Sequence[Span]) -> list[list[int]]:
        return [[start - base, end - base] for start, end in part]

    for kind in kinds.values():
        kind["passes"], kind["whole"] = [moved(p) for p in kind["passes"]], moved(kind["whole"])
    resolution = math.gcd(*(moment - base for span in spans for moment in span))
    return {**kinds, "resolution_ns": resolution}
