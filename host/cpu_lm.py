"""`Lm` over the numpy oracle: no GPU, explicit (`--device cpu`), never a fallback."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from pagelm.errors import ContextFull, DeviceError, NumericError, PagelmError, SourceError
from pagelm.host.lm import F32, Emit, OnProgress
from pagelm.host.models import is_url
from pagelm.host.oracle import Oracle, ops
from pagelm.hparams import hparams_from
from pagelm.loading import context_of
from pagelm.metrics import Progress, Stats, Timing
from pagelm.prompt import prompt_ids
from pagelm.sources import FileSource, HttpSource
from pagelm.split import SplitSource, part_names, read_model
from pagelm.tokenizer import Tokenizer, tokenizer_from


class CpuLm:
    """The oracle with a tokenizer. `exact` computes as llama.cpp's CPU backend does (see host/oracle)."""

    device = "cpu"

    def __init__(self, oracle: Oracle, tokenizer: Tokenizer, load_s: float = 0.0) -> None:
        self.oracle = oracle
        self.tokenizer = tokenizer
        mode = "ggml-exact" if oracle.exact else "float32"
        self.adapter = dict(vendor="numpy", architecture=mode, device="cpu", description="", backend="cpu")
        self.tuning: dict[str, Any] | None = None
        self._load_s = load_s
        self._stats = Stats(bytes_read_back_per_token=0)
        self._cleanup = contextlib.ExitStack()

    @classmethod
    async def open(
        cls,
        model: str,
        *,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        on_progress: OnProgress | None = None,
        exact: bool = False,
    ) -> "CpuLm":
        """Raises: PagelmError for a `memory_budget`, which this device cannot keep; what loading raises."""
        if memory_budget is not None:
            raise PagelmError(
                "a memory budget is for GPU memory, of which the device cpu uses none; leave it out"
            )
        start = time.perf_counter()
        with contextlib.ExitStack() as stack:
            path = await local_file(model, stack, on_progress)
            oracle = await open_oracle(path, n_ctx, exact)
            lm = cls(oracle, tokenizer_from(oracle.weights.gguf.metadata))
            lm._load_s = time.perf_counter() - start
            lm._cleanup = stack.pop_all()
        return lm

    async def encode(self, text: str) -> list[int]:
        return self._checked(self.tokenizer.encode(text, parse_special=True, add_special=True))

    async def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        ignore_eos: bool,
        emit: Emit | None = None,
        guess: bool = True,
    ) -> dict[str, Any]:
        prompt_ids = await self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        ids: list[int] = []
        stream, text = self.tokenizer.stream(), ""
        start = first = now = time.perf_counter()

        def say(piece: str) -> bool:
            nonlocal text
            text += piece
            return not piece or emit is None or emit(piece) is not False

        stop_reason = "length"
        async for token, _ in self.trace(prompt_ids, max_tokens):
            now = time.perf_counter()
            first = first if ids else now
            if token in self.tokenizer.eog_ids and not ignore_eos:
                stop_reason = "eos"
                break
            ids.append(token)
            if not say(stream.push(token)):
                stop_reason = "cancelled"
                break
        else:
            stop_reason = "length" if len(ids) >= max_tokens else "context"
        say(stream.flush())
        self._stats.tokens += len(ids)
        self._stats.prompt_tokens += len(prompt_ids)
        timing = Timing(  # nothing is recorded, submitted or waited for
            load_s=self._load_s,
            prefill_s=first - start,
            decode_s=now - first,
            prefill_tokens=len(prompt_ids),
            decode_tokens=max(0, len(ids) - 1),
        )
        return {
            "prompt_ids": prompt_ids,
            "ids": ids,
            "text": text,
            "stop_reason": stop_reason,
            "n_past": len(prompt_ids) + max(0, len(ids) - 1),  # the last id is shown, not fed
            "timing": timing.as_dict(),
            "stats": self._stats.as_dict(),
        }

    async def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, F32]]:
        """Ends early when the context is full; a prompt that does not fit raises ContextFull."""
        self.oracle.reset()
        feed, n_ctx = self._checked(prompt_ids), self.oracle.n_ctx
        if len(feed) > n_ctx:
            raise ContextFull(
                f"{len(feed)} tokens after 0 in the cache do not fit the context of {n_ctx};"
                " load with a larger n_ctx or shorten the prompt",
                n_ctx=n_ctx,
            )
        known = len(forced or ())
        if forced and known >= n - 1 and len(feed) + n - 1 <= n_ctx and not self.oracle.cut_matters:
            rows = self.oracle.forward_all(
                [*feed, *forced[: n - 1]], first=len(feed) - 1
            )  # one pass, same rows
            for position, logits in enumerate(rows, len(feed)):
                yield chosen(logits, position), logits
            return
        for step in range(n):
            if step and self.oracle.position + 1 > n_ctx:
                return
            logits = self.oracle.forward(feed)
            token = chosen(logits, self.oracle.position)
            yield token, logits
            feed = [forced[step] if forced is not None and step < len(forced) else token]
            await asyncio.sleep(0)  # numpy blocks; let others run

    async def values(self, prompt_ids: Sequence[int], stop: str) -> F32:
        trace: dict[str, F32] = {}
        self.oracle.reset()
        self.oracle.forward(self._checked(prompt_ids), trace=trace)
        return trace[stop].reshape(-1)

    def _checked(self, ids: Sequence[int]) -> list[int]:
        return prompt_ids(self.tokenizer, self.oracle.n_vocab, ids)

    async def labels(self) -> list[str]:
        return list(self.oracle.labels())

    async def profile(self, prompt_ids: Sequence[int], tokens: int) -> dict[str, Any]:
        raise DeviceError("the device cpu has no kernels to time; choose --device browser or native")

    async def heap_bytes(self) -> int | None:
        return None

    async def close(self) -> None:
        self._cleanup.close()


def chosen(logits: F32, position: int) -> int:
    """The id that greedy decoding takes. Raises: NumericError when every logit is NaN."""
    if (token := ops.argmax(logits)) < 0:
        raise NumericError(
            f"every logit at position {position} is NaN; `pagelm check` finds the first bad step"
        )
    return token


async def open_oracle(path: Path, n_ctx: int | None, exact: bool = False) -> Oracle:
    """The oracle for a file, with the context that loading for a GPU would give it."""
    source = SplitSource([FileSource(path)])
    try:
        hp = hparams_from(await read_model(source))
    finally:
        source.close()
    return Oracle(path, exact=exact, n_ctx=context_of(hp, n_ctx))


async def local_file(model: str, stack: contextlib.ExitStack, on_progress: OnProgress | None = None) -> Path:
    """`model` as a file of this machine; a URL is copied to a temporary file that goes with `stack`.

    Of a split model all parts are copied, and the first is given.
    """
    if not is_url(model):
        return Path(model)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pagelm-")))
    source = SplitSource([await HttpSource.open(model)])
    try:
        parts = (await read_model(source)).parts
        names = part_names(f"model-00001-of-{len(parts):05}.gguf") if len(parts) > 1 else ["model.gguf"]
        for part, name in zip(parts, names, strict=True):
            with (folder / name).open("wb") as out:
                while (n := out.tell()) < part.size:
                    out.write(await source.read(part.at + n, min(1 << 20, part.size - n)))
                    if on_progress:
                        on_progress(Progress("weights", part.at + out.tell(), source.size))
    except OSError as e:
        raise SourceError(f"{model}: cannot be kept in {folder}: {e.strerror or e}") from e
    finally:
        source.close()
    return folder / names[0]
