"""Write tests/vectors/vocabularies.json.gz: llama.cpp's vectors and what they need of each vocabulary.

    python tests/make_vocab_vectors.py DIR [NAME=MODEL.gguf,VECTORS.json | NAME=SAMPLE.json …]

DIR holds llama.cpp's `models/ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it (where they come
from is said in tests/llama_vectors.py). VECTORS.json is a file like e2e/data/smollm2-tokens.json, made
by llama.cpp for MODEL.gguf; SAMPLE.json is what tests/compare_tokenizers.py writes.

A token or a merge that is no part of any of the texts cannot have a say in how they are cut. So a vocabulary
of a quarter of a million tokens becomes one of a thousand or two with which the same texts give the same
tokens; ids are counted anew.
"""

import gzip
import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

from gguf import GGUFReader
from llama_vectors import read_vectors

from pagelm.tokenizer.pres import PRES
from pagelm.tokenizer.text import BYTE_ALPHABET

PREFIX = "tokenizer.ggml."
BYTE = 6
IDS = ("ids", "idsNoSpecial", "huggingFace")


def metadata(path: Path) -> dict[str, Any]:
    """What of a GGUF file's metadata has a say, read by the `gguf` package."""
    found = {}
    for key, field in GGUFReader(path).fields.items():
        if key.startswith(PREFIX) or key in ("general.name", "general.architecture"):
            found[key] = field.contents()
    return found


def spellings(values: dict[str, Any], texts: list[str]) -> list[str]:
    """The texts in all spellings that a vocabulary of this kind may have of their parts."""
    model, pre = values[PREFIX + "model"], values.get(PREFIX + "pre")
    if model == "gpt2" and pre in PRES and PRES[pre].byte_level:
        return texts + ["".join(BYTE_ALPHABET[byte] for byte in text.encode()) for text in texts]
    if model == "bert":
        texts = [unicodedata.normalize("NFD", text) for text in texts]
        texts = [
            "".join(char for char in text if unicodedata.category(char)[0] != "M").lower() for text in texts
        ]
    return texts + [f" {text}".replace(" ", "\u2581") for text in texts]


def reduced(
    values: dict[str, Any], texts: list[str], used: set[int]
) -> tuple[dict[str, Any], dict[int, int]]:
    """The metadata with what can matter for `texts`, and the new ids of the tokens that are left."""
    everything = "\n".join(spellings(values, texts))
    tokens, kinds = values[PREFIX + "tokens"], values[PREFIX + "token_type"]
    roles = {value for key, value in values.items() if key.endswith("_token_id")}
    keep = [
        i
        for i, text in enumerate(tokens)
        if i in used | roles or kinds[i] == BYTE or text.removeprefix("\u2581") in everything
    ]
    new = {old: i for i, old in enumerate(keep)}
    out = dict(values)
    for key in ("tokens", "token_type", "scores"):
        if PREFIX + key in values:
            out[PREFIX + key] = [values[PREFIX + key][i] for i in keep]
    if PREFIX + "merges" in values:
        out[PREFIX + "merges"] = [m for m in values[PREFIX + "merges"] if m.replace(" ", "") in everything]
    for key in values:
        if key.endswith("_token_id"):
            out[key] = new[values[key]]
    out.pop(PREFIX + "precompiled_charsmap", None)
    return out, new


def row(name: str, values: dict[str, Any], vectors: list[dict[str, Any]]) -> dict[str, Any]:
    """`vectors`: text, ids; where they differ, ids without special tokens or Hugging Face's, and the text."""
    used = {i for vector in vectors for key in IDS for i in vector.get(key, ())}
    small, new = reduced(values, [vector["text"] for vector in vectors], used)
    print(
        f"{name}: {len(values[PREFIX + 'tokens'])} tokens, of which {len(new)} matter; {len(vectors)} texts"
    )
    for vector in vectors:
        for key in IDS:
            if key in vector:
                vector[key] = [new[i] for i in vector[key]]
    return {"name": name, "metadata": small, "vectors": vectors}


def main(folder: Path, models: list[str]) -> None:
    rows = []
    for path in sorted(folder.glob("ggml-vocab-*.gguf")):
        if Path(f"{path}.inp").exists():
            vectors = [{"text": text, "ids": ids} for text, ids in read_vectors(path)]
            rows.append(row(path.stem.removeprefix("ggml-vocab-"), metadata(path), vectors))
    for model in models:
        name, _, files = model.partition("=")
        if "," not in files:
            sample = json.loads(Path(files).read_text(encoding="utf-8"))
            rows.append(row(name, sample["metadata"], sample["vectors"]))
            continue
        path, vectors_path = files.split(",")
        rows.append(row(name, metadata(Path(path)), json.loads(Path(vectors_path).read_text())["vectors"]))
    path = Path(__file__).parent / "vectors" / "vocabularies.json.gz"
    text = "\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{path}: {len(rows)} vocabularies, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
