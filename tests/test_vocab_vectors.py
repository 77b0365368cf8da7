"""The tokenizers against llama.cpp's ids for real vocabularies, of which only what matters is kept.

tests/make_vocab_vectors.py made the vectors; tests/llama_vectors.py and tests/compare_tokenizers.py compare
with the whole vocabularies.
"""

import functools
import json
import lzma
from pathlib import Path

import pytest

from pagelm.tokenizer import Tokenizer, tokenizer_from
from pagelm.tokenizer.ugm import UgmTokenizer
from pagelm.tokenizer.wpm import WpmTokenizer

LINES = lzma.decompress((Path(__file__).parent / "vectors" / "vocabularies.json.xz").read_bytes())
# Compared with Hugging Face too; random texts, of which half have special tokens in them.
PEERS = ("llama3", "qwen3", "gpt4o", "deepseek_v3", "gemma3", "llama2")
SPECIALS = (
    "any-baichuan",
    "any-command-r",
    "any-gemma-4",
    "any-llama-spm",
    "any-mpt",
    "any-nomic-bert-moe",
    "any-phi-3",
)
ROWS = {row["name"]: row for row in map(json.loads, LINES.decode().split("\n"))}


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    return tokenizer_from(ROWS[name]["metadata"])


def test_all_vocabularies_are_there():
    llama_cpps = {
        "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe",
        "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder",
    }  # fmt: skip
    assert set(ROWS) == llama_cpps | {"gemma-3", *PEERS, *SPECIALS}
    assert sum(len(ROWS[name]["vectors"]) for name in llama_cpps) == 15 * 47 - 1 + 4
    assert len(ROWS["gemma-3"]["vectors"]) == 140
    assert {len(ROWS[name]["vectors"]) for name in PEERS} == {100}
    assert {len(ROWS[name]["vectors"]) for name in SPECIALS} == {200}


@pytest.mark.parametrize("name", ROWS)
def test_ids_are_llama_cpps(name):
    ours = tokenizer(name)
    for vector in ROWS[name]["vectors"]:
        text, ids = vector["text"], vector.get("ids")
        without = vector.get("idsNoSpecial", ids)
        assert ours.encode(text, parse_special=False) == without, text
        assert ids is None or ours.encode(text) == ids, text


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"bert-bge", "any-nomic-bert-moe"}))  # those fold texts
def test_texts_come_back(name):
    ours = tokenizer(name)
    assert not isinstance(ours, UgmTokenizer | WpmTokenizer)
    for vector in ROWS[name]["vectors"]:
        text, ids = vector["text"], vector.get("idsNoSpecial", vector.get("ids"))
        if "\u2581" not in text or "detokenized" in vector:  # a space to some
            assert ours.decode(ids) == vector.get("detokenized", text)


@pytest.mark.parametrize("name", PEERS)
def test_where_hugging_face_differs_the_reason_is_known(name):
    """llama.cpp is followed; the vectors hold Hugging Face's ids where they are others."""
    differ = [vector for vector in ROWS[name]["vectors"] if "huggingFace" in vector]
    for vector in differ:
        assert vector["huggingFace"] != vector["idsNoSpecial"]
        assert "llama.cpp" in vector["reason"]
    assert bool(differ) == (name in ("qwen3", "gpt4o"))
