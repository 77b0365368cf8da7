"""SentencePiece vocabularies (`llama`): by hand, against the definition, and what is refused."""

from array import array
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelm.errors import TokenizerError
from pagelm.tokenizer import Tokenizer, tokenizer_from
from pagelm.tokenizer.text import space_cutter

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
WORDS = {  # token: score
    "▁": -1.0, "h": -2.0, "e": -3.0, "l": -4.0, "o": -5.0, "x": -6.0, "é": -7.0,
    "he": -10.0, "ll": -11.0, "hell": -15.0, "▁hello": -8.0, "▁hell": -9.0, "▁h": -20.0, "el": -9.5,
    "▁▁": -12.0, "xx": -13.0, "xxx": -13.0,
}  # fmt: skip


def spm_metadata(words: dict[str, float] = WORDS, **changes: Any) -> dict[str, Any]:
    """<unk>, <s>, </s>, 256 bytes and `words`; `changes` by last part of the key, None leaves one out."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    keys = {
        "model": "llama",
        "tokens": tokens,
        "token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(words)],
        "scores": [0.0] * 259 + list(words.values()),
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def with_tokens(*tokens: tuple[str, int], **changes: Any) -> dict[str, Any]:
    metadata = spm_metadata(**changes)
    for text, kind in tokens:
        metadata["tokenizer.ggml.tokens"].append(text)
        metadata["tokenizer.ggml.token_type"].append(kind)
        metadata["tokenizer.ggml.scores"].append(0.0)
    return metadata


@pytest.fixture
def spm() -> Tokenizer:
    return tokenizer_from(spm_metadata())


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.vocab.texts[i] for i in tokenizer.encode(text, **options)]


def test_the_best_score_merges_first(spm):
    # "el" has a better score than "he" and "ll", so that "hell" is never made.
    assert pieces(spm, "hello") == ["▁h", "el", "l", "o"]
    without = spm_metadata({word: score for word, score in WORDS.items() if word != "el"})
    assert pieces(tokenizer_from(without), "hello") == ["▁hello"]


def test_of_equal_scores_the_leftmost_merges_first(spm):
    assert pieces(spm, "xxxxx") == ["▁", "xxx", "xx"]  # xx at 0, then xx at 2 or xxx at 0: both -13
    assert pieces(spm, "xxxx") == ["▁", "xxx", "x"]


def test_what_is_no_token_becomes_bytes(spm):
    assert pieces(spm, "xñ€") == ["▁", "x", "<0xC3>", "<0xB1>", "<0xE2>", "<0x82>", "<0xAC>"]
    assert spm.decode(spm.encode("xñ€\n")) == "xñ€\n"


def test_without_byte_tokens_the_unknown_token_stands_for_a_byte():
    metadata = spm_metadata(
        tokens=["<unk>", "<s>", "</s>", "▁", "x"], token_type=[2, 3, 3, 1, 1], scores=[0.0] * 5
    )
    assert pieces(tokenizer_from(metadata), "xñ") == ["▁", "x", "<unk>", "<unk>"]


def test_a_space_goes_before_a_text_and_after_a_special_token(spm):
    assert pieces(spm, "x") == ["▁", "x"]
    assert pieces(spm, " x") == ["▁▁", "x"]
    assert pieces(spm, "<s>x</s>x") == ["<s>", "▁", "x", "</s>", "▁", "x"]
    assert spm.decode(spm.encode("x")) == "x"
    assert spm.decode(spm.encode(" x")) == " x"
    assert spm.decode(spm.encode("<s>x")) == "<s> x"  # as llama.cpp has it
    no_prefix = tokenizer_from(spm_metadata(add_space_prefix=False))
    assert pieces(no_prefix, "<s>x x") == ["<s>", "x", "▁", "x"]
    assert no_prefix.decode(no_prefix.encode(" x")) == " x"


def test_a_stream_goes_on_after_a_prompt_and_keeps_its_first_space(spm):
    stream = spm.stream()
    assert [stream.push(i) for i in spm.encode("hello x")] == [" h", "el", "l", "o", " ", "x"]


def test_ids_of_the_special_tokens_have_llama_cpps_defaults(spm):
    assert (spm.bos_id, spm.eos_id, spm.vocab.roles["unk"]) == (1, 2, 0)
    assert spm.encode("x", add_special=True)[0] == 1
    assert spm.encode("", add_special=True) == [1]
    both = tokenizer_from(spm_metadata(add_bos_token=False, add_eos_token=True, eos_token_id=0))
    assert both.encode("", add_special=True) == [0]


def test_special_tokens_by_kind():
    tokenizer = tokenizer_from(with_tokens(("<u>", USER_DEFINED), ("<c>", CONTROL), ("  ", USER_DEFINED)))
    assert pieces(tokenizer, "x<u>x", parse_special=False) == ["▁", "x", "<u>", "▁", "x"]
    assert "<c>" in pieces(tokenizer, "x<c>")
    assert "<c>" not in pieces(tokenizer, "x<c>", parse_special=False)
    assert pieces(tokenizer, "x  x", parse_special=False) == ["▁", "x", "  ", "▁", "x"]


@pytest.mark.parametrize("name", ["Phi-3-mini", "microsoft phi3"])
def test_phi_3s_special_tokens_swallow_the_white_space_after_them(name):
    metadata = with_tokens(("<|end|>", CONTROL), ("</S>", USER_DEFINED))
    metadata["general.name"] = name
    tokenizer = tokenizer_from(metadata)
    assert pieces(tokenizer, "x <|end|> \n x") == ["▁", "x", "▁", "<|end|>", "▁", "x"]
    assert pieces(tokenizer, "<|end|> \t<|end|> ") == ["<|end|>", "<|end|>"]
    assert pieces(tokenizer, "</s> x</S> x") == ["</s>", "▁", "x", "</S>", "▁", "x"]
    assert pieces(tokenizer, "<s> x") == ["<s>", "▁▁", "x"]  # but not <s>, <unk> and <|endoftext|>
    metadata["general.name"] = "Llama"
    assert pieces(tokenizer_from(metadata), "<|end|> x") == ["<|end|>", "▁▁", "x"]


@pytest.mark.parametrize(
    ("key", "value", "mask"),
    [
        ("tokenizer.ggml.pre", "jina-v2-code", "<mask>"),
        ("general.architecture", "nomic-bert-moe", "<mask>"),
        ("general.name", "ModernBERT modern-bert", "[MASK]"),
    ],
)
def test_a_mask_swallows_the_white_space_before_it(key, value, mask):
    metadata = with_tokens((mask, CONTROL))
    assert pieces(tokenizer_from(metadata), f"x {mask} x") == ["▁", "x", "▁", mask, "▁▁", "x"]
    metadata[key] = value
    assert pieces(tokenizer_from(metadata), f"x {mask} x") == ["▁", "x", mask, "▁▁", "x"]


# the definition


def naive(text: str, scores: dict[str, float]) -> list[str]:
    """Merge the neighbours whose text has the best score, of those the leftmost, one merge at a time."""
    symbols = list(text)
    while True:
        found = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not found:
            return symbols
        i = min(found)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


PARTS = st.text("ab▁", min_size=2, max_size=4)


@given(st.dictionaries(PARTS, st.integers(-9, 0)), st.text("ab ", max_size=40))
@settings(max_examples=500, deadline=None)
def test_tokens_follow_the_definition_for_any_vocabulary(parts, text):
    """Also where tokens have spaces inside, across which words must not be cut apart."""
    words = {"a": 0.0, "b": 0.0, "▁": 0.0} | {part: float(score) for part, score in parts.items()}
    tokenizer = tokenizer_from(spm_metadata(words, add_space_prefix=False))
    assert pieces(tokenizer, text) == naive(text.replace(" ", "▁"), words)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words_are_cut_before_spaces_that_nothing_merges_across():
    assert space_cutter(["▁a", "▁▁"])("a▁b▁▁c") == ["a", "▁b", "▁▁c"]
    assert space_cutter([">▁<", "▁a", "]▁^"])("a>▁<▁b]▁a") == ["a>▁<", "▁b]▁a"]
    assert space_cutter([])("▁a") == ["▁a"]


@pytest.mark.parametrize("text", ["x" * 10**6, "hello" * 20_000, " " * 10**5, "é€" * 50_000])
def test_a_long_word_is_no_quadratic_loop(spm, text):
    assert spm.decode(spm.encode(text)) == text  # a quadratic loop takes hours


@given(st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
@settings(deadline=None)
def test_decode_gives_the_text_back(text):
    tokenizer = tokenizer_from(spm_metadata())
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


# refusals

N = 259 + len(WORDS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, r"no tokenizer\.ggml\.scores; this kind of vocabulary needs it"),
        ({"scores": [0.0] * (N - 1)}, rf"scores has {N - 1} entries; tokenizer\.ggml\.tokens has {N}"),
        ({"scores": ["a"] * N}, r"scores is an array of str; allowed: numbers"),
        (
            {"scores": array("f", [0.0] * (N - 1) + [float("nan")])},
            rf"scores has nan at {N - 1}; allowed: finite",
        ),
        ({"scores": array("f", [float("-inf")] + [0.0] * (N - 1))}, r"scores has -inf at 0"),
        ({"add_space_prefix": 1}, r"add_space_prefix is 1; allowed: true or false"),
        ({"token_type": [9] * N}, r"token_type has 9 at 0; allowed: 0 to 6"),
        ({"unknown_token_id": N}, rf"unknown_token_id is {N}; allowed: the id of a token, 0 to {N - 1}"),
        (
            {"tokens": ["a"], "token_type": [1], "scores": [0.0]},
            r"no tokenizer\.ggml\.bos_token_id; a text begins",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(value),
)
def test_contradictory_metadata_is_refused_by_name(changes, message):
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from(spm_metadata(**changes))


def test_a_text_that_nothing_stands_for_is_refused():
    metadata = spm_metadata(
        tokens=["a"], token_type=[1], scores=[0.0], add_bos_token=False, add_space_prefix=False
    )
    tokenizer = tokenizer_from(metadata)
    tokenizer.vocab.roles.pop("unk", None)
    assert tokenizer.encode("a") == [0]
    with pytest.raises(TokenizerError, match=r"tokens has no <0x62>, and the file no .*unknown_token_id"):
        tokenizer.encode("b")
