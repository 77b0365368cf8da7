"""Cutting text into words before merging: the table of `tokenizer.ggml.pre` names and their patterns.

A pattern may use `\\p{L}`, `\\p{N}`, `\\p{P}`, `\\p{M}` and `\\p{S}`, which `re` does not know. So patterns
run, as in llama.cpp, over a copy of the text in which every character beyond ASCII is replaced by the
sign of its class; all signs fit in one byte, so that a class is a small set whatever its size in Unicode.
Source: llama.cpp src/unicode.cpp (unicode_regex_split) and src/llama-vocab.cpp (llm_tokenizer_bpe), as
vendored in llama-cpp-python 0.3.36.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, chain, pairwise

from ..errors import TokenizerError
from .unicode_classes import class_table

Splitter = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Pre:
    """One way of cutting text into words.

    Each pattern cuts every part that the ones before it left; what it does not match stays a part too.
    Patterns are llama.cpp's, with the `|\\s+` that its own code adds where its pattern lacks it.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is in the vocabulary as a whole is that token
    add_bos: bool = False  # when the file does not say


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS_GPT2 = (r"\p{N}", _GPT2)

PRES: dict[str, Pre] = {
    "command-r": Pre(_DIGITS_GPT2),
    "gpt-2": Pre((_GPT2,)),
    "mpt": Pre((_GPT2,)),
    "refact": Pre(_DIGITS_GPT2),
    "smollm": Pre(_DIGITS_GPT2),
    "starcoder": Pre(_DIGITS_GPT2),
}

# What stands for a class inside [...]: its ASCII characters and the sign that class_table gives the others.
_CLASSES = {
    r"\p{N}": "0-9\xd1",
    r"\p{L}": "A-Za-z\xd2",
    r"\p{P}": r"!-#%-*,-/:-;?-@\[-\]_\{\}" + "\xd3",
    r"\p{M}": "\xd4",
    r"\p{S}": r"$+<->\^`|~" + "\xd5",
}


def pre_for(name: str) -> Pre:
    """The entry of a `tokenizer.ggml.pre`. Raises TokenizerError for a name that is not in the table."""
    try:
        return PRES[name]
    except KeyError:
        raise TokenizerError(
            f"tokenizer.ggml.pre {name!r} is not supported; supported: {', '.join(sorted(PRES))} "
            "(a wrong guess would give wrong tokens silently)"
        ) from None


@cache
def splitter(patterns: tuple[str, ...]) -> Splitter:
    """A function that cuts text into words; joined, the words are the text."""
    compiled = [re.compile(f"({_expand(pattern)})", re.ASCII) for pattern in patterns]

    def split(text: str) -> list[str]:
        signs = text if text.isascii() else text.translate(_class_table())
        parts = [signs]
        for pattern in compiled:
            # With its one group, `re.split` gives the matches as well as what lies between them.
            parts = list(filter(None, chain.from_iterable(map(pattern.split, parts))))
        if signs is text:
            return parts
        ends = accumulate(map(len, parts), initial=0)
        return [text[start:end] for start, end in pairwise(ends)]

    return split


_class_table = cache(class_table)  # 1.1 MB, made when the first text beyond ASCII comes


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
