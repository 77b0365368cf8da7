"""One generation in progress: an asynchronous iterator over pieces of text."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from reprlib import repr as shown
from typing import TYPE_CHECKING

from .cancel import Cancel
from .errors import Cancelled, PagelmError, PromptError
from .prompt import is_integer
from .verify import MOST

if TYPE_CHECKING:
    from .engine import Model

DEPTH = 2  # decode submits in flight


class Generation:
    """What `Model.generate` returns. Iterate over it for pieces of text, or `await run()` for all of it.

    `prompt_ids`, `ids` (generated so far, the end token left out unless ignored), `text`, and after the end
    `stop_reason`: "length", "eos", "cancelled", "context" or "error" (an exception was raised).
    Another call that needs the cache, `reset` and `close` end this one as "cancelled", at once: a token that
    is on its way is dropped, and the context is the prompt and `ids` (before the prompt is read: as it was).
    """

    def __init__(
        self,
        model: "Model",
        prompt: str | Sequence[int],
        max_tokens: int,
        *,
        ignore_eos: bool,
        append: bool,
        guess: bool,
        emit: Callable[[str], object] | None,
        cancel: Cancel,
    ) -> None:
        self.prompt_ids: list[int] = []
        self.ids: list[int] = []
        self.text = ""
        self.stop_reason = ""
        self._model = model
        self._prompt = prompt
        self._max_tokens = max_tokens
        self._ignore_eos = ignore_eos
        self._append = append
        self._guess = guess
        self._emit = emit
        self._cancel = cancel
        self._stream = model.tokenizer.stream()
        self._started = False
        self._issued = 0  # tokens computed or on their way; of guesses those that turned out right
        self._guesses: list[int] = []  # on their way: the one submit in flight verifies them
        self._arrived: deque[int] = deque()  # not yet shown
        self._ended = False  # the last token that arrived is an end token
        self._began = 0.0
        self._sent_at = 0.0  # of the guesses
        self._last_at: float | None = None  # when a token arrived with another one right behind it
        self._sent = 0  # plain submits since then
        self._buffers_before = 0

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def run(self) -> str:
        """Generate to the end and return the whole text."""
        async for _ in self:
            pass
        return self.text

    def abandon(self) -> None:
        """End as "cancelled" without another submit, in the middle of a step too."""
        if not self.stop_reason:
            self._finish("cancelled")

    async def __anext__(self) -> str:
        if self.stop_reason:
            raise StopAsyncIteration
        with self._model._working():
            try:
                piece = await self._next_piece()
            except BaseException:
                if not self.stop_reason:
                    self._finish("error")
                raise
        if not piece:
            raise StopAsyncIteration
        return piece

    async def _next_piece(self) -> str:
        """The next text that is not empty, or "" at the end."""
        piece = ""
        try:
            if not self._started:
                await self._start()
            while not self.stop_reason and not piece:
                piece = await self._step()
        except PagelmError:
            if not self.stop_reason:  # else another call ended this one while it waited: nobody's error
                raise
        if piece:
            self.text += piece
            if self._emit is not None and self._emit(piece) is False and not self.stop_reason:
                self._finish("cancelled")
        return piece

    async def _start(self) -> None:
        """Feed the prompt; its last submit computes the first token."""
        model, timing = self._model, self._model.timing
        self._started = True
        if not is_integer(self._max_tokens) or self._max_tokens < 1:
            raise PromptError(f"max_tokens is {shown(self._max_tokens)}; allowed: an integer from 1")
        if not isinstance(self._guess, bool):
            raise PromptError(f"guess is {shown(self._guess)}; allowed: True or False")
        self.prompt_ids = model._begin(self, self._prompt, self._append)
        timing.prefill_s = timing.decode_s = timing.record_s = timing.submit_s = timing.wait_s = 0.0
        timing.prefill_tokens = timing.decode_tokens = 0
        self._buffers_before = model._gpu.buffers_created
        began = time.perf_counter()
        try:
            first = await model._prefill(self, self.prompt_ids, self._cancel)
        except Cancelled:
            self._finish("cancelled")
            return
        assert first is not None
        model._in_flight.append(first)
        self._issued = 1
        model._guesser.read(self.prompt_ids)  # while the GPU is at it
        model.stats.prompt_tokens += len(self.prompt_ids)
        timing.prefill_tokens = len(self.prompt_ids)
        self._began = began

    async def _step(self) -> str:
        """One token: send the next ones ahead, wait for this one, decode its text."""
        model, timing = self._model, self._model.timing
        if self._cancel.cancelled:
            return self._finish("cancelled")
        first = not self.ids
        record_s, submit_s = self._send()
        wait_s = 0.0
        if not self._arrived:
            if not model._in_flight:
                return self._finish("length" if self._issued >= self._max_tokens else "context")
            wait_s = await self._receive()
        token = model._checked(self._arrived.popleft())
        now = time.perf_counter()
        if first:
            timing.prefill_s = now - self._began
            self._began = now
        else:  # all parts of the step at once, so that they add up whenever it ends
            timing.record_s += record_s
            timing.submit_s += submit_s
            timing.wait_s += wait_s
            timing.decode_s = now - self._began
            timing.decode_tokens += 1
        if self._ends(token):
            return self._finish("eos")
        self.ids.append(token)
        model.stats.tokens += 1
        return self._stream.push(token)

    def _ends(self, token: int) -> bool:
        return token in self._model.tokenizer.eog_ids and not self._ignore_eos

    def _send(self) -> tuple[float, float]:
        """Send what can go ahead: plain submits, or guesses where they pay. Seconds to record and to submit.

        Guesses need every token before them, so they go out alone, and nothing behind them.
        """
        model = self._model
        record_s = submit_s = 0.0
        while len(model._in_flight) < DEPTH and not self._guesses and not self._ended:
            room = min(self._max_tokens - self._issued, model.n_ctx - model._n_past)
            if room < 1:
                break
            if room > 1 and self._guess and self._pays():
                if model._in_flight:
                    break
                self._guesses = model._guesser.guesses(min(MOST, room - 1))
                self._sent_at = time.perf_counter()
                sent = model._submit_guesses(self._guesses)
            else:
                sent = model._submit_decode()
                self._issued += 1
                self._sent += 1
            pending, recorded, submitted = sent
            model._in_flight.append(pending)
            record_s += recorded
            submit_s += submitted
        return record_s, submit_s

    def _pays(self) -> bool:
        """Whether there is something to guess, it pays, and the program for it is there."""
        model = self._model
        return (
            bool(model._guesser.guesses(1))
            and model._verifier.pays(model._guesser.rate)
            and model._verifier.ready(model._buffers, model._pipelines, model._guesser.rate)
        )

    async def _receive(self) -> float:
        """Wait for the oldest submit and take its tokens in. Returns the seconds of waiting."""
        model, guesses = self._model, self._guesses
        if model._verifier.compiling:  # on some devices nothing here really waits
            await model._held(self, asyncio.sleep(0))
        before = time.perf_counter()
        value = await model._held(self, model._in_flight.popleft())
        now = time.perf_counter()
        tokens = [value]
        if guesses:
            tokens = model._verified(guesses, value)
            self._guesses = []
            self._issued += len(tokens)
            model._verifier.took(now - self._sent_at, verified=True)
        elif self._last_at is not None and self._sent == 1:  # one out, one in: no matter where the time goes
            model._verifier.took(now - self._last_at, verified=False)
        self._last_at, self._sent = now if model._in_flight else None, 0
        for token in tokens:
            self._arrived.append(token)
            model._guesser.push(token)
            if self._ends(token):
                self._ended = True
                break
        return now - before

    def _finish(self, reason: str) -> str:
        """Set the reason, roll back what ran ahead, hand out what is left of the text."""
        model = self._model
        self.stop_reason = reason
        if model._holder is self:
            model._holder = None  # a step that is under way ends where it waits
        # tokens in the cache that were generated: all but the last; submits ahead of it do not count
        ahead = max(0, self._issued - 1 - max(0, len(self.ids) - 1))
        model._n_past -= ahead
        if self.ids:
            model._unfed = self.ids[-1:]
            model.stats.buffers_created_in_decode += model._gpu.buffers_created - self._buffers_before
        return self._stream.flush()
