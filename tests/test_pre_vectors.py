"""Every pre-tokenizer against llama.cpp: where it cuts texts, seen through a vocabulary that shows it."""

import functools
import json
from pathlib import Path

import pytest
from pre_vocab import lengths, metadata, texts

from pagelm.tokenizer import Tokenizer, tokenizer_from
from pagelm.tokenizer.pres import PRES

ROWS = json.loads((Path(__file__).parent / "vectors" / "pre_tokenizers.json").read_text())["rows"]
WANT = {name: row["lengths"].split(" ") for row in ROWS for name in row["names"]}
# Newer than the llama.cpp that made the vectors, or not in it: these cut as others do, or are tested by hand.
NOT_IN_VECTORS = {"glm5", "hy_v4", "spark2_5", "ufakzeka"}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return tokenizer_from(metadata(PRES[name], name))


def test_every_name_has_vectors():
    assert set(WANT) == set(PRES) - NOT_IN_VECTORS


@pytest.mark.parametrize("name", sorted(WANT))
def test_words_are_cut_as_llama_cpp_cuts_them(name):
    same = next(other for other in WANT if PRES[other] == PRES[name])
    for text, want in zip(texts(), WANT[name], strict=True):
        ids = tokenizer(same).encode(text, parse_special=False)
        assert lengths(tokenizer(same).vocab.texts, ids) == want, text
