"""What one generation took, by the clock of whoever asked for it, and how several of them are summed up."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One generation of `gen` tokens after `prompt_tokens`: seconds to the first token, and in all."""

    prompt_tokens: int
    gen: int
    first_s: float
    total_s: float

    @property
    def prefill_tok_s(self) -> float:
        """Prompt tokens by the time to the first token."""
        return self.prompt_tokens / max(self.first_s, 1e-9)

    @property
    def decode_tok_s(self) -> float:
        """The tokens after the first by the time after it."""
        return (self.gen - 1) / max(self.total_s - self.first_s, 1e-9)


def spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": statistics.median(values), "min": min(values), "max": max(values)}
