"""Text to token ids and back, from a GGUF file's metadata.

A tokenizer family is one class here, named by `tokenizer.ggml.model`; a way of cutting text into words is
one entry in `pres.PRES`, named by `tokenizer.ggml.pre`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import TokenizerError
from .base import Tokenizer
from .bpe import BpeTokenizer
from .spm import SpmTokenizer
from .text import TextStream

__all__ = ["TextStream", "Tokenizer", "tokenizer_from"]

MODELS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
    "gemma4": BpeTokenizer,
    "gpt2": BpeTokenizer,
    "llama": SpmTokenizer,
    "whitespace": BpeTokenizer,
}


def tokenizer_from(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Raises: TokenizerError when its kind is not supported or its parts are missing or contradict each other.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise TokenizerError("the file has no tokenizer.ggml.model: it holds no vocabulary")
    if not isinstance(model, str) or model not in MODELS:
        raise TokenizerError(
            f"tokenizer.ggml.model {model!r} is not supported; supported: {', '.join(sorted(MODELS))}"
        )
    return MODELS[model](metadata)
