"""Compare the tokenizer with llama.cpp's own vectors, for vocabularies that are too large to commit.

    python tests/llama_vectors.py DIR

DIR holds llama.cpp's `models/ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it (MIT licence), from the
PyPI source distribution llama-cpp-python 0.3.36:

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
    tar xzf llama_cpp_python-0.3.36.tar.gz --strip-components=4 --wildcards '*/models/ggml-vocab*'

Texts are compared as llama.cpp's test-tokenizer-0 does it: special tokens not parsed, none added. Exit 1 when
an id differs, when a text does not come back, or when nothing was compared.
"""

import sys
from pathlib import Path
from typing import Any

from gguf import GGUFReader

from pagelm.errors import TokenizerError
from pagelm.tokenizer import tokenizer_from


def metadata(path: Path) -> dict[str, Any]:
    """The tokenizer's metadata of a GGUF file, read by the `gguf` package."""
    fields = GGUFReader(path).fields
    return {key: field.contents() for key, field in fields.items() if key.startswith("tokenizer.")}


def read_vectors(path: Path) -> list[tuple[str, list[int]]]:
    """The texts that belong to a vocabulary, and llama.cpp's ids of each."""
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    if len(lines) == len(texts) + 1 and not lines[-1]:
        del lines[-1]  # some of these files end with a newline
    return [(text, [int(word) for word in line.split()]) for text, line in zip(texts, lines, strict=True)]


def compare(path: Path) -> tuple[int, int]:
    """(texts compared, texts that differ) for one vocabulary; differences are printed."""
    tokenizer = tokenizer_from(metadata(path))
    vectors = read_vectors(path)
    wrong = 0
    for text, want in vectors:
        got = tokenizer.encode(text, parse_special=False)
        if got != want or tokenizer.decode(got) != text:
            wrong += 1
            print(f"{path.name}: {text!r}: {got}, expected {want}, decoded {tokenizer.decode(got)!r}")
    return len(vectors), wrong


def main(folder: Path) -> int:
    compared = failed = 0
    for path in sorted(folder.glob("ggml-vocab-*.gguf")):
        if not Path(f"{path}.inp").exists():
            continue
        try:
            n, wrong = compare(path)
        except TokenizerError as error:
            print(f"{path.name}: not supported: {str(error)[:100]}")
            continue
        print(f"{path.name}: {n} texts, {wrong} differ")
        compared, failed = compared + n, failed + wrong
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
