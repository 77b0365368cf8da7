"""The tokenizer against llama.cpp's ids, its special tokens, its limits, and what it refuses."""

import json
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocab import BYTE, CONTROL, UNKNOWN, UNUSED, USER_DEFINED, small_metadata, tokenizer_of, with_token

from pagelm.errors import TokenizerError
from pagelm.string_array import StringArray
from pagelm.tokenizer import Tokenizer, merging, tokenizer_from
from pagelm.tokenizer.merging import NEVER
from pagelm.tokenizer.pres import PRES
from pagelm.tokenizer.text import BYTE_ALPHABET

DATA = Path(__file__).parent.parent / "e2e" / "data"
VECTORS, GEMMA3_VECTORS = (
    json.loads((DATA / f"{name}-tokens.json").read_text("utf-8")) for name in ("smollm2", "gemma3")
)


@pytest.fixture(scope="session")
def smollm(model_path) -> Tokenizer:
    return tokenizer_of(model_path)


@pytest.fixture(scope="session")
def gemma3(gemma3_path) -> Tokenizer:
    return tokenizer_of(gemma3_path)


@pytest.fixture
def small() -> Tokenizer:
    return tokenizer_from(small_metadata())


def pieces(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.vocab.texts[i] for i in tokenizer.encode(text, **options)]


# llama.cpp's ids


@pytest.mark.parametrize(
    ("name", "file"),
    [
        pytest.param("smollm", VECTORS, marks=pytest.mark.model),
        pytest.param("gemma3", GEMMA3_VECTORS, marks=pytest.mark.gemma3),
    ],
    ids=["smollm2", "gemma3"],
)
def test_all_ids_are_llama_cpps(request, name, file):
    tokenizer = request.getfixturevalue(name)
    vectors = file["vectors"]
    assert len(vectors) == 140
    for vector in vectors:
        text, ids = vector["text"], vector["ids"]
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.encode(text, parse_special=False) == vector.get("idsNoSpecial", ids), text
        assert tokenizer.decode(ids) == vector.get("detokenized", text)


@pytest.mark.model
def test_special_ids_are_llama_cpps(smollm):
    assert (smollm.bos_id, smollm.eos_id, smollm.eot_id) == (VECTORS["bos"], VECTORS["eos"], VECTORS["eot"])
    assert smollm.add_bos == VECTORS["addBos"]
    texts = {smollm.vocab.texts[i] for i in smollm.eog_ids}
    assert texts == {"<|endoftext|>", "<|im_end|>", "<reponame>"}
    assert smollm.n_vocab == 49152


@pytest.mark.gemma3
def test_special_ids_of_gemma3_are_llama_cpps(gemma3):
    file = GEMMA3_VECTORS
    assert (gemma3.bos_id, gemma3.eos_id, gemma3.eot_id) == (file["bos"], file["eos"], file["eot"])
    assert gemma3.add_bos == file["addBos"]
    # </s> is HTML to Gemma, yet ends its texts in llama.cpp (special_eog_ids in src/llama-vocab.cpp)
    assert {gemma3.vocab.texts[i] for i in gemma3.eog_ids} == {"<eos>", "<end_of_turn>", "</s>"}
    assert gemma3.n_vocab == 262144


@pytest.mark.model
@pytest.mark.parametrize(
    "text",
    ["a" * 10**6, " " * 10**6, "\n" * 10**6 + "x", "😀" * 250_000, "7" * 10**6, "etaoin_shrdlu" * 77_000],
    ids=["a", "spaces", "newlines", "emoji", "digits", "no-whitespace"],
)
def test_a_megabyte_of_anything_encodes_in_seconds(smollm, text):
    start = time.process_time()
    ids = smollm.encode(text)
    assert time.process_time() - start < 20  # 0.3 to 2 s on an idle core; a quadratic loop takes hours
    assert smollm.decode(ids) == text


# merging


