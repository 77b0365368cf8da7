"""Merging neighbours by rank, as byte-pair encoding and SentencePiece do it, and a memory for words."""

from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf

CACHE_WORDS = 16384  # words whose tokens are remembered; then the memory starts afresh
CACHE_WORD_LENGTH = 32  # longer ones are not remembered: they seldom come again
NEVER = inf  # the rank of two neighbours that do not merge


def merge(symbols: list[str], rank_of: Callable[[str, str], float]) -> list[str]:
    """Merge the pair of lowest rank, of those the leftmost, until no pair has a rank.

    `rank_of` gives the rank of two neighbours, or NEVER. O(n log n) for n symbols, whatever they are, as
    long as the texts that are merged have a longest one.
    """
    n = len(symbols)
    # Symbols are a linked list. "" at n is its end and, as symbol -1, its start: it has no pair with a rank.
    symbols = [*symbols, ""]
    after = array("i", range(1, n + 2))
    before = array("i", range(-1, n))
    order = [*(rank_of(left, right) for left, right in pairwise(symbols[:n])), NEVER, NEVER]
    # For each rank the places of its pairs, as a heap, and a heap of ranks. A place is stale when its pair
    # has another rank by now.
    places: dict[float, list[int]] = {}
    for place, rank in enumerate(order):
        if rank != NEVER:
            places.setdefault(rank, []).append(place)
    queue = list(places)
    heapify(queue)

    def pair_up(left: int, right: int) -> None:
        if left < 0 or right >= n:
            order[left] = NEVER
            return
        rank = order[left] = rank_of(symbols[left], symbols[right])
        if rank == NEVER:
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
            symbols[j], order[j] = "", NEVER
            k = after[i] = after[j]
            before[k] = i
            pair_up(i, k)
            pair_up(before[i], i)
        if queue[0] == rank:
            heappop(queue)
            del places[rank]
    return [symbol for symbol in symbols if symbol]


class WordCache(dict[str, list[int]]):
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
