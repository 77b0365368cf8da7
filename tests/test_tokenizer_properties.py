"""Whatever a file's tokenizer metadata hold, a tokenizer is made or a TokenizerError says why not."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocab import small_metadata
from test_spm import spm_metadata
from test_ugm import ugm_metadata
from test_wpm import wpm_metadata

from pagelm.errors import TokenizerError
from pagelm.tokenizer import MODELS, tokenizer_from

PREFIX = "tokenizer.ggml."
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
GEMMA4 = small_metadata(
    model="gemma4",
    pre=None,
    tokens=["<bos>", "<eos>", *BYTES, "\u2581", "a", "\u2581a", "\n\n"],
    token_type=[3, 3, *[6] * 256, 1, 1, 1, 1],
    merges=["\u2581 a"],
    bos_token_id=0,
    eos_token_id=1,
)
FAMILIES = {
    "gpt2": small_metadata(),
    "gemma4": GEMMA4,
    "whitespace": GEMMA4 | {PREFIX + "model": "whitespace", PREFIX + "pre": "whitespace"},
    "llama": spm_metadata(),
    "t5": ugm_metadata(),
    "bert": wpm_metadata(),
}
KEYS = (
    "model", "pre", "tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id",
    "unknown_token_id", "seperator_token_id", "add_bos_token", "add_eos_token", "add_sep_token",
    "add_space_prefix", "remove_extra_whitespaces", "precompiled_charsmap", "normalizer.lowercase",
    "normalizer.strip_accents",
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-2, 300), st.floats(width=32), st.sampled_from([2**32 - 1, 2**63]))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.text(max_size=5),
    st.sampled_from(sorted(MODELS)),
    st.lists(NUMBERS, max_size=5),
    st.lists(st.text(max_size=3), max_size=5),
    st.lists(st.integers(0, 255), max_size=40),
    st.lists(st.booleans(), max_size=5),
    st.builds(array, st.just("i"), st.lists(st.integers(-3, 9), max_size=5)),
)


def test_every_family_is_here():
    assert set(FAMILIES) == set(MODELS)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_as_it_is_encodes(name):
    tokenizer = tokenizer_from(FAMILIES[name])
    assert tokenizer.encode("a a", add_special=True)
    assert tokenizer.decode(tokenizer.encode("aa")).strip() == "aa"


@pytest.mark.parametrize("name", FAMILIES)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3), st.text(max_size=10))
@settings(max_examples=300, deadline=None)
def test_metadata_that_make_no_sense_are_refused(name, changes, text):
    metadata: dict[str, Any] = FAMILIES[name] | {PREFIX + key: value for key, value in changes.items()}
    try:
        tokenizer = tokenizer_from(metadata)
        ids = tokenizer.encode(text, add_special=True)
        assert all(0 <= i < tokenizer.n_vocab for i in ids)
        tokenizer.decode(ids)
    except TokenizerError as error:
        assert "tokenizer.ggml." in str(error) or "token" in str(error)


@pytest.mark.parametrize("name", FAMILIES)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_one_wrong_entry_of_an_array_is_refused_or_harmless(name, data):
    metadata = dict(FAMILIES[name])
    arrays = [key for key, value in metadata.items() if isinstance(value, list)]
    key = data.draw(st.sampled_from(arrays))
    values = list(metadata[key])
    values[data.draw(st.integers(0, len(values) - 1))] = data.draw(VALUES)
    metadata[key] = values
    try:
        tokenizer = tokenizer_from(metadata)
        tokenizer.decode(tokenizer.encode("a a\n\n", add_special=True))
    except TokenizerError as error:
        assert "tokenizer.ggml." in str(error) or "token" in str(error)
