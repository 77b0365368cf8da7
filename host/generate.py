"""`pagelm run`: one generation, streamed, with what it took."""

from collections.abc import Callable
from typing import Any

from pagelm.host.lm import Lm, kernels_of


async def generate(
    lm: Lm,
    prompt: str,
    max_tokens: int,
    ignore_eos: bool,
    show: Callable[[str], None] | None,
    guess: bool = True,
) -> dict[str, Any]:
    """The result of `Lm.generate` with `device`, `adapter` and `tuning`; `show` gets the text as it comes.

    Raises: what `show` raises, after the generation has ended.
    """
    failed: list[BaseException] = []

    def emit(piece: str) -> bool:
        try:
            if show is not None:
                show(piece)
        except BaseException as e:  # whoever reads went away: end the generation first, on any device
            failed.append(e)
        return not failed

    result = await lm.generate(prompt, max_tokens, ignore_eos, emit, guess)
    if failed:
        raise failed[0]
    return {**result, "device": lm.device, "adapter": lm.adapter, "tuning": kernels_of(lm)}


def timing_line(result: dict[str, Any]) -> str:
    """What a generation took, for people."""
    timing, n_prompt, n_ids = result["timing"], len(result["prompt_ids"]), len(result["ids"])
    adapter = result["adapter"]
    name = adapter.get("description") or adapter.get("device") or adapter.get("architecture") or "unknown"
    return (
        f"[load {timing['load_s']:.1f} s; prompt {n_prompt} tokens, {timing['prefill_tok_s']:.1f} tok/s; "
        f"generated {n_ids} tokens, {timing['decode_tok_s']:.1f} tok/s; stopped by {result['stop_reason']}; "
        f"{result['device']}: {name}]"
    )
