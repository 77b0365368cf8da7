"""One generation in progress: an asynchronous iterator over pieces of text."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from reprlib import repr as shown
from typing import TYPE_CHECKING

from .cancel import Cancel
from .errors import Cancelled, PagelmError, PromptError
from .prompt import is_integer

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
        self._emit = emit
        self._cancel = cancel
        self._stream = model.tokenizer.stream()
        self._started = False
        self._issued = 0
        self._began = 0.0
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
        model.stats.prompt_tokens += len(self.prompt_ids)
        timing.prefill_tokens = len(self.prompt_ids)
        self._began = began

    async def _step(self) -> str:
        """One token: send the next ones ahead, wait for this one, decode its text."""
        model, timing = self._model, self._model.timing
        if self._cancel.cancelled:
            return self._finish("cancelled")
        first = not self.ids
        record_s = submit_s = 0.0
        while (
            len(model._in_flight) < DEPTH and self._issued < self._max_tokens and model._n_past < model.n_ctx
        ):
            pending, recorded, submitted = model._submit_decode()
            model._in_flight.append(pending)
            self._issued += 1
            record_s += recorded
            submit_s += submitted
        if not model._in_flight:
            return self._finish("length" if self._issued >= self._max_tokens else "context")
        before = time.perf_counter()
        token = await model._token(self, model._in_flight.popleft())
        now = time.perf_counter()
        if first:
            timing.prefill_s = now - self._began
            self._began = now
        else:  # all parts of the step at once, so that they add up whenever it ends
            timing.record_s += record_s
            timing.submit_s += submit_s
            timing.wait_s += now - before
            timing.decode_s = now - self._began
            timing.decode_tokens += 1
        if token in model.tokenizer.eog_ids and not self._ignore_eos:
            return self._finish("eos")
        self.ids.append(token)
        model.stats.tokens += 1
        return self._stream.push(token)

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
