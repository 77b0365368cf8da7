"""What a model counts and times while it loads and runs."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """`done` of `total` in a phase: bytes of "header" or "weights", or counts of what it names."""

    phase: str
    done: int
    total: int


@dataclass(slots=True)
class Stats:
    """Counts since the model was loaded; `memory_bytes` is of the last submit.

    `guessed` tokens were verified several at once, and `accepted` of them were right (see `Model.generate`).
    """

    submits: int = 0
    dispatches: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    guessed: int = 0
    accepted: int = 0
    buffers_created_in_decode: int = 0
    bytes_read_back_per_token: int = 4
    memory_bytes: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(slots=True)
class Timing:
    """Seconds by phase. Prefill ends with the first token; decode is everything from there to the last one.

    `load_s` is all of loading. In it, `weights_s` runs from the first byte of the weights asked for until the
    GPU has them in its tiles, `compile_s` from the first kernel handed to the compiler to the last one back.
    They overlap: the two share the processor where it computes for the GPU.

    Of `decode_s`, `wait_s` was spent waiting for the GPU; the rest is the host's, `record_s` and `submit_s`
    being parts of it. What is sent ahead of the first token lies in `prefill_s` alone. Some software adapters
    compute within the submit (llvmpipe): their computing is then in `submit_s`.
    """

    load_s: float = 0.0
    weights_s: float = 0.0
    compile_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    record_s: float = 0.0
    submit_s: float = 0.0
    wait_s: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0

    def as_dict(self) -> dict[str, float]:
        """The split as the command line prints it; rates are 0 where nothing was measured."""
        per_token = 1e3 / self.decode_tokens if self.decode_tokens else 0.0
        return {
            "load_s": self.load_s,
            "weights_s": self.weights_s,
            "compile_s": self.compile_s,
            "prefill_s": self.prefill_s,
            "decode_s": self.decode_s,
            "prefill_tok_s": self.prefill_tokens / self.prefill_s if self.prefill_s else 0.0,
            "decode_tok_s": self.decode_tokens / self.decode_s if self.decode_s else 0.0,
            "record_ms_per_token": self.record_s * per_token,
            "submit_ms_per_token": self.submit_s * per_token,
            "wait_ms_per_token": self.wait_s * per_token,
            "host_ms_per_token": (self.decode_s - self.wait_s) * per_token,
        }