def naive_merge(symbols: list[str], ranks: dict[str, int]) -> list[str]:
    """The definition: the lowest rank, of its pairs the leftmost, one merge at a time."""
    symbols = list(symbols)
    while True:
        found = [(ranks[f"{a} {b}"], i) for i, (a, b) in enumerate(pairwise(symbols)) if f"{a} {b}" in ranks]
        if not found:
            return symbols
        i = min(found)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@given(
    st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.text("ab", min_size=1, max_size=3))),
    st.text("ab", max_size=40),
)
@settings(max_examples=500, deadline=None)
def test_merge_follows_the_definition_for_any_table(pairs, word):
    """Also tables that no training gives: a merge ranked before those that make its parts."""
    ranks = {pair: rank for rank, pair in enumerate(dict.fromkeys(f"{a} {b}" for a, b in pairs))}
    assert merging.merge(list(word), rank_in(ranks)) == naive_merge(list(word), ranks)


def rank_in(ranks: dict[str, int]) -> Callable[[str, str], float]:
    return lambda left, right: ranks.get(f"{left} {right}", NEVER)


class CountingRanks(dict):
    lookups = 0

    def get(self, key, default=None):
        self.lookups += 1
        return super().get(key, default)


@pytest.mark.parametrize("word", ["a" * 20_000, "ab" * 10_000, "abcd" * 5000, "b" * 20_000])
def test_merging_looks_each_pair_up_a_bounded_number_of_times(word):
    ranks = CountingRanks(
        {pair: i for i, pair in enumerate(["a a", "aa aa", "a b", "ab ab", "c d", "ab cd"])}
    )
    merging.merge(list(word), rank_in(ranks))
    assert ranks.lookups < 4 * len(word)  # n - 1 at first, two for each of at most n - 1 merges


def test_merges_by_rank_and_not_by_length(small):
    assert pieces(small, " the") == ["Ġthe"]
    assert pieces(small, "aaaaaaa") == ["aaaa", "aa", "a"]
    assert pieces(small, "hell") == ["he", "ll"]
    assert pieces(small, "\0\0") == ["ĀĀ"]
    assert pieces(small, "é") == ["Ã", "©"]


def test_of_a_merge_that_stands_twice_the_first_counts():
    twice = ["h e", "Ġ t", "e l", "h e", "Ġt he"]
    metadata = small_metadata(merges=twice)
    metadata["tokenizer.ggml.tokens"][-1] = "el"
    assert pieces(tokenizer_from(metadata), "hel") == ["he", "l"]


def test_a_merge_into_no_token_falls_back_to_its_ascii_characters():
    """llama.cpp looks the bytes of such a text up one by one; only ASCII ones can be found."""
    tokenizer = tokenizer_from(small_metadata(merges=["x y", "Ġ z"]))
    assert pieces(tokenizer, "xy z") == ["x", "y", "z"]


def test_a_byte_without_token_is_left_out():
    metadata = small_metadata()
    metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("q")] = "[gone]"
    assert pieces(tokenizer_from(metadata), "aqb") == ["a", "b"]


def test_a_pre_tokenizer_may_take_whole_words_and_ask_for_bos(monkeypatch):
    monkeypatch.setitem(PRES, "whole", replace(PRES["gpt-2"], ignore_merges=True, add_bos=True))
    metadata = with_token("hell", 1, pre="whole")
    assert pieces(tokenizer_from(metadata), " the hell") == ["Ġthe", "Ġ", "he", "ll"]
    assert pieces(tokenizer_from(metadata), "hell", add_special=True) == ["<|im_start|>", "hell"]
    metadata["tokenizer.ggml.pre"] = "gpt-2"
    assert pieces(tokenizer_from(metadata), "hell", add_special=True) == ["he", "ll"]


def test_words_are_remembered_up_to_a_bound(small, monkeypatch):
    monkeypatch.setattr(merging, "CACHE_WORDS", 10)
    text = " ".join(f"w{chr(97 + i)}x" for i in range(26))
    before = small.encode(text)
    assert len(small._words) <= 10
    assert small.encode(text) == before
    small.encode("z" * 100)
    assert "z" * 100 not in small._words


# special tokens


def test_empty_text_has_no_ids(small):
    assert small.encode("") == []
    assert small.encode("", parse_special=False) == []
    assert small.decode([]) == ""


def test_control_tokens_are_parsed_by_flag(small):
    text = "<|im_start|>a<|im_end|>"
    assert small.encode(text) == [1, small.vocab.ids["a"], 2]
    without = small.encode(text, parse_special=False)
    assert not {0, 1, 2} & set(without)
    assert small.decode(without) == small.decode(small.encode(text)) == text


