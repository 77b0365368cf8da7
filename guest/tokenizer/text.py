"""Between bytes and characters: the byte alphabet of byte-level BPE, and UTF-8 that arrives in pieces."""

import codecs
import re
from collections.abc import Callable, Iterable
from itertools import pairwise

SPACE = "\u2581"  # "▁", which stands for a space in SentencePiece's vocabularies


def _byte_alphabet() -> str:
    """The character that stands for each byte 0-255 in the vocabulary's texts.

    Visible Latin-1 characters stand for themselves, the other 68 bytes are moved to U+0100 and up.
    Source: https://github.com/openai/gpt-2/blob/9b63575ef42771a015060c964af2c3da4cf7c8ab/src/encoder.py
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in visible else next(moved)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
# Latin-1 characters that the alphabet does not have must not pass for bytes: they become unencodable.
_BYTE_OF = {point: "\uffff" for point in range(256)} | {ord(c): byte for byte, c in enumerate(BYTE_ALPHABET)}


def to_alphabet(data: bytes) -> str:
    """Bytes as the vocabulary spells them: b" a" -> "Ġa"."""
    return data.decode("latin-1").translate(BYTE_ALPHABET)


def from_alphabet(text: str) -> bytes:
    """The bytes that a vocabulary text spells: "Ġa" -> b" a".

    A text with characters outside the alphabet stands for itself (as Hugging Face's byte-level decoder
    has it; llama.cpp writes a placeholder).
    """
    try:
        return text.translate(_BYTE_OF).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def escape_spaces(text: str) -> str:
    return text.replace(" ", SPACE)


def unescape_spaces(text: str) -> str:
    return text.replace(SPACE, " ")


def space_cutter(texts: Iterable[str]) -> Callable[[str], list[str]]:
    """A function that cuts a text with escaped spaces before each "▁" that nothing merges across.

    `texts` are all texts that merging can give, or at least those with a "▁" in them: if no text has a
    certain character before "▁", then no merge joins the two, and the text may be cut there.
    """
    before = {SPACE}
    for text in texts:
        if SPACE in text.lstrip(SPACE):
            before.update(left for left, right in pairwise(text) if right == SPACE)
    cut = re.compile(f"(?<=[^{re.escape(''.join(sorted(before)))}])(?={SPACE})")
    return cut.split


# What llama.cpp tidies in the text of some vocabularies, in this order.
_TIDY = tuple(
    (re.compile(pattern), by)
    for pattern, by in ((" (?=[?!.,])", ""), (" ' ", "'"), (" (?='(?:[sm]|re|ve))", ""))
)


def tidy_spaces(text: str) -> str:
    """Without the spaces before punctuation and contractions that some vocabularies leave."""
    for pattern, by in _TIDY:
        text = pattern.sub(by, text)
    return text


class TextStream:
    """Token ids in, text out, as soon as its characters are complete.

    The pieces of a stream joined are `Tokenizer.decode` of the same ids. Bytes that cannot become a
    character whatever follows come out as U+FFFD; the first bytes of a character wait for the rest.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        """`piece` gives the bytes of one token id."""
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; "" while a character is incomplete."""
        return self._decoder.decode(self._piece(token))

    def flush(self) -> str:
        """End of the stream: "" or U+FFFD for a character that never became complete. Starts afresh."""
        return self._decoder.decode(b"", final=True)
