"""A byte-level vocabulary small enough to know by heart, as GGUF metadata, and a trained one."""

import asyncio
import functools
from pathlib import Path
from typing import Any

from tiny_gguf import byte_alphabet

from pagelm.gguf import read_gguf
from pagelm.sources import FileSource
from pagelm.tokenizer import Tokenizer, tokenizer_from

CONTROL, USER_DEFINED, UNKNOWN, UNUSED, BYTE = 3, 4, 2, 5, 6
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
MERGES = ("Ġ t", "h e", "Ġt he", "l l", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "Ā Ā")
CORPUS = """The quick brown fox jumps over the lazy dog; it's 3 o'clock, isn't it? They'll say we've won.
def f(x):\n    return x ** 2  # squares\n\tprint("tab")\n\n\nÀ l'été, où êtes-vous? Größe, Straße, naïveté.
Привет, мир! Как дела? 日本語の文章です。中文字符。한국어 문장입니다. שלום עולם مرحبا بالعالم
Emoji 😀😀 👩‍👩‍👧 ❤️ and numbers 1234567890, ½, ², Ⅷ. ZWJ\u200dand nbsp\u00a0here.
"""


def small_metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a vocabulary of 3 specials, 256 bytes and the results of MERGES.

    `changes` are by last part of the key (`bos_token_id=7`); None leaves a key out.
    """
    tokens = [*SPECIALS, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    keys = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": tokens,
        "token_type": [CONTROL] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)),
        "merges": list(MERGES),
        "bos_token_id": 1,
        "eos_token_id": 2,
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def with_token(text: str, kind: int, **changes: Any) -> dict[str, Any]:
    """`small_metadata` with one more token, the last."""
    metadata = small_metadata(**changes)
    metadata["tokenizer.ggml.tokens"].append(text)
    metadata["tokenizer.ggml.token_type"].append(kind)
    return metadata


@functools.cache
def trained() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a byte-level BPE trained on CORPUS by Hugging Face's `tokenizers`."""
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([CORPUS] * 3, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


def tokenizer_of(path: Path) -> Tokenizer:
    """The tokenizer of a GGUF file."""
    source = FileSource(str(path))
    try:
        return tokenizer_from(asyncio.run(read_gguf(source)).metadata)
    finally:
        source.close()
