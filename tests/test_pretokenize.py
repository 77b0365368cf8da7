"""Cutting text into words: by hand, over Unicode's versions, and lossless on anything."""

import sys
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelm.errors import TokenizerError
from pagelm.tokenizer.pres import PRES, pre_for
from pagelm.tokenizer.pretokenize import splitter
from pagelm.tokenizer.unicode_classes import UNICODE_VERSION, class_table

SPACE, NUMBER, LETTER, PUNCTUATION, MARK, SYMBOL, OTHER = 0x0B, 0xD1, 0xD2, 0xD3, 0xD4, 0xD5, 0xD0
CLASS_OF_CATEGORY = {"N": NUMBER, "L": LETTER, "P": PUNCTUATION, "M": MARK, "S": SYMBOL}

# What GPT-2's pattern makes of a text; where the digit patterns differ, their answer follows.
SPLITS = [
    ("", [], None),
    ("a", ["a"], None),
    ("Hello world", ["Hello", " world"], None),
    ("it's we'll I'd", ["it", "'s", " we", "'ll", " I", "'d"], None),
    ("IT'S 'x", ["IT", "'", "S", " '", "x"], None),
    ("a  b", ["a", " ", " b"], None),
    ("a \n b", ["a", " \n", " b"], None),
    ("end  \n", ["end", "  \n"], None),
    ("a\tb", ["a", "\t", "b"], None),
    ("a\n\n\nb", ["a", "\n\n", "\n", "b"], None),
    ("x=1", ["x", "=", "1"], None),
    ("123", ["123"], ["1", "2", "3"]),
    ("v 42", ["v", " 42"], ["v", " ", "4", "2"]),
    ("v  42", ["v", " ", " 42"], ["v", "  ", "4", "2"]),
    ("½²Ⅷ१", ["½²Ⅷ१"], ["½", "²", "Ⅷ", "१"]),
    ("été où", ["été", " où"], None),
    ("e\u0301t", ["e", "\u0301", "t"], None),  # a combining mark is no letter
    ("日本語 の", ["日本語", " の"], None),
    ("a\u00a0b", ["a", "\u00a0", "b"], None),
    ("a\u3000\u2003b", ["a", "\u3000", "\u2003", "b"], None),
    ("a\x85b", ["a", "\x85", "b"], None),
    ("a\x1c\x1fb", ["a", "\x1c\x1f", "b"], None),  # white space to Python, not to Unicode
    ("a\u200bb", ["a", "\u200b", "b"], None),
    ("😀😀!?", ["😀😀!?"], None),
    (" 😀", [" 😀"], None),
    ("a\ue000b", ["a", "\ue000", "b"], None),  # private use
    ("\x00", ["\x00"], None),
]


@pytest.mark.parametrize("name", ["command-r", "gpt-2", "mpt", "refact", "smollm", "starcoder"])
@pytest.mark.parametrize(("text", "gpt2", "digits"), SPLITS, ids=lambda value: ascii(value)[:24])
def test_words_are_cut_as_by_hand(name, text, gpt2, digits):
    alone = digits if digits is not None and name not in ("gpt-2", "mpt") else gpt2
    assert splitter(PRES[name].patterns)(text) == alone


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [  # newer than the llama.cpp that made tests/vectors/pre_tokenizers.json
        ("ufakzeka", "Ali'nin evi  42\n", ["Ali", "'nin", " evi", " ", " ", "4", "2", "\n"]),
        ("qwen2", "it's DON'T", ["it", "'s", " DON", "'T"]),
        ("ufakzeka", "it's 'x", ["it", "'s", " '", "x"]),
        ("spark2_5", "v1234 !\n\nx", ["v", "1", "2", "3", "4", " !", "\n", "\n", "x"]),
        ("spark2_5", "日本語a.b  c", ["日本語", "a", ".b", " ", " c"]),
        ("hy_v4", "v1234 !\n\nx", ["v", "123", "4", " !\n\n", "x"]),
        ("glm5", "1234 it'S", ["123", "4", " it", "'S"]),
    ],
)
def test_words_of_newer_names_are_cut_as_by_hand(name, text, words):
    assert splitter(PRES[name].patterns)(text) == words


DISTINCT = sorted({pre.patterns for pre in PRES.values()})
LONG = ["7" * 200_000, "A" * 100_000 + "b", "a " * 50_000, " \n" * 50_000, "é\u0301" * 50_000]


@pytest.mark.parametrize("patterns", DISTINCT)
@pytest.mark.parametrize("text", LONG, ids=["digits", "capitals", "words", "lines", "marks"])
def test_cutting_is_no_quadratic_loop(patterns, text):
    assert "".join(splitter(patterns)(text)) == text  # a quadratic loop takes hours


@given(st.text())
@settings(deadline=None, max_examples=30)
@pytest.mark.parametrize("patterns", DISTINCT)
def test_words_joined_are_the_text(patterns, text):
    words = splitter(patterns)(text)
    assert "".join(words) == text
    assert "" not in words


def test_unknown_name_is_refused_with_the_names_that_are_known():
    with pytest.raises(
        TokenizerError, match=r"'starcoder9' is not supported; supported: .*smollm, .*starcoder"
    ):
        pre_for("starcoder9")


def test_class_table_is_unicodes_own_but_for_its_version():
    """Where this Python's Unicode differs, it must be for characters that one of them does not have."""
    table = class_table()
    assert len(table) == sys.maxunicode + 1
    assert table[:128] == bytes(range(128))
    newer = [int(part) for part in unicodedata.unidata_version.split(".")] > [
        int(part) for part in UNICODE_VERSION.split(".")
    ]
    wrong = []
    for point in range(128, sys.maxunicode + 1):
        char = chr(point)
        category = unicodedata.category(char)
        # Python calls the four separators U+001C-U+001F space as well, all below 128.
        want = SPACE if char.isspace() else CLASS_OF_CATEGORY.get(category[0], OTHER)
        if table[point] != want and (table[point] != OTHER if newer else category != "Cn"):
            wrong.append((hex(point), category, hex(table[point])))
    assert not wrong


def test_class_table_gives_each_class_to_a_known_character():
    table = class_table()
    known = {
        "\u3000": SPACE, "१": NUMBER, "é": LETTER, "字": LETTER, "。": PUNCTUATION, "\u0301": MARK,
        "€": SYMBOL, "\u200b": OTHER, "\ue000": OTHER, "\U0010ffff": OTHER, "\U000323af": LETTER,
        "\U00011f00": MARK,
    }  # fmt: skip  # the last two came with Unicode 15
    assert {char: table[ord(char)] for char in known} == known
