"""Byte-level byte-pair encoding (`tokenizer.ggml.model` = "gpt2"): words to tokens by ranked merges."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from typing import Any

from ..errors import TokenizerError
from .base import Tokenizer
from .pretokenize import pre_for, splitter
from .text import BYTE_ALPHABET, from_alphabet
from .vocab import BYTE, NORMAL, PREFIX, WRITTEN_AS_IS, Vocab, strings

CACHE_WORDS = 16384  # words whose tokens are remembered; then the memory starts afresh
CACHE_WORD_LENGTH = 32  # longer ones are not remembered: they seldom come again


class BpeTokenizer(Tokenizer):
    """Cut text into words, spell each word's bytes in the vocabulary's alphabet, merge by rank.

    As llama.cpp has it, a byte that the vocabulary has no token for is left out, and a merge into a text
    that is no token gives the tokens of its ASCII characters.
    Source: llama.cpp src/llama-vocab.cpp (llm_tokenizer_bpe_session) as vendored in llama-cpp-python 0.3.36.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        name = metadata.get(PREFIX + "pre")
        if not isinstance(name, str):
            raise TokenizerError(
                f"{PREFIX}pre is {name!r}; allowed: the name of a way to cut text into words "
                "(files converted before May 2024 lack it: convert the model again)"
            )
        pre = pre_for(name)
        super().__init__(Vocab(metadata, add_bos=pre.add_bos, add_eos=False))
        self._split = splitter(pre.patterns)
        self._whole_words = pre.ignore_merges
        self._ranks = _ranks(strings(metadata, "merges"))
        self._words = _WordCache(self._encode_word)

    def _encode_text(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._words.__getitem__, self._split(text))))

    def piece(self, token: int) -> bytes:
        """The bytes that `token` writes; special tokens their text, unused ones nothing.

        Raises: TokenizerError for an id that the vocabulary does not have.
        """
        text, kind = self._text_and_kind(token)
        if kind & WRITTEN_AS_IS:
            return text.encode("utf-8", "surrogateescape")
        if kind & NORMAL:
            return from_alphabet(text)
        return bytes([int(text[3:5], 16)]) if kind & BYTE else b""

    def _encode_word(self, word: str) -> list[int]:
        symbols = [BYTE_ALPHABET[byte] for byte in word.encode()]
        ids = self.vocab.ids
        if self._whole_words and (whole := ids.get("".join(symbols))) is not None:
            return [whole]
        tokens: list[int] = []
        for symbol in merge(symbols, self._ranks):
            token = ids.get(symbol)
            if token is not None:
                tokens.append(token)
            else:
                tokens.extend(ids[char] for char in symbol if char.isascii() and char in ids)
        return tokens


def merge(symbols: list[str], ranks: Mapping[str, int]) -> list[str]:
    """Merge the pair of lowest rank, of those the leftmost, until no pair has a rank.

    `ranks` has "left right" -> rank. O(n log n) for n symbols, whatever they are.
    """
    n, never = len(symbols), len(ranks)
    # Symbols are a linked list. "" at n is its end and, as symbol -1, its start: it has no pair with a rank.
    symbols = [*symbols, ""]
    after = array("i", range(1, n + 2))
    before = array("i", range(-1, n))
    order = [ranks.get(f"{left} {right}", never) for left, right in pairwise(symbols)] + [never]
    # For each rank the places of its pairs, as a heap, and a heap of ranks. A place is stale when its pair
    # has another rank by now.
    places: dict[int, list[int]] = {}
    for place, rank in enumerate(order):
        places.setdefault(rank, []).append(place)
    del places[never]
    queue = list(places)
    heapify(queue)

    def pair_up(left: int, right: int) -> None:
        rank = order[left] = ranks.get(f"{symbols[left]} {symbols[right]}", never)
        if rank == never:
            return
        if rank in places:
            heappush(places[rank], left)
        else:
            places[rank] = [left]
            heappush(queue, rank)

    while queue:
        rank = queue[0]
        here = places[rank]
        while here and queue[0] == rank:
            i = heappop(here)
            if order[i] != rank:
                continue
            j = after[i]
            symbols[i] += symbols[j]
            symbols[j], order[j] = "", never
            k = after[i] = after[j]
            before[k] = i
            pair_up(i, k)
            pair_up(before[i], i)
        if queue[0] == rank:
            heappop(queue)
            del places[rank]
    return [symbol for symbol in symbols if symbol]


class _WordCache(dict[str, list[int]]):
    """Word -> tokens, computed when first asked for. Bounded."""

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode

    def __missing__(self, word: str) -> list[int]:
        tokens: list[int] = self._encode(word)
        if len(word) <= CACHE_WORD_LENGTH:
            if len(self) >= CACHE_WORDS:
                self.clear()
            self[word] = tokens
        return tokens


def _ranks(merges: Sequence[str]) -> dict[str, int]:
    """ "left right" -> rank; of a pair that stands twice the first counts.

    Raises: TokenizerError for a merge that is not two texts with one space between them.
    """
    ranks = dict(zip(merges, range(len(merges)), strict=True))
    if len(ranks) != len(merges):
        ranks = {}
        for rank, merge in enumerate(merges):
            ranks.setdefault(merge, rank)
    for merge in ranks:
        if merge.count(" ") != 1 or merge[0] == " " or merge[-1] == " ":
            raise TokenizerError(
                f"{PREFIX}merges has {merge!r} at {ranks[merge]}; allowed: two texts and one space between"
            )
    return ranks
