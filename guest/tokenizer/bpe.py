"""Byte-pair encoding, by ranked merges: `tokenizer.ggml.model` = "gpt2", "gemma4" and "whitespace"."""

import re
from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any

from ..errors import TokenizerError
from .base import Tokenizer
from .merging import NEVER, WordCache, merge
from .pres import Pre, pre_for
from .pretokenize import SPACE_BEYOND_ASCII, splitter
from .text import BYTE_ALPHABET, escape_spaces, from_alphabet, space_cutter, unescape_spaces
from .vocab import PREFIX, Defaults, Vocab, flag, strings


class BpeTokenizer(Tokenizer):
    """Cut text into words, spell each word in the vocabulary's alphabet, merge by rank.

    As llama.cpp has it, a byte that the vocabulary has no token for is left out, and a merge into a text
    that is no token gives the tokens of its bytes, as far as there are some.
    Source: llama.cpp src/llama-vocab.cpp (llm_tokenizer_bpe_session) as vendored in llama-cpp-python 0.3.36.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        pre = _pre(metadata)
        vocab = Vocab(metadata, Defaults(add_bos=pre.add_bos, always_bos=pre.always_bos, add_sep=pre.add_sep))
        super().__init__(vocab)
        self.clean_spaces = pre.clean_spaces
        self._pre = pre
        self._split = splitter(pre.patterns)
        self._ranks = _ranks(metadata, vocab.ids)
        if pre.escape_spaces:
            self._cut = space_cutter(key.replace(" ", "") for key in self._ranks if " \u2581" in key)
        self._drop_spaces = metadata.get(PREFIX + "model") == "whitespace"
        self._lowercase = flag(metadata, "normalizer.lowercase", False)
        self._words = WordCache(self._encode_word)

    def _encode_text(self, text: str) -> list[int]:
        if self._drop_spaces:
            words = _without_spaces(text, self._lowercase)
        elif self._pre.escape_spaces:
            words = list(chain.from_iterable(map(self._cut, self._split(escape_spaces(text)))))
        else:
            words = self._split(text)
        return list(chain.from_iterable(map(self._words.__getitem__, words)))

    def _bytes_of(self, text: str) -> bytes:
        if self._pre.escape_spaces:
            return unescape_spaces(text).encode("utf-8", "surrogateescape")
        return from_alphabet(text)

    def _encode_word(self, word: str) -> list[int]:
        ids, pre = self.vocab.ids, self._pre
        symbols = [BYTE_ALPHABET[byte] for byte in word.encode()] if pre.byte_level else list(word)
        if pre.ignore_merges and (whole := ids.get("".join(symbols))) is not None:
            return [whole]
        if pre.whole_newlines and word[0] == "\n" and (whole := ids.get(word)) is not None:
            return [whole]
        tokens: list[int] = []
        for symbol in merge(symbols, self._rank_of):
            token = ids.get(symbol)
            if token is not None:
                tokens.append(token)
            elif pre.byte_level:
                tokens.extend(ids[char] for char in symbol if char.isascii() and char in ids)
            else:
                spelled = (f"<0x{byte:02X}>" for byte in symbol.encode())
                tokens.extend(ids[byte] for byte in spelled if byte in ids)
        return tokens

    def _rank_of(self, left: str, right: str) -> float:
        return self._ranks.get(f"{left} {right}", NEVER)


def _without_spaces(text: str, lowercase: bool) -> list[str]:
    if lowercase:
        text = "".join(char.lower()[0] for char in text)
    return [word for word in re.split("[\t-\r ]+", SPACE_BEYOND_ASCII.sub(" ", text)) if word]


def _pre(metadata: Mapping[str, Any]) -> Pre:
    if metadata.get(PREFIX + "model") == "gemma4":
        return pre_for("gemma4")  # such files name no pre-tokenizer
    name = metadata.get(PREFIX + "pre")
    if not isinstance(name, str):
        raise TokenizerError(
            f"{PREFIX}pre is {name!r}; allowed: the name of a way to cut text into words "
            "(files converted before May 2024 lack it: convert the model again)"
        )
    return pre_for(name)


def _ranks(metadata: Mapping[str, Any], ids: Mapping[str, int]) -> dict[str, int]:
    """ "left right" -> rank; of a pair that stands twice the first counts.

    Raises: TokenizerError for a merge that is not the texts of two tokens with one space between them.
    """
    merges = strings(metadata, "merges")
    _check_merges(merges, ids)
    ranks = dict(zip(merges, range(len(merges)), strict=True))
    if len(ranks) != len(merges):
        ranks = {}
        for rank, pair in enumerate(merges):
            ranks.setdefault(pair, rank)
    return ranks


def _check_merges(merges: list[str], ids: Mapping[str, int]) -> None:
    step = 1 << 14  # in parts, so that the halves of half a million merges are not in memory at once
    for start in range(0, len(merges), step):
        some = merges[start : start + step]
        # Whatever is wrong shows here; what and where is looked for only then.
        if set(map(str.count, some, repeat(" "))) == {1} and ids.keys() >= set(" ".join(some).split(" ")):
            continue
        for at, pair in enumerate(some, start):
            halves = pair.split(" ")
            if len(halves) != 2 or "" in halves:
                raise TokenizerError(
                    f"{PREFIX}merges has {pair!r} at {at}; allowed: two texts and one space between"
                )
            for half in halves:
                if half not in ids:
                    raise TokenizerError(
                        f"{PREFIX}merges has {pair!r} at {at}, but {half!r} is not in {PREFIX}tokens; "
                        "allowed: the texts of two tokens"
                    )
