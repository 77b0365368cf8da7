"""One malformed file and what must become of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    source: str
    stage: str  # "gguf", "hparams", "tensors" or "tokenizer"
    error: str
    field: str  # of a GgufError; for other errors what the message must name
    data: bytes
    offset: int | None = None  # where the error must say it was read; None: it says no place
