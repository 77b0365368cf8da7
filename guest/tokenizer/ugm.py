"""Unigram (`tokenizer.ggml.model` = "t5"): of all ways to cut a text into tokens the one of best score."""

from array import array
from collections.abc import Iterator, Mapping
from math import inf
from struct import unpack_from
from typing import Any

from ..errors import TokenizerError
from .base import Tokenizer
from .text import SPACE, unescape_spaces
from .vocab import NORMAL, PREFIX, UNUSED, USER_DEFINED, Defaults, Vocab, flag, numbers

_UNKNOWN_PENALTY = 10.0


class UgmTokenizer(Tokenizer):
    """Normalise by the file's table of replacements, then find the tokens with the best sum of scores.

    What no token covers is the unknown token, one for a whole run.
    Source: llama.cpp src/llama-vocab.cpp (llm_tokenizer_ugm_session) as vendored in llama-cpp-python 0.3.36.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        super().__init__(Vocab(metadata, Defaults(roles={"eos": 1, "unk": 2}, add_eos=True)))
        self.add_space_prefix = flag(metadata, "add_space_prefix", False)
        self._merge_spaces = flag(metadata, "remove_extra_whitespaces", False)
        self._unknown = self.vocab.need("unk")
        texts, kinds = self.vocab.texts, self.vocab.kinds
        self._scores = numbers(metadata, "scores", self.n_vocab)
        normal = (score for score, kind in zip(self._scores, kinds, strict=True) if kind & NORMAL)
        # The sum is a 32-bit number in llama.cpp.
        self._unknown_score = array("f", [min(normal, default=0.0) - _UNKNOWN_PENALTY])[0]
        self._charsmap = _Charsmap(metadata.get(PREFIX + "precompiled_charsmap"))
        # For each character the length of the longest token that begins with it.
        self._reach: dict[str, int] = {}
        for text, kind in zip(texts, kinds, strict=True):
            if kind & (NORMAL | USER_DEFINED | UNUSED) and len(text) > self._reach.get(text[0], 0):
                self._reach[text[0]] = len(text)
        own = (text for text, kind in zip(texts, kinds, strict=True) if kind & USER_DEFINED)
        self._own_starts = {text[:end] for text in own for end in range(1, len(text) + 1)}

    def _encode_text(self, text: str) -> list[int]:
        text = self._normalized(text)
        n = len(text)
        best, start, token_at = (
            [-inf] * (n + 1),
            array("i", bytes(4 * (n + 1))),
            array("i", bytes(4 * (n + 1))),
        )
        best[0] = 0.0
        ids, kinds, scores = self.vocab.ids, self.vocab.kinds, self._scores
        for at in range(n):
            so_far, covered = best[at], False
            for end in range(at + 1, min(n, at + self._reach.get(text[at], 0)) + 1):
                token = ids.get(text[at:end])
                if token is None or not kinds[token] & (NORMAL | USER_DEFINED | UNUSED):
                    continue
                covered |= end == at + 1
                score = so_far + (0.0 if kinds[token] & USER_DEFINED else scores[token])
                if score > best[end]:
                    best[end], start[end], token_at[end] = score, at, token
            if not covered and (score := so_far + self._unknown_score) > best[at + 1]:
                best[at + 1], start[at + 1], token_at[at + 1] = score, at, self._unknown
        tokens: list[int] = []
        while n:
            if not (tokens and tokens[-1] == token_at[n] == self._unknown):
                tokens.append(token_at[n])
            n = start[n]
        return tokens[::-1]

    def _bytes_of(self, text: str) -> bytes:
        return unescape_spaces(text).encode("utf-8", "surrogateescape")

    def _normalized(self, text: str) -> str:
        """Characters replaced, spaces escaped, and put before the first word or, if they are merged, each."""
        out: list[str] = []
        prefix_due, in_word = self.add_space_prefix, False
        for char in self._replaced(text):
            if char == " ":
                in_word = False
                if not self._merge_spaces:
                    out.append(SPACE)
                continue
            if not in_word:
                in_word = True
                if prefix_due or self._merge_spaces:
                    out.append(SPACE)
                    prefix_due = False
            out.append(char)
        return "".join(out)

    def _replaced(self, text: str) -> Iterator[str]:
        """The characters of `text` with the table's replacements; what begins a user-defined token stays."""
        at = 0
        while at < len(text):
            end = at
            while end < len(text) and text[at : end + 1] in self._own_starts:
                end += 1
            if end > at:
                yield from text[at:end]
            else:
                n, replacement = self._charsmap.longest(text, at)
                end = at + (n or 1)
                yield from replacement if n else text[at]
            at = end


class _Charsmap:
    """A precompiled map from sequences of characters to replacements: a double-array trie over UTF-8 bytes.

    The first four bytes give the trie's size in bytes, then come its nodes as 32-bit numbers, then the
    replacements, each ended by a zero byte.
    """

    def __init__(self, value: Any) -> None:
        """Raises: TokenizerError when it is no array of bytes or its size does not fit."""
        self._nodes: tuple[int, ...] = ()
        self._replacements = b""
        self._passed: set[str] = set()  # characters that begin nothing
        if value is None:
            return
        key = PREFIX + "precompiled_charsmap"
        try:
            data = bytes(byte & 0xFF for byte in value)
        except TypeError:
            raise TokenizerError(f"{key} is {type(value).__name__}; allowed: an array of bytes") from None
        size = int.from_bytes(data[:4], "little")
        if len(data) < 4 or 4 + size >= len(data) or size % 4:
            raise TokenizerError(
                f"{key} has {len(data)} bytes and names a trie of {size}; allowed: a multiple of 4 that "
                "leaves room for replacements"
            )
        self._nodes = unpack_from(f"<{size // 4}I", data, 4)
        self._replacements = data[4 + size :]

    def longest(self, text: str, at: int) -> tuple[int, str]:
        """The longest sequence at `at` that is replaced: its length in characters or 0, and by what."""
        if not self._nodes or text[at] in self._passed:
            return 0, ""
        nodes, found = self._nodes, (0, 0)
        node = _base(nodes[0])
        for end in range(at, len(text)):
            for byte in text[end].encode():
                node ^= byte
                if not byte or self._at(node) & 0x800000FF != byte:
                    if end == at:
                        self._passed.add(text[at])
                    return self._answer(*found)
                leaf = self._at(node) >> 8 & 1
                node ^= _base(self._at(node))
            if leaf:
                found = end + 1 - at, self._at(node) & 0x7FFFFFFF
        return self._answer(*found)

    def _at(self, node: int) -> int:
        try:
            return self._nodes[node]
        except IndexError:
            raise TokenizerError(
                f"{PREFIX}precompiled_charsmap leads to node {node}; it has {len(self._nodes)}"
            ) from None

    def _answer(self, n: int, place: int) -> tuple[int, str]:
        if not n:
            return 0, ""
        end = self._replacements.find(b"\0", place)
        if place >= len(self._replacements) or end < 0:
            raise TokenizerError(f"{PREFIX}precompiled_charsmap has no replacement that ends at {place}")
        return n, self._replacements[place:end].decode("utf-8", "replace")


def _base(node: int) -> int:
    return (node >> 10 << ((node & 0x200) >> 6)) & 0xFFFFFFFF