@pytest.mark.parametrize(
    ("kind", "parsed", "not_parsed"),
    [(CONTROL, True, False), (UNKNOWN, True, False), (USER_DEFINED, True, True), (1, False, False)],
)
def test_kind_decides_whether_a_text_is_a_token(kind, parsed, not_parsed):
    tokenizer = tokenizer_from(with_token("[X]", kind))
    token = tokenizer.n_vocab - 1
    assert (token in tokenizer.encode("a[X]b")) == parsed
    assert (token in tokenizer.encode("a[X]b", parse_special=False)) == not_parsed


def test_the_longest_special_text_is_found_first():
    metadata = with_token("<|im", CONTROL)
    assert pieces(tokenizer_from(metadata), "<|im<|im_end|>") == ["<|im", "<|im_end|>"]
    # "b><c" begins later but is longer, and so takes the characters from "<ab>".
    metadata = with_token("<ab>", CONTROL)
    metadata["tokenizer.ggml.tokens"].append("b><cd")
    metadata["tokenizer.ggml.token_type"].append(CONTROL)
    assert pieces(tokenizer_from(metadata), "<ab><cd") == ["<", "a", "b><cd"]
    # Length is in bytes: "日a" has 4, "abc" has 3.
    metadata = with_token("abc", CONTROL)
    metadata["tokenizer.ggml.tokens"].append("日a")
    metadata["tokenizer.ggml.token_type"].append(CONTROL)
    assert pieces(tokenizer_from(metadata), "日abc") == ["日a", "b", "c"]


def test_words_are_cut_apart_from_specials(small):
    assert pieces(small, " <|im_end|> the") == ["Ġ", "<|im_end|>", "Ġthe"]


@pytest.mark.parametrize("bos", [True, False, None])
@pytest.mark.parametrize("eos", [True, False, None])
def test_bos_and_eos_are_added_as_the_file_says(bos, eos):
    tokenizer = tokenizer_from(small_metadata(add_bos_token=bos, add_eos_token=eos))
    a = tokenizer.vocab.ids["a"]
    assert tokenizer.encode("a", add_special=True) == [1] * bool(bos) + [a] + [2] * bool(eos)
    assert tokenizer.encode("", add_special=True) == [1] * bool(bos) + [2] * bool(eos)
    assert tokenizer.encode("a") == [a]


def test_end_tokens_come_from_ids_and_from_texts():
    assert tokenizer_from(small_metadata()).eog_ids == {0, 2}
    assert tokenizer_from(small_metadata(eos_token_id=5)).eog_ids == {0, 2, 5}
    assert tokenizer_from(small_metadata(eos_token_id=None)).eos_id is None
    with_eot = tokenizer_from(small_metadata(eot_token_id=9))
    assert (with_eot.eot_id, with_eot.eog_ids) == (9, {0, 2, 9})
    with_turn = tokenizer_from(with_token("<end_of_turn>", 1))
    assert with_turn.n_vocab - 1 in with_turn.eog_ids
    # A token that ends a generation is a control token, whatever the file calls it.
    assert with_turn.n_vocab - 1 in with_turn.encode("a<end_of_turn>")
    assert with_turn.n_vocab - 1 not in with_turn.encode("a<end_of_turn>", parse_special=False)


def test_harmony_end_of_message_does_not_end_the_answer():
    metadata = small_metadata()
    metadata["tokenizer.ggml.tokens"] += ["<|return|>", "<|call|>", "<|end|>", "<|channel|>"]
    metadata["tokenizer.ggml.token_type"] += [CONTROL] * 4
    tokenizer = tokenizer_from(metadata)
    ids = tokenizer.vocab.ids
    assert {ids["<|return|>"], ids["<|call|>"]} <= tokenizer.eog_ids
    assert ids["<|end|>"] not in tokenizer.eog_ids
    assert ids["<|channel|>"] in tokenizer.encode("<|channel|>", parse_special=False)


# bytes and text


