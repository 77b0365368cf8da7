"""WordPiece vocabularies (`bert`): against Hugging Face's BERT tokenizer, and by hand."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Peer
from tokenizers import models, normalizers, pre_tokenizers

from pagelm.errors import TokenizerError
from pagelm.tokenizer import Tokenizer, tokenizer_from

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
# As a file has them: "▁" begins a word, and what goes on with one has no "##".
WORDS = [
    "▁un",
    "▁aff",
    "able",
    "aff",
    "▁a",
    "a",
    "b",
    "▁b",
    "c",
    "▁c",
    "▁e",
    "e",
    "▁?",
    "▁!",
    "▁日",
    "▁$",
    "▁ß",
    "ab",
]


def wpm_metadata(**changes: Any) -> dict[str, Any]:
    keys = {
        "model": "bert",
        "tokens": [*SPECIALS, *WORDS],
        "token_type": [3] * 4 + [1] * len(WORDS),
        "bos_token_id": 2,
        "seperator_token_id": 3,
        "unknown_token_id": 1,
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.vocab.texts[i] for i in tokenizer.encode(text, **options)]


@pytest.fixture
def wpm() -> Tokenizer:
    return tokenizer_from(wpm_metadata())


CHARS = st.sampled_from("aabbcceEÉé\u0301 ?!$日本ß\t\n\u3000\u200b\x07x")


@given(st.lists(st.one_of(CHARS, st.sampled_from(["un", "aff", "able"]))).map("".join))
@settings(max_examples=500, deadline=None)
def test_tokens_are_those_of_hugging_faces_bert(text):
    """But for symbols: like llama.cpp's, only ASCII ones are words of their own, and Rust's are the same."""
    ours = tokenizer_from(wpm_metadata())
    vocabulary = {
        (text if i < 4 else text[1:] if text[0] == "▁" else "##" + text): i
        for i, text in enumerate(ours.vocab.texts)
    }
    peer = Peer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    peer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True
    )
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    assert ours.encode(text, parse_special=False) == peer.encode(text).ids


def test_the_longest_token_is_taken_again_and_again(wpm):
    assert pieces(wpm, "unaffable") == ["▁un", "aff", "able"]
    assert pieces(wpm, "abc") == ["▁a", "b", "c"]  # "▁ab" is none; "ab" does not begin a word


def test_a_word_that_no_tokens_make_is_unknown_altogether(wpm):
    assert pieces(wpm, "abcx ab") == ["[UNK]", "▁a", "b"]
    assert pieces(wpm, "x") == ["[UNK]"]


def test_bos_and_separator_always_go_around(wpm):
    assert pieces(wpm, "a", add_special=True) == ["[CLS]", "▁a", "[SEP]"]
    assert pieces(wpm, "[CLS]a") == ["[CLS]", "▁a"]
    assert "[CLS]" not in pieces(wpm, "[CLS]a", parse_special=False)


def test_case_and_accents_may_stay():
    tokenizer = tokenizer_from(
        wpm_metadata(**{"normalizer.lowercase": False, "tokens": [*SPECIALS, *WORDS[:-1], "▁É"]})
    )
    assert pieces(tokenizer, "É A") == ["▁É", "[UNK]"]
    assert unicodedata.is_normalized("NFC", "É")


def test_decoding_joins_and_may_tidy(wpm):
    ids = wpm.encode("a ? unaffable!")
    assert wpm.decode(ids) == " a ? unaffable !"
    assert wpm.decode(ids, clean_spaces=True) == " a? unaffable!"


@pytest.mark.parametrize("key", ["bos_token_id", "seperator_token_id", "unknown_token_id"])
def test_a_vocabulary_too_small_for_the_default_ids_must_name_its_own(key):
    with pytest.raises(TokenizerError, match=rf"no tokenizer\.ggml\.{key}"):
        tokenizer_from(wpm_metadata(**{key: None}))
