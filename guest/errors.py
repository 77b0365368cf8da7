"""Every error a user of pagelm can cause, as subclasses of `PagelmError`.

A message says what was found, where, what is allowed and what to do. The CLI prints it as one line
and exits 2; the page shows the same text. `assert` is kept for pagelm's own bugs.
"""


class PagelmError(Exception):
    """Base of all errors raised for input, devices or limits."""


class SourceError(PagelmError):
    """Bytes could not be read: missing file, HTTP status, short answer, server without Range."""


class GgufError(PagelmError):
    """The file is not a GGUF file that can be read safely.

    `field` names the part of the file ("header.n_kv", "tensor blk.0.attn_q.weight.offset") and
    `offset` is the byte position in the file where it was read, or None where no single byte is meant.
    """

    def __init__(self, message: str, *, field: str = "", offset: int | None = None) -> None:
        where = f" [{field}" + (f" at byte {offset}]" if offset is not None else "]") if field else ""
        super().__init__(message + where)
        self.field = field
        self.offset = offset


class SplitError(GgufError):
    """The files given are not the parts of one split model: some are missing, twice there, or another's."""


class ArchError(PagelmError):
    """The architecture, one of its options or one of its sizes is not supported or makes no sense."""


class TokenizerError(PagelmError):
    """The tokenizer in the file is not supported, contradicts itself, or got an id it does not have."""


class LimitError(PagelmError):
    """Something does not fit: `needed` and `available` are bytes (or the unit named in the message)."""

    def __init__(self, message: str, *, needed: int = 0, available: int = 0) -> None:
        super().__init__(message)
        self.needed = needed
        self.available = available


class ShaderError(PagelmError):
    """WGSL did not compose or compile; the message names the real file and line."""


class DeviceError(PagelmError):
    """No adapter, device lost, out of memory, or a WebGPU validation error."""


class NumericError(PagelmError):
    """The model computed nothing usable: every logit of a step is NaN."""


class ContextFull(PagelmError):
    """The prompt does not fit the context; `n_ctx` is the context size in tokens."""

    def __init__(self, message: str, *, n_ctx: int) -> None:
        super().__init__(message)
        self.n_ctx = n_ctx


class Cancelled(PagelmError):
    """The caller cancelled a load or a prompt; the engine (if loaded) works again."""


class BusyError(PagelmError):
    """A second call reached an engine that is still generating."""


class PromptError(PagelmError):
    """The prompt is empty or holds a token id that the model does not have."""