@pytest.mark.parametrize(
    ("text", "kind", "want"),
    [
        ("Ġhi", 1, b" hi"),
        ("<|x|>", CONTROL, b"<|x|>"),
        ("Ġhi", USER_DEFINED, "Ġhi".encode()),
        ("[PAD9]", UNUSED, b""),
        ("<0xE9>", BYTE, b"\xe9"),
        ("a b", 1, b"a b"),  # " " is no character of the alphabet: the text stands for itself
        ("日本", 1, "日本".encode()),
        ("bad\udcff", CONTROL, b"bad\xff"),  # as the file has it
    ],
)
def test_piece_gives_the_bytes_of_a_token(text, kind, want):
    metadata = with_token("placeholder", kind)
    metadata["tokenizer.ggml.tokens"][-1] = text
    tokenizer = tokenizer_from(metadata)
    assert tokenizer.piece(tokenizer.n_vocab - 1) == want


@pytest.mark.parametrize(
    ("text", "tidy"),
    [
        ("a , b . c ! d ?", "a, b. c! d?"),
        ("a  ,", "a ,"),
        ("don 't it 's we 're I 'm they 've he 'll I 'd", "don 't it's we're I'm they've he 'll I 'd"),
        ("a ' b", "a'b"),
        ("a ' ' b", "a'' b"),
        (" ?", "?"),
    ],
)
def test_spaces_are_tidied_on_request_where_llama_cpp_does_it(text, tidy):
    gpt2 = tokenizer_from(small_metadata(pre="gpt-2"))
    ids = gpt2.encode(text)
    assert gpt2.decode(ids) == text
    assert gpt2.decode(ids, clean_spaces=True) == tidy
    assert tokenizer_from(small_metadata(pre="smollm")).decode(ids, clean_spaces=True) == text


def test_pieces_of_the_byte_tokens_are_all_bytes(small):
    assert sorted(small.piece(i) for i in range(3, 259)) == [bytes([byte]) for byte in range(256)]


@given(st.text())
@settings(deadline=None)
def test_decode_gives_the_text_back(text):
    tokenizer = tokenizer_from(small_metadata())
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False)) == text


@given(st.lists(st.integers(0, 267)))
@settings(deadline=None)
def test_stream_gives_what_decode_gives_for_any_ids(ids):
    tokenizer = tokenizer_from(small_metadata())
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.flush() == tokenizer.decode(ids)


@given(st.text())
@settings(deadline=None)
def test_stream_of_valid_text_holds_no_broken_character(text):
    """One byte a token: the text comes character by character, each as soon as it is complete."""
    tokenizer = tokenizer_from(small_metadata(merges=["x y"]))
    stream = tokenizer.stream()
    byte = tokenizer.vocab.ids
    for char in text:
        *first, last = [byte[BYTE_ALPHABET[b]] for b in char.encode()]
        assert [stream.push(i) for i in first] == [""] * len(first)
        assert stream.push(last) == char
    assert stream.flush() == ""


def test_stream_ends_with_one_mark_for_a_cut_character_and_starts_afresh(small):
    stream = small.stream()
    euro = small.encode("€")
    assert [stream.push(i) for i in euro[:2]] == ["", ""]
    assert stream.flush() == "\ufffd"
    assert "".join(map(stream.push, euro)) == "€"
    assert stream.flush() == ""


def test_a_special_token_after_a_cut_character_is_written_whole(small):
    stream = small.stream()
    assert stream.push(small.encode("€")[0]) == ""
    assert stream.push(2) == "\ufffd<|im_end|>"


# refusals

