r"""The table of `tokenizer.ggml.pre`: how each named pre-tokenizer cuts text into words.

Names, patterns and settings are llama.cpp's (src/llama-vocab.cpp, llm_tokenizer_bpe and
llama_vocab::impl::load, and the hand-written splitters of src/unicode.cpp) as vendored in llama-cpp-python
0.3.36; where those differ from the pattern a model was trained with, they are followed and not the model.
Patterns are spelled shorter where that changes no match: `\p{Lu}`, `\p{Ll}`, … are all `\p{L}` to llama.cpp,
groups do not capture, and GPT-2's pattern gets the `|\s+` that llama.cpp's own code adds.
"""

from dataclasses import dataclass

from ..errors import TokenizerError

# Steps that are no pattern; see `pretokenize`.
DIGITS_FROM_RIGHT = "digits from the right, cut after each group"
ASCII_DIGITS_FROM_RIGHT = "ASCII digits from the right, cut before each group"


@dataclass(frozen=True, slots=True)
class Pre:
    """One way of cutting text into words, and what goes with its name in llama.cpp.

    Each pattern cuts every part that the ones before it left; what it does not match stays a part too.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False  # a word that is in the vocabulary as a whole is that token
    add_bos: bool = False  # when the file does not say
    always_bos: bool = False  # whatever the file says
    add_sep: bool = False
    clean_spaces: bool = True  # text may be tidied after decoding, see Tokenizer.decode
    byte_level: bool = True  # vocabulary texts are spelled in GPT-2's byte alphabet; else in UTF-8
    escape_spaces: bool = False  # a space is "▁" in the vocabulary
    whole_newlines: bool = False  # a run of newlines that is in the vocabulary is that token


_ANY_CASE = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CASED_SPACES = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_KANA_AND_HAN = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_EAST_ASIA = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_ASCII_SIGN_WORD = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_LINES = r"[^\n]+|[\n]+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS_GPT2 = (r"\p{N}", _GPT2)
_LLAMA3 = (rf"{_ANY_CASE}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}",)
_QWEN2 = (rf"{_ANY_CASE}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}",)
_QWEN35 = (
    rf"{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}",
)
_DEEPSEEK3_WORDS = rf"{_ASCII_SIGN_WORD}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_DEEPSEEK3 = (r"\p{N}{1,3}", _KANA_AND_HAN, _DEEPSEEK3_WORDS)
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"


def _cased(marks: str, contraction: str, digits: str) -> str:
    """Words that begin with capitals or end in small letters; beyond ASCII a letter is both."""
    upper, lower = rf"[\p{{Upper}}{marks}]", rf"[\p{{Lower}}{marks}]"
    before = r"[^\r\n\p{L}\p{N}]?"
    words = f"{before}{upper}*{lower}+{contraction}|{before}{upper}+{lower}*{contraction}"
    return f"{words}|{digits}|{_CASED_SPACES}"


_GPT4O = (_cased("", _ANY_CASE + "?", r"\p{N}{1,3}"),)
# The same, but to llama.cpp letters have no case here.
_LETTERS_AND_MARKS = rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_ANY_CASE}?"
_LATIN_GREEK_CYRILLIC = (
    r"A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    r"\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    r"\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    r"\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    r"\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    r"\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    r"\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    r"\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    r"\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    r"\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    r"\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_LATIN_GREEK_CYRILLIC}]+",
    r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+\Z",
    _EAST_ASIA,
    r"\p{N}+",
)
_YOUTU = (
    r"[\uac00-\ud7a3\u3131-\u318e]+|"
    r"[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    rf"[\u3105-\u312f]+|{_KANA_AND_HAN}",
    rf"{_LETTERS_AND_MARKS}|\p{{N}}|{_CASED_SPACES}",
)
_AFMOE = (
    DIGITS_FROM_RIGHT,
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    r"\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    r"\u1100-\u11ff]+",
    _DEEPSEEK3_WORDS,
)
# \p{L} are the letters outside \p{Han} here; \p{Hanzi} are those inside.
_KIMI_K2 = (
    rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}\p{{Hanzi}}]?\p{{L}}+{_ANY_CASE}?|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}\p{{Hanzi}}]+[\r\n]*|{_SPACES}",
)
_JAIS2 = (
    rf"{_ANY_CASE}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+"
    r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)"
    r"|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}",
)
_CHAMELEON = (
    r"<sentinel:[0-9]+>",
    r"IMGIMG[A-I]{1,4}Z",
    r"[\t\n]|    |  ",
    r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]",
    _GPT2,
)
_BAILING = (rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+",)
_SEED_CODER = (rf"{_ANY_CASE}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)
# llama.cpp: (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+, which can be matched in exponentially many ways.
_EXAONE_MOE = (
    rf"{_ANY_CASE}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}[\p{{L}}\p{{M}}]*(?: \p{{L}}[\p{{L}}\p{{M}}]*)*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
)
_SPARK = (
    r"\p{N}{1,3}",
    _KANA_AND_HAN,
    rf"{_ASCII_SIGN_WORD}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+",
    r"\p{N}",
)

# Pre-tokenizers that share everything share a row.
_ROWS: dict[str, Pre] = {
    "default": Pre((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "minicpm5": Pre((r"\p{N}{1,3}", rf"{_ANY_CASE}|{_WORD}|\p{{N}}+|{_SIGNS}|{_SPACES}"), ignore_merges=True),
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": Pre(
        _LLAMA3, ignore_merges=True, add_bos=True
    ),
    "dbrx smaug-bpe chatglm-bpe": Pre(_LLAMA3),
    "glm4 glm5": Pre(_LLAMA3, ignore_merges=True),
    "jais-2": Pre(_JAIS2),
    "deepseek-llm": Pre(_DEEPSEEK_LLM, clean_spaces=False),
    "deepseek-coder": Pre((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIA, r"\p{N}"), clean_spaces=False),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": Pre(_DEEPSEEK3, clean_spaces=False),
    "spark2_5": Pre(_SPARK, clean_spaces=False),
    "youtu": Pre(_YOUTU, clean_spaces=False, ignore_merges=True),
    "falcon": Pre((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "starcoder refact codeshell exaone minerva-7b mellum2": Pre(_DIGITS_GPT2),
    "command-r smollm": Pre(_DIGITS_GPT2, clean_spaces=False),
    "gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 "
    "mpt olmo jais": Pre((_GPT2,)),
    "jina-v1-en jina-v2-code roberta-bpe": Pre((_GPT2,), add_sep=True),
    "trillion granite-docling": Pre((_GPT2,), clean_spaces=False),
    "gemma4 granite-embed-multi-311m": Pre(
        (_LINES,), byte_level=False, escape_spaces=True, whole_newlines=True, always_bos=True
    ),
    "sarvam-moe": Pre((_LINES,), byte_level=False, escape_spaces=True, clean_spaces=False),
    "whitespace": Pre((r"\S+",), byte_level=False),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan solar-open grok-2": Pre(_QWEN2, clean_spaces=False),
    "megrez stablelm2": Pre(_QWEN2),
    "qwen35": Pre(_QWEN35, clean_spaces=False),
    "laguna": Pre((_LINES, *_QWEN2), clean_spaces=False),
    "ufakzeka": Pre((rf"{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}",), clean_spaces=False),
    "poro-chat": Pre((_BLOOM,), clean_spaces=False),
    "bloom gpt3-finnish": Pre((_BLOOM,)),
    "viking": Pre((_BLOOM, r"\p{N}"), clean_spaces=False),
    "tekken": Pre((_cased("", "", r"\p{N}"),), clean_spaces=False, ignore_merges=True, add_bos=True),
    "gpt-4o llama4 kanana2 talkie minimax-m2": Pre(_GPT4O, clean_spaces=False),
    "granite-embed-multi-97m": Pre(
        (_cased(r"\p{M}", _ANY_CASE + "?", r"\p{N}{1,3}"),), clean_spaces=False, ignore_merges=True
    ),
    "tiny_aya cohere2moe": Pre(
        (DIGITS_FROM_RIGHT, rf"{_LETTERS_AND_MARKS}|\p{{N}}{{1,3}}|{_CASED_SPACES}"), clean_spaces=False
    ),
    "chameleon": Pre(_CHAMELEON, clean_spaces=False, add_bos=True),
    "superbpe": Pre((r"\p{N}+", ASCII_DIGITS_FROM_RIGHT), clean_spaces=False),
    "bailingmoe bailingmoe2 llada-moe": Pre(_BAILING, clean_spaces=False),
    "seed-coder": Pre(_SEED_CODER, clean_spaces=False),
    "kimi-k2": Pre(_KIMI_K2, clean_spaces=False),
    "afmoe": Pre(_AFMOE, clean_spaces=False),
    "exaone-moe": Pre(_EXAONE_MOE),
}
PRES: dict[str, Pre] = {name: pre for names, pre in _ROWS.items() for name in names.split()}


def pre_for(name: str) -> Pre:
    """The entry of a `tokenizer.ggml.pre`. Raises TokenizerError for a name that is not in the table."""
    try:
        return PRES[name]
    except KeyError:
        raise TokenizerError(
            f"tokenizer.ggml.pre {name!r} is not supported; supported: {', '.join(sorted(PRES))} "
            "(a wrong guess would give wrong tokens silently)"
        ) from None
