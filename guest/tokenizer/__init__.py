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
from .ugm import UgmTokenizer
from .wpm import WpmTokenizer

__all__ = ["TextStream", "Tokenizer", "tokenizer_from"]

MODELS: dict[str, Callable[[Mapping[str, Any]], Tokenizer]] = {
    "bert": WpmTokenizer,
    "gemma4": BpeTokenizer,
    "gpt2": BpeTokenizer,
    "llama": SpmTokenizer,
    "t5": UgmTokenizer,
    "whitespace": BpeTokenizer,
}
# What else llama.cpp knows, and why it is not here.
REFUSED = {
    "hybriddna": "DNA models with sequences of six bases as tokens",
    "no_vocab": "the file holds no vocabulary: it takes and gives token ids alone",
    "none": "the file holds no vocabulary: it takes and gives token ids alone",
    "plamo2": "PLaMo's own kind",
    "rwkv": "RWKV's own kind",
    "test": "llama.cpp's own, for its tests",
}


def tokenizer_from(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes.

    Raises: TokenizerError when its kind is not supported or its parts are missing or contradict each other.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model is None:
        raise TokenizerError("the file has no tokenizer.ggml.model: it holds no vocabulary")
    if not isinstance(model, str) or model not in MODELS:
        reason = f" ({REFUSED[model]})" if isinstance(model, str) and model in REFUSED else ""
        raise TokenizerError(
            f"tokenizer.ggml.model {model!r}{reason} is not supported; supported: {', '.join(sorted(MODELS))}"
        )
    return MODELS[model](metadata)