TOKENS = small_metadata()["tokenizer.ggml.tokens"]
N = len(TOKENS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, r"no tokenizer\.ggml\.model"),
        ({"model": "gpt3"}, r"model 'gpt3' is not supported; supported: bert, .*gpt2"),
        ({"model": "rwkv"}, r"model 'rwkv' \(RWKV's own kind\) is not supported"),
        ({"model": "none"}, r"model 'none' \(the file holds no vocabulary: .* is not supported"),
        ({"model": 3}, r"model 3 is not supported"),
        ({"pre": None}, r"pre is None; allowed"),
        ({"pre": "gpt-5"}, r"pre 'gpt-5' is not supported; .*gpt-2"),
        ({"tokens": None}, r"no tokenizer\.ggml\.tokens"),
        ({"tokens": []}, r"tokens is empty"),
        ({"tokens": "abc"}, r"tokens is str; allowed: an array of strings"),
        ({"tokens": array("i", [1, 2])}, r"tokens is an array of int; allowed: strings"),
        ({"tokens": ["a"] * N}, r"tokens has 'a' twice, as tokens 0 and 1"),
        ({"merges": None}, r"no tokenizer\.ggml\.merges"),
        ({"merges": []}, r"merges is empty"),
        ({"merges": ["a b", "ab"]}, r"merges has 'ab' at 1"),
        ({"merges": ["a b c"]}, r"merges has 'a b c' at 0"),
        ({"merges": [" b"]}, r"merges has ' b' at 0"),
        ({"merges": ["b "]}, r"merges has 'b ' at 0"),
        ({"merges": [""]}, r"merges has '' at 0"),
        ({"token_type": [1] * (N - 1)}, rf"token_type has {N - 1} entries; tokenizer\.ggml\.tokens has {N}"),
        ({"token_type": [1] * (N + 1)}, rf"token_type has {N + 1} entries"),
        ({"token_type": [1.0] * N}, r"token_type is an array of float; allowed: integers"),
        ({"token_type": 1}, r"token_type is int; allowed: an array of numbers"),
        ({"token_type": [6] * N}, r"token 0 is a byte token, but its text is '<\|endoftext\|>'"),
        ({"token_type": [1] * (N - 1) + [7]}, rf"token_type has 7 at {N - 1}; allowed: 0 to 6"),
        ({"token_type": [-1] * N}, r"token_type has -1 at 0"),
        ({"scores": [0.0] * (N - 1)}, rf"scores has {N - 1} entries"),
        ({"merges": ["h e", "x yy"]}, r"merges has 'x yy' at 1, but 'yy' is not in tokenizer\.ggml\.tokens"),
        ({"bos_token_id": N}, rf"bos_token_id is {N}; allowed: the id of a token, 0 to {N - 1}"),
        ({"eos_token_id": -1}, r"eos_token_id is -1"),
        ({"eot_token_id": 2**32 - 1}, r"eot_token_id is 4294967295"),
        ({"eos_token_id": True}, r"eos_token_id is True"),
        ({"eos_token_id": "2"}, r"eos_token_id is '2'"),
        ({"add_bos_token": 1}, r"add_bos_token is 1; allowed: true or false"),
        ({"add_bos_token": True, "bos_token_id": None}, r"add_bos_token is true, but .* no .*bos_token_id"),
        ({"add_eos_token": True, "eos_token_id": None}, r"add_eos_token is true, but .* no .*eos_token_id"),
    ],
    ids=lambda value: None if isinstance(value, str) else ",".join(value),
)
def test_contradictory_metadata_is_refused_by_name(changes, message):
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from(small_metadata(**changes))


def test_what_is_at_the_edge_of_the_refusals_is_accepted():
    last = small_metadata(bos_token_id=N - 1, scores=[0.0] * N, token_type=None, padding_token_id=N + 7)
    assert tokenizer_from(last).bos_id == N - 1  # a padding id is not used, so it may be wrong
    odd = small_metadata(token_type=array("i", [3, 3, 3, *[0] * (N - 3)]))  # no kind: writes nothing
    assert tokenizer_from(odd).piece(N - 1) == b""


def test_an_empty_token_gets_llama_cpps_name():
    metadata = with_token("", 1)
    assert tokenizer_from(metadata).vocab.texts[-1] == f"[EMPTY_{N}]"


def test_string_arrays_of_the_parser_serve_as_lists():
    lists = small_metadata()
    arrays = {
        key: StringArray.of(value) if key.endswith(("tokens", "merges")) else value
        for key, value in lists.items()
    }
    assert tokenizer_from(arrays).encode(" the hello") == tokenizer_from(lists).encode(" the hello")


@pytest.mark.parametrize("token", [-1, N, 2**40])
def test_an_id_that_is_not_there_is_refused(small, token):
    for call in (small.piece, small.stream().push, lambda i: small.decode([0, i])):
        with pytest.raises(
            TokenizerError, match=rf"token id {token} is not in the vocabulary; allowed: 0 to {N - 1}"
        ):
            call(token)


@pytest.mark.parametrize("text", ["a\ud800", "\udfff", "é\udc80"])
def test_a_lone_surrogate_is_refused_with_its_place(small, text):
    with pytest.raises(TokenizerError, match=rf"at character {len(text) - 1}"):
        small.encode(text)
