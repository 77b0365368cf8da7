"""Prefill, decode, generate: the only file that knows the order of things once a model is loaded.

A pass is recorded once and replayed. The state that changes from token to token lives on the GPU, so the
submit of the next token goes out before the previous token has come back (`generation.DEPTH`).
"""

import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from reprlib import repr as shown
from typing import TypeVar

from .activations import Activations
from .cancel import Cancel
from .device import AdapterInfo, Buffer, Gpu
from .errors import BusyError, ContextFull, NumericError, PagelmError, PromptError
from .forward import STATE_NEXT, STATE_TOKENS, TOKEN_TILE, VERDICT_BITS
from .generation import Generation
from .gguf import Gguf
from .guess import Guesser
from .hparams import HParams
from .metrics import Stats, Timing
from .program import Op, Pipelines, Program, kv_bucket
from .prompt import checked_ids, is_integer, prompt_ids
from .tokenizer import Tokenizer
from .tune import Tuning
from .verify import Verifier
from .weights import MemoryPlan

SUBMIT_TARGET_S = 0.25  # a piece of a prompt is sized to take about this long
NO_TOKEN = 0xFFFFFFFF  # argmax found NaN only

T = TypeVar("T")


class Model:
    """A model in GPU memory, its tokenizer and its cache. Made by `pagelm.load`."""

    tokenizer: Tokenizer
    tuning: Tuning  # which kernels it runs, and why

    def __init__(self, gpu: Gpu, gguf: Gguf, hp: HParams, plan: MemoryPlan) -> None:
        self.gguf = gguf
        self.hparams = hp
        self.plan = plan
        self.n_ctx = plan.n_ctx
        self.stats = Stats()
        self.timing = Timing()
        self.owns_gpu = False  # whether `close` closes the device too
        self._gpu = gpu
        self._buffers: dict[str, Buffer] = {}
        self._prompt: Program
        self._decode: Program
        self._baseline: Program  # compiled when a pass has to stop at what fusion hides
        self._activations: Activations
        self._verifier: Verifier
        self._guesser = Guesser()  # has seen what the cache has, or less
        self._pipelines = Pipelines()
        self._n_past = 0
        self._unfed: list[int] = []  # the last token generated: shown, but not yet in the cache
        self._piece = TOKEN_TILE  # prompt tokens in the next submit
        self._busy = False
        self._generation: Generation | None = None  # the newest one
        self._holder: object = None  # the call that the cache belongs to; any other must not go on in it
        self._in_flight: deque[Awaitable[int]] = deque()

    # ---- what the model is ------------------------------------------------------------------------------

    @property
    def adapter(self) -> AdapterInfo:
        return self._gpu.adapter

    @property
    def position(self) -> int:
        """Tokens in the cache."""
        return self._n_past

    @property
    def memory_used(self) -> int:
        """Bytes of GPU memory in live buffers."""
        return self._gpu.memory_used

    def labels(self) -> list[str]:
        """Names of a prompt's steps that leave a result, in order; each can be given as `stop`."""
        ops = (*self._baseline.ops, *(op for op in self._prompt.ops if op.label == "output"))
        return list(dict.fromkeys(op.label for op in ops if op.buffers[-1] in self._activations.widths))

    def encode_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """Ids of a prompt: special tokens in it parsed, BOS where the metadata asks for it.

        Raises: PromptError for an empty prompt, one that is neither text nor ids, or an id that there is not.
        """
        return prompt_ids(self.tokenizer, self.hparams.n_vocab, prompt)

    # ---- generation -------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int = 128,
        *,
        ignore_eos: bool = False,
        append: bool = False,
        guess: bool = True,
        emit: Callable[[str], object] | None = None,
        cancel: Cancel | None = None,
    ) -> Generation:
        """Greedy text, token by token: iterate over the result for pieces, or `await result.run()`.

        With `guess`, where text repeats what the context has and it pays on this adapter, what came next
        there is verified several tokens at once: the same ids, sooner.

        The prompt starts from an empty cache, or with `append` goes on where the last call ended. It ends
        after `max_tokens`, at an end token (not emitted; `ignore_eos` goes on past it), when `emit` returns
        False, when `cancel` is cancelled, or when the context is full; `stop_reason` says which.

        Raises (when iterated): PromptError, ContextFull (the prompt alone does not fit), BusyError,
        NumericError, DeviceError.
        """
        self._end_generation()
        self._generation = Generation(
            self,
            prompt,
            max_tokens,
            ignore_eos=ignore_eos,
            append=append,
            guess=guess,
            emit=emit,
            cancel=cancel or Cancel(),
        )
        return self._generation

    async def prefill_logits(
        self, prompt: str | Sequence[int], *, append: bool = False, stop: str | None = None
    ) -> "array[float]":
        """Logits of the prompt's last token, (n_vocab,) f32.

        With `stop` the pass ends after the step of that label ("blk.3.ffn_residual" = after 4 layers) and
        the result is that step's output for the last token (of "attn_scores" and "attn_softmax": n_head rows
        of n_ctx).
        """
        if stop is not None and stop not in self.labels():
            raise PagelmError(f"no step is labelled {stop!r}; labels() lists them")
        with self._working():
            self._end_generation()
            holder = object()
            ids = self._begin(holder, prompt, append)
            first = await self._prefill(holder, ids, Cancel(), stop=stop)
            if first is not None:
                await self._held(holder, first)
            return await self._values(self._activations.newest if stop else "logits")

    async def trace(
        self, prompt: str | Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, "array[float]"]]:
        """`n` steps from an empty cache through the decode program: (id argmax chose, logits) of each.

        `forced` gives the ids to go on with instead of the chosen ones, at least `n` - 1 of them. Other calls
        may come between two steps; one that needs the cache ends this one with a BusyError.

        Raises (when iterated, before any work): PromptError; ContextFull when not all steps have room.
        """
        if not is_integer(n) or n < 1:
            raise PromptError(f"n is {shown(n)}; allowed: an integer from 1")
        if forced is not None:
            forced = checked_ids(forced, self.hparams.n_vocab, "forced", "a list of token ids")
            if len(forced) < n - 1:
                raise PromptError(f"forced has {len(forced)} ids; allowed: {n - 1} or more for {n} steps")
        holder = object()
        for step in range(n):
            with self._working():
                if step == 0:
                    self._end_generation()
                    ids = self._begin(holder, prompt, append=False, more=n - 1)
                    pending = await self._prefill(holder, ids, Cancel())
                else:
                    self._check_holder(holder)
                    if forced is not None:
                        token = array("I", [forced[step - 1]])
                        self._gpu.write(self._buffers["state"], STATE_TOKENS, token.tobytes())
                    pending, _, _ = self._submit_decode()
                value = await self._token(holder, pending)
                logits = await self._values("logits")
                self._unfed = [value]
            yield value, logits  # not at work meanwhile: nobody may ever come back for the rest

    async def peek(self, name: str, n: int | None = None) -> "array[float]":
        """The last token's row of an activation after the last pass, or its first `n` values.

        `name`: x (residual stream), h (normed), q, k, v, att, o, gate, up, act, logits. What the pass keeps
        to itself is computed once more for its last token, an operation at a time; the cache is left alone.
        """
        if n is not None and (not is_integer(n) or n < 0):
            raise PagelmError(f"n is {shown(n)}; allowed: an integer from 0, or None for all values")
        with self._working():
            return await self._values(name, n)

    def reset(self) -> None:
        """Forget the context; the next prompt starts at position 0.

        A generation still open ends as "cancelled"; any other pass still open ends with a BusyError.
        """
        self._end_generation()
        self._take(None, append=False)

    async def close(self) -> None:
        """Free all GPU memory of this model, and the device if `load` opened it. May be called again.

        A generation still open ends as "cancelled"; any other call, still open or later, with a PagelmError.
        """
        self._end_generation()
        buffers = list(self._buffers.values())
        if not buffers:
            return
        self._verifier.close()
        self._buffers.clear()
        try:
            with suppress(PagelmError):  # a lost device has nothing under way any more
                await self._drain()
        finally:
            self._gpu.free(*buffers)
            if self.owns_gpu:
                self._gpu.close()

    # ---- steps, used by Generation ----------------------------------------------------------------------

    def _end_generation(self) -> None:
        """A generation still open ends as "cancelled"."""
        if self._generation is not None:
            self._generation.abandon()

    def _begin(self, holder: object, prompt: str | Sequence[int], append: bool, more: int = 0) -> list[int]:
        """Ids to feed for this prompt, the cache being `holder`'s and at the position where they go.

        Raises: PromptError; ContextFull when they and `more` do not fit. The context is then as it was.
        """
        ids = self.encode_prompt(prompt) if not append else [*self._unfed, *self._appended(prompt)]
        self._check_room(self._n_past if append else 0, len(ids) + more)
        self._take(holder, append)
        return ids

    def _take(self, holder: object, append: bool) -> None:
        """The cache is `holder`'s from here on, and empty unless it goes on with what is there."""
        self._holder = holder
        if not append:
            self._n_past = 0
            self._unfed = []
            self._guesser = Guesser()

    def _appended(self, prompt: str | Sequence[int]) -> list[int]:
        if not isinstance(prompt, str):
            return self.encode_prompt(prompt)
        return self.encode_prompt(self.tokenizer.encode(prompt) if self._n_past else prompt)

    def _check_room(self, n_past: int, n: int) -> None:
        if n_past + n > self.n_ctx:
            raise ContextFull(
                f"{n} tokens after {n_past} in the cache do not fit the context of {self.n_ctx};"
                " load with a larger n_ctx or shorten the prompt",
                n_ctx=self.n_ctx,
            )

    async def _prefill(
        self, holder: object, ids: Sequence[int], cancel: Cancel, stop: str | None = None
    ) -> Awaitable[int] | None:
        """Feed `ids` in pieces; the last one's submit reads the first token back (unless it stops early).

        The cache counts them when all are in: on an error it is as it was before.

        Raises: Cancelled; what `_held` raises.
        """
        await self._held(holder, self._drain())
        state = self._buffers["state"]
        first_token: Awaitable[int] | None = None
        program, layers_end = self._prompt, stop or f"blk.{self.hparams.n_layer - 1}.ffn_residual"
        if not program.has(layers_end):
            program = self._baseline
            await self._held(holder, program.compile(self._buffers, self._pipelines))
        at = 0
        while at < len(ids):
            cancel.check("reading the prompt")
            piece, n_past = ids[at : at + self._piece], self._n_past + at
            self._gpu.write(state, 0, array("I", [n_past, len(piece), 0, 0, *piece]).tobytes())
            start = time.perf_counter()
            at += len(piece)
            last = at == len(ids)
            until = stop if last else layers_end
            size = TOKEN_TILE
            while size < len(piece):
                size *= 2
            recording = program.recording(size, kv_bucket(n_past + size, self.n_ctx), until)
            self._passed(program.until(until), len(piece), (n_past + len(piece) - 1, piece[-1]))
            if last and stop is None:
                first_token = self._gpu.submit(recording, (state, STATE_NEXT))
            else:
                self._gpu.submit(recording)
                await self._held(holder, self._gpu.idle())
                self._resize(time.perf_counter() - start)
        self._n_past += len(ids)
        self._unfed = []
        return first_token

    def _resize(self, seconds: float) -> None:
        """Let the next piece of a prompt take about SUBMIT_TARGET_S, doubling or halving at most once."""
        if seconds < SUBMIT_TARGET_S / 2:
            self._piece = min(self._piece * 2, self.plan.n_batch)
        elif seconds > SUBMIT_TARGET_S:
            self._piece = max(self._piece // 2, TOKEN_TILE)

    def _submit_decode(self) -> tuple[Awaitable[int], float, float]:
        """Send the next token's pass; nothing is built unless the context outgrows its grid.

        Returns the token to come, and the seconds that recording and submitting took.
        """
        t0 = time.perf_counter()
        recording = self._decode.recording(1, kv_bucket(self._n_past + 1, self.n_ctx))
        t1 = time.perf_counter()
        value = self._gpu.submit(recording, (self._buffers["state"], STATE_NEXT))
        t2 = time.perf_counter()
        self._n_past += 1
        self._passed(self._decode.ops, 1)
        assert value is not None
        return value, t1 - t0, t2 - t1

    def _submit_guesses(self, guesses: Sequence[int]) -> tuple[Awaitable[int], float, float]:
        """Send the pass over the last token and `guesses`; nothing else may be in flight."""
        ids = [self._guesser.last, *guesses]
        sent = self._verifier.submit(self._buffers["state"], self._n_past, ids)
        self._passed(self._verifier.program.ops, 1, (self._n_past, ids[0]))
        self.stats.guessed += len(guesses)
        return sent

    def _verified(self, guesses: Sequence[int], verdict: int) -> list[int]:
        """The tokens that a pass over `guesses` brought: those that are right, and the one after them."""
        right, token = verdict >> VERDICT_BITS, verdict % (1 << VERDICT_BITS)
        self._n_past += right + 1
        last = guesses[right - 1] if right else self._guesser.last
        self._activations.passed(self._verifier.program.ops, right + 1, (self._n_past - 1, last))
        self.stats.accepted += right
        return [*guesses[:right], NO_TOKEN if token == NO_TOKEN % (1 << VERDICT_BITS) else token]

    async def _token(self, holder: object, pending: Awaitable[int] | None) -> int:
        assert pending is not None
        return self._checked(await self._held(holder, pending))

    def _checked(self, token: int) -> int:
        """Raises: NumericError when it is none."""
        if token == NO_TOKEN:
            raise NumericError(
                f"every logit at position {self._n_past} is NaN; `pagelm check` finds the first bad step"
            )
        return token

    async def _held(self, holder: object, coming: Awaitable[T]) -> T:
        """What `coming` brings, `holder` still having the cache then: every wait in a pass goes through here.

        Raises: what `_check_holder` raises, whatever `coming` brought.
        """
        try:
            value = await coming
        except PagelmError:
            self._check_holder(holder)
            raise
        self._check_holder(holder)
        return value

    def _check_holder(self, holder: object) -> None:
        """Raises: PagelmError when the model was closed; BusyError when `holder` lost the cache."""
        self._check_open()
        if holder is not self._holder:
            raise BusyError(
                "the context was reset, or taken by another call, before this one was done; begin it again"
            )

    async def _drain(self) -> None:
        """Let submits whose tokens nobody wants come back, so that no read-back slot stays taken."""
        while self._in_flight:
            await self._in_flight.popleft()

    def _passed(self, ops: tuple[Op, ...], n_tokens: int, fed: tuple[int, int] | None = None) -> None:
        """Note what was submitted: see `Activations.passed`."""
        self._activations.passed(ops, n_tokens, fed)
        self.stats.submits += 1
        self.stats.dispatches += len(ops)
        self.stats.memory_bytes = self._gpu.memory_used

    async def _values(self, name: str, n: int | None = None) -> "array[float]":
        try:
            return await self._activations.values(name, n)
        except (PagelmError, KeyError):
            self._check_open()  # if it was closed meanwhile, that is why
            raise

    def _check_open(self) -> None:
        if not self._buffers:
            raise PagelmError("the model was closed; load it again")

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Marks the model as busy. Raises: BusyError when it is already."""
        self._check_open()
        if self._busy:
            raise BusyError("the model is at work on another call; wait for it or cancel it first")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
