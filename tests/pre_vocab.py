"""Texts and vocabularies that show where a pre-tokenizer cuts: every two neighbours in a text can merge.

A word boundary shows in the tokens when the two characters beside it would have become one token without it.
Which pairs merge first is random but the same in every run, so that over many texts no boundary stays hidden.
"""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pagelm.tokenizer.pres import Pre
from pagelm.tokenizer.text import BYTE_ALPHABET

NORMAL, BYTE = 1, 6
SNIPPETS = [
    "|",
    "||",
    *(
        "a|b|Z|the| the|The| THE|iPhone|McDonald|ABCdef|don't|DON'T|they'Ll|I'D've|'s|'S|'tis|'|''|x's|é's|"
        "été|ÉTÉ|Straße|ǅungla|ﬁ|ªº|ʰʲ|Привет|мир|ΑΒγδ|Ωmega|עברית|مرحبا|हिन्दी|বাংলা|ไทยน้ำ|ကမ္ဘာ|ភាសាខ្មែរ|ລາວ|"
        "e\u0301t|\u0301|o\u0308\u0323|a\u0301's|日本語|漢字かなカナ|中文，标点。|「引用」|한국어|ㄱㄴ|ㄅㄆ|ﾊﾝｶｸ|々〇|"
        "\U00020000|\ufa11|\ufa6e|"
        "0|7|42|123|1234|12345|123456|1234567|1,234.5|3.14|v2|x1y2|½|²³|Ⅷ|१२३|１２３４|٣٤٥٦|12१३4|"
        " |  |   |    |        |\t|\t\t|\n|\n\n|\n\n\n|"
        "\r\n|\r|\x0b|\x0c|\x1c|\x85|\xa0|\u2003|\u2028|\u3000| \n| \t\n |\n |"
        "!|?!|...|…|,|, |.|;|:|-|--|_|__x|=|==|+|$|$5|€|^|`|~|<|>|<>|"
        '()|[x]|{y}|\\|\\n|/|//|/*|#|#x|@me|&amp;|%|*|"q"|'
        "“q”|‘q’|—|–|！|：|；|、|。|？|।|۔|،|(|)|!a|.Net|#tag|$var|"
        "😀|😀😀|👩\u200d👩\u200d👧|❤\ufe0f|\u200b|\u200d|\ufeff|\ue000|\u0378|\U000e0001|∑|→|★|"
        "IMGIMGABCZ|IMGIMGZ|<sentinel:12>|http://a.b/c?d=e|foo_bar|fooBar|x->y|\\u00e9"
    ).split("|"),
]

SPACES = (" ", "  ", "     ", "\t ", "\n ", " \n", " \r\n\n", "\u3000 ")
AFTER = ("", "a", "A", "7", "1234", "!", "'s", "日", "\u0301", "é", "१", "。", "😀", "_a")


def texts() -> list[str]:
    """What the vectors are made of: random sequences of SNIPPETS, and some long runs."""
    chosen = random.Random(7)
    mixed = ["".join(chosen.choices(SNIPPETS, k=chosen.randint(2, 14))) for _ in range(150)]
    runs = [" " * n + "x" for n in (7, 40, 100, 600, 1030)] + ["9" * 32, "A" * 40 + "b", "a b " * 9]
    between = [f"x{space}{after}" for space in SPACES for after in AFTER]
    return [*SNIPPETS, *between, *mixed, *runs]


def metadata(pre: Pre, name: str) -> dict[str, Any]:
    """A vocabulary for `texts()`: what a character is made of, and every pair of neighbours."""
    if pre.byte_level:
        spelled = [[BYTE_ALPHABET[byte] for byte in text.encode()] for text in texts()]
        tokens, kinds = [*BYTE_ALPHABET], [NORMAL] * 256
    else:
        spelled = [[*(text.replace(" ", "\u2581") if pre.escape_spaces else text)] for text in texts()]
        tokens, kinds = [f"<0x{byte:02X}>" for byte in range(256)], [BYTE] * 256
        letters = sorted({char for text in spelled for char in text} - {" "})
        tokens, kinds = tokens + letters, kinds + [NORMAL] * len(letters)
    pairs = sorted({pair for text in spelled for pair in pairwise(text) if " " not in pair})
    random.Random(8).shuffle(pairs)
    space = BYTE_ALPHABET[ord(" ")] if pre.byte_level else "\u2581"
    if (space, space) in pairs:  # three spaces: two are not enough to see where a run of five is cut
        pairs.append((space + space, space))
    if pre.byte_level:  # the bytes of one character merge last
        pairs.sort(key=lambda pair: "\x80" <= chr(BYTE_ALPHABET.index(pair[1][0])) < "\xc0")
    return {
        "tokenizer.ggml.model": "whitespace" if name == "whitespace" else "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": tokens + [left + right for left, right in pairs],
        "tokenizer.ggml.token_type": kinds + [NORMAL] * len(pairs),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in pairs],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


def lengths(tokens: Sequence[str], ids: Sequence[int]) -> str:
    """The lengths of the tokens' texts, one digit each: with the text itself they say which tokens it was."""
    return "".join(str(len(tokens[i])) for i in ids)
