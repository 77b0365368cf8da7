"""What the context suggests: found at once, the longest first, and trusted only after it was right."""

import random

import pytest

from pagelm.guess import LEARN, LENGTHS, Guesser


def guesser(*ids):
    found = Guesser()
    found.read(ids)
    return found


def test_what_followed_the_same_tokens_is_suggested():
    assert guesser(1, 2, 3, 4, 5, 6, 1, 2).guesses(3) == [3, 4, 5]
    assert guesser(1, 2, 3, 4, 5, 6, 2).guesses(3) == []  # one token is not enough
    assert guesser().guesses(3) == guesser(1).guesses(3) == guesser(1, 2, 3).guesses(3) == []


def test_three_tokens_count_for_more_than_two_and_later_ones_for_more_than_earlier():
    assert guesser(7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2).guesses(1) == [30]
    assert guesser(7, 1, 2, 30, 8, 1, 2, 40, 9, 1, 2).guesses(1) == [40]


def test_a_suggestion_goes_on_where_it_was_right():
    """Though what it would find by the last three tokens alone is another place."""
    found = guesser(50, 1, 2, 3, 4, 60, 1, 2, 3, 5, 50, 1, 2)
    found.push(3)
    assert found.guesses(2) == [4, 60]
    found.push(5)  # it was wrong: the last three tokens say where this is
    assert found.guesses(2) == [50, 1]


def test_a_suggestion_that_reaches_the_end_repeats_itself():
    assert guesser(8, 9, 1, 2, 1, 2).guesses(5) == [1, 2, 1, 2, 1]
    assert guesser(8, 9, 4, 4, 4).guesses(3) == [4, 4, 4]
    assert guesser(8, 9, 4, 4, 4).guesses(0) == []


def test_the_rate_follows_the_outcomes_and_a_prompt_has_none():
    found = guesser(*range(10), 0, 1)
    assert found.rate == 0  # though the prompt repeats itself
    right = [found.push(token) or found.rate for token in (2, 3, 4)]
    assert right == [LEARN, LEARN + LEARN * (1 - LEARN), pytest.approx(1 - (1 - LEARN) ** 3)]
    found.push(99)
    assert found.rate == pytest.approx((1 - (1 - LEARN) ** 3) * (1 - LEARN))
    before = found.rate
    found.push(98)  # no suggestion, no outcome
    assert found.rate == before


def test_suggestions_are_those_of_a_search_through_all_of_the_context():
    """The index against the definition, on text that repeats a lot."""
    r = random.Random(1)
    ids = [r.randrange(4) for _ in range(400)]
    found, source = Guesser(), None
    for n, token in enumerate(ids):
        follows = source is not None and ids[source] == token
        found.push(token)
        seen = ids[: n + 1]
        source = source + 1 if follows else last_occurrence(seen)
        want = []
        for i in range(3 if source is not None else 0):
            want.append((seen + want)[source + i])
        assert found.guesses(3) == want


def last_occurrence(ids):
    """Where what followed the last three tokens, or the last two, begins: the newest place, or None."""
    for length in sorted(LENGTHS, reverse=True):
        for start in range(len(ids) - length - 1, -1, -1):
            if ids[start : start + length] == ids[-length:]:
                return start + length
    return None


def test_a_token_takes_the_same_steps_however_long_the_context():
    found = guesser(*range(20_000))
    assert len(found._after) <= len(LENGTHS) * 20_000  # and two lookups a token: nothing else grows
    assert found.last == 19_999
