"""The tokenizers against llama.cpp's ids for real vocabularies, of which only what matters is kept.

tests/make_vocab_vectors.py made the vectors; tests/llama_vectors.py and tests/compare_tokenizers.py compare
with the whole vocabularies.
"""

import functools
import gzip
import json
from pathlib import Path

import pytest

from pagelm.tokenizer import Tokenizer, tokenizer_from

LINES = gzip.decompress((Path(__file__).parent / "vectors" / "vocabularies.json.gz").read_bytes())
ROWS = {row["name"]: row for row in map(json.loads, LINES.decode().split("\n"))}
# A text does not come back from these: they fold case and drop white space.
ONE_WAY = {"bert-bge"}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return tokenizer_from(ROWS[name]["metadata"])


def test_all_vocabularies_are_there():
    assert set(ROWS) == {
        "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe",
        "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
        "gemma-3", "llama3", "qwen3", "gpt4o", "deepseek_v3", "gemma3", "llama2",
    }  # fmt: skip
    assert sum(len(row["vectors"]) for row in ROWS.values()) == 15 * 47 - 1 + 4 + 140 + 6 * 100


@pytest.mark.parametrize("name", ROWS)
def test_ids_are_llama_cpps(name):
    ours = tokenizer(name)
    special = name == "gemma-3"  # the others' texts were not searched for special tokens
    for vector in ROWS[name]["vectors"]:
        text, ids = vector["text"], vector["ids"]
        assert ours.encode(text, parse_special=special) == ids, text
        if "idsNoSpecial" in vector:
            assert ours.encode(text, parse_special=False) == vector["idsNoSpecial"], text
        if name not in ONE_WAY:
            assert ours.decode(ids) == vector.get("detokenized", text)


@pytest.mark.parametrize("name", ["llama3", "qwen3", "gpt4o", "deepseek_v3", "gemma3", "llama2"])
def test_where_hugging_face_differs_the_reason_is_known(name):
    """llama.cpp is followed; the vectors hold Hugging Face's ids where they are others."""
    differ = [vector for vector in ROWS[name]["vectors"] if "huggingFace" in vector]
    for vector in differ:
        assert vector["huggingFace"] != vector["ids"]
        assert "llama.cpp" in vector["reason"]
    assert bool(differ) == (name in ("qwen3", "gpt4o"))
