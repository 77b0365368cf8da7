"""`Lm` over wgpu-py: the guest's own engine in this process."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

import pagelm
from pagelm.host.lm import F32, Emit, OnProgress
from pagelm.profile import profile


class NativeLm:
    """A `pagelm.Model` on a desktop adapter."""

    device = "native"

    def __init__(self, model: pagelm.Model) -> None:
        self.model = model
        self.adapter: dict[str, str] = asdict(model.adapter)
        self.tuning: dict[str, Any] | None = model.tuning.as_dict()

    @classmethod
    async def open(
        cls,
        model: str,
        *,
        n_ctx: int | None = None,
        memory_budget: int | None = None,
        on_progress: OnProgress | None = None,
        tune: str = "cached",
        cache_type: str = "f32",
        activations: str = "f32",
    ) -> "NativeLm":
        return cls(
            await pagelm.load(
                model,
                n_ctx=n_ctx,
                memory_budget=memory_budget,
                cache_type=cache_type,
                on_progress=on_progress,
                tune=tune,
                activations=activations,
            )
        )

    async def encode(self, text: str) -> list[int]:
        return self.model.encode_prompt(text)

    async def generate(
        self,
        prompt: str | Sequence[int],
        max_tokens: int,
        ignore_eos: bool,
        emit: Emit | None = None,
        guess: bool = True,
    ) -> dict[str, Any]:
        run = self.model.generate(prompt, max_tokens, ignore_eos=ignore_eos, guess=guess, emit=emit)
        async for _ in run:
            await asyncio.sleep(0)  # wgpu-py blocks; let others run
        return {
            "prompt_ids": run.prompt_ids,
            "ids": run.ids,
            "text": run.text,
            "stop_reason": run.stop_reason,
            "n_past": self.model.position,
            "timing": self.model.timing.as_dict(),
            "stats": self.model.stats.as_dict(),
        }

    async def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> AsyncIterator[tuple[int, F32]]:
        import numpy as np

        async for token, logits in self.model.trace(prompt_ids, n, forced):
            yield token, np.frombuffer(logits, np.float32)
            await asyncio.sleep(0)

    async def values(self, prompt_ids: Sequence[int], stop: str) -> F32:
        import numpy as np

        return np.frombuffer(await self.model.prefill_logits(prompt_ids, stop=stop), np.float32)

    async def labels(self) -> list[str]:
        return self.model.labels()

    async def profile(self, prompt_ids: Sequence[int], tokens: int) -> dict[str, Any]:
        return await profile(self.model, prompt_ids, tokens=tokens)

    async def heap_bytes(self) -> int | None:
        return None

    async def close(self) -> None:
        await self.model.close()
