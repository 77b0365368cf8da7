"""WordPiece (`tokenizer.ggml.model` = "bert"): words to the longest tokens that they begin with."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from .base import Tokenizer
from .text import SPACE, unescape_spaces
from .vocab import Defaults, Vocab, flag

_ROLES = {"bos": 101, "sep": 102, "unk": 100}
_WHITE_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(point) for point in range(0x2000, 0x200B)
}
# Blocks whose characters are words of their own.
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WpmTokenizer(Tokenizer):
    """Fold case and accents, cut at white space and around punctuation, take the longest token, and again.

    A word that is not made of tokens altogether is the unknown token. Texts do not come back from their ids.
    Classes of characters are those of this Python's Unicode; llama.cpp's has version 15.1.
    Source: llama.cpp src/llama-vocab.cpp (llm_tokenizer_wpm_session) as vendored in llama-cpp-python 0.3.36.
    """

    clean_spaces = True

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(Vocab(metadata, Defaults(roles=_ROLES, add_bos=True, add_sep=True)))
        self.before, self.after = [self.vocab.need("bos")], [self.vocab.need("sep")]
        self._unknown = self.vocab.need("unk")
        self._lowercase = flag(metadata, "normalizer.lowercase", True)
        self._strip_accents = flag(metadata, "normalizer.strip_accents", self._lowercase)
        self._longest = max(map(len, self.vocab.texts))

    def _encode_text(self, text: str) -> list[int]:
        return [token for word in self._words_of(text) for token in self._encode_word(SPACE + word)]

    def _bytes_of(self, text: str) -> bytes:
        return unescape_spaces(text).encode("utf-8", "surrogateescape")

    def _encode_word(self, word: str) -> list[int]:
        ids = self.vocab.ids
        tokens: list[int] = []
        at = 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                token = ids.get(word[at:end])
                if token is not None:
                    tokens.append(token)
                    at = end
                    break
            else:
                return [self._unknown]
        return tokens

    def _words_of(self, text: str) -> Iterator[str]:
        word: list[str] = []
        for char in text:
            if self._strip_accents:
                char = unicodedata.normalize("NFD", char)[0]
            category = unicodedata.category(char)
            if char in _WHITE_SPACE:
                if word:
                    yield "".join(word)
                word = []
            elif char in "\0\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
                continue
            elif self._strip_accents and category[0] == "M":
                continue
            else:
                alone = category[0] == "P" or (char < "\x7f" and category[0] == "S") or _is_chinese(char)
                if alone and word:
                    yield "".join(word)
                    word = []
                word.append(char.lower()[0] if self._lowercase else char)
                if alone:
                    yield word.pop()
        if word:
            yield "".join(word)


def _is_chinese(char: str) -> bool:
    return char >= "\u3400" and any(first <= ord(char) <= last for first, last in _CHINESE)
