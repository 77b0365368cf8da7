r"""Cutting text into words before merging, by the patterns of `pres`.

A pattern may use `\p{L}`, `\p{N}`, `\p{P}`, `\p{M}` and `\p{S}`, which `re` does not know. So such patterns
run, as in llama.cpp, over a copy of the text in which every character beyond ASCII is replaced by the
sign of its class; all signs fit in one byte, so that a class is a small set whatever its size in Unicode.
Other patterns run over the text itself, with white space beyond ASCII replaced by a vertical tab.
Source: llama.cpp src/unicode.cpp (unicode_regex_split) as vendored in llama-cpp-python 0.3.36.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate, chain, pairwise

from .pres import ASCII_DIGITS_FROM_RIGHT, DIGITS_FROM_RIGHT
from .unicode_classes import class_table

Splitter = Callable[[str], list[str]]

# What stands for a class inside [...]: its ASCII characters and the sign that class_table gives the others.
_CLASSES = {
    r"\p{N}": "0-9\xd1",
    r"\p{L}": "A-Za-z\xd2",
    r"\p{Upper}": "A-Z\xd2",  # beyond ASCII a letter is both
    r"\p{Lower}": "a-z\xd2",
    r"\p{P}": r"!-#%-*,-/:-;?-@\[-\]_\{\}" + "\xd3",
    r"\p{M}": "\xd4",
    r"\p{S}": r"$+<->\^`|~" + "\xd5",
    r"\p{Han}": "\xd6\xd7",
    r"\p{Hanzi}": "\xd6",
}
# The blocks that count as Han, and the signs there: of letters, and of code points not assigned.
_HAN = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2CEB0, 0x2EBEF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_HAN_SIGNS = bytes.maketrans(b"\xd0\xd2", b"\xd7\xd6")
SPACE_BEYOND_ASCII = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


@cache
def splitter(patterns: tuple[str, ...]) -> Splitter:
    """A function that cuts text into words; joined, the words are the text."""
    steps = [_step(pattern) for pattern in patterns]

    def split(text: str) -> list[str]:
        ascii_only = text.isascii()
        source, parts = text, [text] if text else []
        copies: dict[Callable[[str], str], str] = {}
        for copy, cut in steps:
            if not ascii_only:
                wanted = copies.get(copy) or copies.setdefault(copy, copy(text))
                if wanted is not source:
                    source, parts = wanted, _like(parts, wanted)
            parts = list(filter(None, chain.from_iterable(map(cut, parts))))
        return parts if source is text else _like(parts, text)

    return split


def _like(parts: list[str], text: str) -> list[str]:
    """`text` cut where `parts`, which are as long, are."""
    ends = accumulate(map(len, parts), initial=0)
    return [text[start:end] for start, end in pairwise(ends)]


def _step(pattern: str) -> tuple[Callable[[str], str], Callable[[str], list[str]]]:
    """Which copy of the text a step of a pre-tokenizer reads, and how it cuts a part of it."""
    if pattern == DIGITS_FROM_RIGHT:
        return _signs, _cut_after_groups
    if pattern == ASCII_DIGITS_FROM_RIGHT:
        return _plain, _cut_before_groups
    copy = _han_signs if r"\p{Han}" in pattern else _signs if r"\p{" in pattern else _plain
    # With its one group, `re.split` gives the matches as well as what lies between them.
    return copy, re.compile(f"({_expand(pattern)})", re.ASCII).split


def _cut_at(part: str, cuts: Iterator[int]) -> list[str]:
    return [part[start:end] for start, end in pairwise([0, *cuts, len(part)])]


_NUMBERS = re.compile("[0-9\xd1]+")
_ASCII_DIGITS = re.compile("[0-9]+")


def _cut_after_groups(part: str) -> list[str]:
    """Cut after each group of three digits, counted from the right; what is before a number stays with it."""
    return _cut_at(
        part,
        (
            cut
            for number in _NUMBERS.finditer(part)
            for cut in range(number.start() + (len(number[0]) % 3 or 3), number.end() + 1, 3)
        ),
    )


def _cut_before_groups(part: str) -> list[str]:
    """Cut before each group of three digits, counted from the right."""
    return _cut_at(
        part,
        (
            cut
            for number in _ASCII_DIGITS.finditer(part)
            for cut in range(number.start() + len(number[0]) % 3, number.end() - 2, 3)
        ),
    )


_class_table = cache(class_table)  # 1.1 MB, made when the first text beyond ASCII comes


@cache
def _han_table() -> bytes:
    table = bytearray(_class_table())
    for first, last in _HAN:
        table[first : last + 1] = table[first : last + 1].translate(_HAN_SIGNS)
    return bytes(table)


def _signs(text: str) -> str:
    return text.translate(_class_table())


def _han_signs(text: str) -> str:
    return text.translate(_han_table())


def _plain(text: str) -> str:
    return SPACE_BEYOND_ASCII.sub("\x0b", text)


def _expand(pattern: str) -> str:
    r"""`pattern` with each `\p{X}` written out, in brackets of its own unless it stands in some."""
    out, inside = [], False
    for part in re.split(r"(\\p\{\w+\}|\\.|[\[\]])", pattern):
        if part.startswith(r"\p{"):
            out.append(_CLASSES[part] if inside else f"[{_CLASSES[part]}]")
        else:
            inside = part == "[" or (inside and part != "]")
            out.append(part)
    return "".join(out)
