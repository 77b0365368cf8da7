"""SentencePiece (`tokenizer.ggml.model` = "llama"): neighbours merge into tokens, best score first."""

from collections.abc import Mapping
from itertools import chain
from math import isfinite
from typing import Any

from ..errors import TokenizerError
from .base import Tokenizer
from .merging import NEVER, WordCache, merge
from .text import escape_spaces, space_cutter, unescape_spaces
from .vocab import PREFIX, Defaults, Vocab, flag, numbers


class SpmTokenizer(Tokenizer):
    """Characters merge pairwise into texts that are tokens, best score first; what is none becomes bytes.

    A space is written "▁". Where the file asks for it (`add_space_prefix`) one is put before a text, and
    after a special token. As llama.cpp has it, any token can come out of merging, whatever its kind; that
    includes control tokens if their text can be put together from tokens.
    Source: llama.cpp src/llama-vocab.cpp (llm_tokenizer_spm_session) as vendored in llama-cpp-python 0.3.36.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(Vocab(metadata, Defaults(roles={"bos": 1, "eos": 2, "unk": 0}, add_bos=True)))
        self.add_space_prefix = flag(metadata, "add_space_prefix", True)
        self._scores = numbers(metadata, "scores", self.n_vocab)
        if not all(map(isfinite, self._scores)):
            at = next(i for i, score in enumerate(self._scores) if not isfinite(score))
            raise TokenizerError(f"{PREFIX}scores has {self._scores[at]} at {at}; allowed: finite numbers")
        # Not the whole text at once: words can be remembered.
        self._cut = space_cutter(self.vocab.texts)
        self._words = WordCache(self._encode_word)

    def _encode_text(self, text: str) -> list[int]:
        if self.add_space_prefix:
            text = " " + text
        return list(chain.from_iterable(map(self._words.__getitem__, self._cut(escape_spaces(text)))))

    def _bytes_of(self, text: str) -> bytes:
        return unescape_spaces(text).encode("utf-8", "surrogateescape")

    def _encode_word(self, word: str) -> list[int]:
        ids = self.vocab.ids
        tokens: list[int] = []
        for symbol in merge(list(word), self._rank_of):
            token = ids.get(symbol)
            if token is not None:
                tokens.append(token)
            else:
                tokens.extend(map(self._byte_token, symbol.encode()))
        return tokens

    def _rank_of(self, left: str, right: str) -> float:
        token = self.vocab.ids.get(left + right)
        return NEVER if token is None else -self._scores[token]

    def _byte_token(self, byte: int) -> int:
        """The token of a byte; the unknown token in a vocabulary without them (llama.cpp fails there)."""
        token = self.vocab.ids.get(f"<0x{byte:02X}>", self.vocab.roles.get("unk"))
        if token is None:
            raise TokenizerError(
                f"{PREFIX}tokens has no <0x{byte:02X}>, and the file no {PREFIX}unknown_token_id: "
                "nothing stands for this byte of the text"
            )
        return token
