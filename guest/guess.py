"""Guesses of the tokens to come: what followed the same tokens earlier in the context (prompt lookup)."""

from collections.abc import Iterable

LENGTHS = (2, 3)  # tokens that must be the same, at least; the longer ones count for more
LEARN = 0.2  # weight of the newest outcome in `rate`


class Guesser:
    """What the context suggests, kept up to date token by token in constant time.

    `rate`: how often the next token was the one suggested, 0 … 1; the newest outcomes weigh most. It starts
    at 0: a new text has to show that it repeats itself before anything is risked on it.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # tokens -> where what followed them last begins
        self._source: int | None = None  # where in `_ids` the suggestion begins

    @property
    def last(self) -> int:
        """The newest token."""
        return self._ids[-1]

    def read(self, ids: Iterable[int]) -> None:
        """Take in tokens that nobody could have suggested, as those of a prompt."""
        for token in ids:
            self._take(token, follows=False)

    def push(self, token: int) -> None:
        """Take in the token that followed."""
        follows = False
        if self._source is not None:
            follows = self._ids[self._source] == token
            self.rate += LEARN * (follows - self.rate)
        self._take(token, follows)

    def _take(self, token: int, follows: bool) -> None:
        ids = self._ids
        ids.append(token)
        source = self._source + 1 if follows and self._source is not None else None  # the longest there is
        for length in LENGTHS:
            if len(ids) >= length:
                key = tuple(ids[-length:])
                if not follows:
                    source = self._after.get(key, source)
                self._after[key] = len(ids)
        self._source = source

    def guesses(self, n: int) -> list[int]:
        """`n` tokens that may come next, or none at all. What is suggested may run on into itself."""
        if self._source is None or n < 1:
            return []
        out = self._ids[self._source : self._source + n]
        period = len(self._ids) - self._source
        while len(out) < n:
            out.append(out[-period])
        return out
