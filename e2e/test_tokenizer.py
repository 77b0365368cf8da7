"""The tokenizer in the page against llama.cpp's ids."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.model
VECTORS = json.loads((Path(__file__).parent / "data" / "smollm2-tokens.json").read_text(encoding="utf-8"))


def test_ids_and_texts_are_llama_cpp_s(loaded_lm):
    assert len(VECTORS["vectors"]) == 140
    for vector in VECTORS["vectors"]:
        text = vector["text"]
        ids = loaded_lm.call("encode", {"text": text})
        assert ids == vector["ids"], text
        plain = loaded_lm.call("encode", {"text": text, "parse_special": False})
        assert plain == vector.get("idsNoSpecial", vector["ids"]), text
        assert loaded_lm.call("decode", {"ids": ids}) == vector.get("detokenized", text)
