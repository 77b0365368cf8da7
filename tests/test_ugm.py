"""Unigram vocabularies (`t5`): against Hugging Face's model and the definition, the table of replacements."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Peer
from tokenizers import models

from pagelm.errors import TokenizerError
from pagelm.tokenizer import Tokenizer, tokenizer_from

WORDS = {
    "▁": -2.0, "a": -3.0, "b": -3.5, "c": -4.0, "é": -5.0, "ab": -5.0, "bc": -5.2, "abc": -8.1, "▁a": -4.2,
    "▁abc": -9.0, "ca": -6.0,
}  # fmt: skip


def ugm_metadata(words: dict[str, float] = WORDS, **changes: Any) -> dict[str, Any]:
    tokens = ["<pad>", "</s>", "<unk>", *words, "<own>"]
    keys = {
        "model": "t5",
        "tokens": tokens,
        "token_type": [3, 3, 2, *[1] * len(words), 4],
        "scores": [0.0, 0.0, 0.0, *words.values(), 0.0],
    } | changes
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.vocab.texts[i] for i in tokenizer.encode(text, **options)]


@given(st.text("abcéx", max_size=30))
@settings(max_examples=500, deadline=None)
def test_tokens_are_those_of_hugging_faces_unigram_model(text):
    """The peer joins unknown characters too, and gives them the same penalty."""
    tokenizer = tokenizer_from(ugm_metadata())
    table = [(token, WORDS.get(token, 0.0)) for token in tokenizer.vocab.texts[:-1]]
    peer = Peer(models.Unigram(table, unk_id=2, byte_fallback=False))
    assert tokenizer.encode(text, parse_special=False) == peer.encode(text).ids


def test_a_run_of_unknown_characters_is_one_token():
    assert pieces(tokenizer_from(ugm_metadata()), "axyzb") == ["a", "<unk>", "b"]


def test_eos_goes_after_a_text_by_default():
    tokenizer = tokenizer_from(ugm_metadata())
    assert pieces(tokenizer, "a", add_special=True) == ["a", "</s>"]
    assert pieces(tokenizer_from(ugm_metadata(add_eos_token=False)), "a", add_special=True) == ["a"]


@pytest.mark.parametrize(
    ("prefix", "merge", "text", "want"),
    [
        (False, False, " a  b", "▁a▁▁b"),
        (True, False, "a b", "▁a▁b"),
        (True, False, " a", "▁▁a"),  # as llama.cpp has it
        (False, True, "  a   b ", "▁a▁b"),
        (True, True, "a", "▁a"),
        (True, True, "  ", ""),
    ],
)
def test_spaces_are_escaped_merged_and_put_first(prefix, merge, text, want):
    tokenizer = tokenizer_from(ugm_metadata(add_space_prefix=prefix, remove_extra_whitespaces=merge))
    assert "".join(pieces(tokenizer, text)) == want


def test_decoding_takes_the_first_space_away():
    tokenizer = tokenizer_from(ugm_metadata(add_space_prefix=True, remove_extra_whitespaces=True))
    assert tokenizer.decode(tokenizer.encode("abc ab")) == "abc ab"


def charsmap(pairs: dict[str, str]) -> list[int]:
    """A trie as the file has it, built by trying bases; each is used once, since only bytes are checked.

    A node: bits 0 to 7 its byte, bit 8 whether a replacement ends here (it lies at the base), from bit 10 on
    base ^ node. A replacement's node has bit 31 and the place of its text.
    """
    nodes = [0] * 4096
    taken, bases = {0}, set[int]()
    texts = bytearray()
    keys = {key.encode(): value.encode() for key, value in pairs.items()}

    def place(node: int, byte: int, prefix: bytes) -> None:
        after = sorted(
            {key[len(prefix)] for key in keys if key.startswith(prefix) and len(key) > len(prefix)}
        )
        ends = prefix in keys
        slots = [0] * ends + after
        free = (b for b in range(1, 4096) if b not in bases and not any(b ^ slot in taken for slot in slots))
        base = next(free)
        bases.add(base)
        taken.update(base ^ slot for slot in slots)
        nodes[node] = byte | ends << 8 | (base ^ node) << 10
        if ends:
            nodes[base] = 1 << 31 | len(texts)
            texts.extend(keys[prefix] + b"\0")
        for next_byte in after:
            place(base ^ next_byte, next_byte, prefix + bytes([next_byte]))

    place(0, 0, b"")
    return list(struct.pack("<I4096I", 4 * 4096, *nodes) + texts)


def test_replacements_are_the_longest_that_match():
    table = charsmap({"ﬁ": "fi", "A": "a", "AB": "c", "e\u0301": "é", "\u3000": " ", "x": ""})
    tokenizer = tokenizer_from(ugm_metadata(precompiled_charsmap=table))
    normalised = tokenizer._normalized
    assert normalised("ABA aﬁ") == "ca▁afi"
    assert normalised("ee\u0301\u3000b") == "eé▁b"
    assert normalised("axb\0") == "ab\0"
    assert normalised("日本") == "日本"
    signed = [byte - 256 if byte > 127 else byte for byte in table]  # as some files have it
    assert tokenizer_from(ugm_metadata(precompiled_charsmap=signed))._normalized("AB") == "c"


def test_what_begins_a_user_defined_token_is_not_replaced():
    tokenizer = tokenizer_from(ugm_metadata(precompiled_charsmap=charsmap({"<": "a", "o": "b"})))
    assert tokenizer._normalized("<o<x") == "<o<x"
    assert pieces(tokenizer, "a<own>o") == ["a", "<own>", "b"]


N = 4 + len(WORDS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": None}, r"no tokenizer\.ggml\.scores"),
        ({"unknown_token_id": N}, rf"unknown_token_id is {N}; allowed"),
        ({"precompiled_charsmap": [1, 2]}, r"precompiled_charsmap has 2 bytes"),
        ({"precompiled_charsmap": [8, 0, 0, 0, *[0] * 8]}, r"has 12 bytes and names a trie of 8"),
        ({"precompiled_charsmap": "abc"}, r"precompiled_charsmap is str; allowed: an array of bytes"),
        ({"precompiled_charsmap": [1.5]}, r"precompiled_charsmap is list; allowed: an array of bytes"),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(value),
)
def test_contradictory_metadata_is_refused_by_name(changes, message):
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from(ugm_metadata(**changes))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([0x400, 0], "leads to node 96; it has 2"),
        # 1 ^ "a" is 0x60: a leaf whose replacement begins beyond the end.
        ([0x400, *[0] * 95, 0x100 | 0x61 | 1 << 10, 1 << 31 | 99], "no replacement that ends at 99"),
    ],
)
def test_a_table_that_leads_astray_is_refused_when_it_does(nodes, message):
    data = list(struct.pack(f"<I{len(nodes)}I", 4 * len(nodes), *nodes) + b"x\0")
    tokenizer = tokenizer_from(ugm_metadata(precompiled_charsmap=data))
    with pytest.raises(TokenizerError, match=message):
        tokenizer.encode("a")


def test_a_long_text_is_no_quadratic_loop():
    tokenizer = tokenizer_from(ugm_metadata())
    assert tokenizer.decode(tokenizer.encode("abc" * 50_000)) == "abc" * 50_000
