"""Compare tokenizers with llama.cpp's own vectors and with llama.cpp, for vocabularies too large to commit.

    python tests/llama_vectors.py DIR [NODE_LLAMA_CPP [SAMPLES]]

DIR holds llama.cpp's `models/ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it (MIT licence), from the
PyPI source distribution llama-cpp-python 0.3.36:

    pip download --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
    tar xzf llama_cpp_python-0.3.36.tar.gz --strip-components=4 --wildcards '*/models/ggml-vocab*'

Texts are compared as llama.cpp's test-tokenizer-0 does it: special tokens not parsed, none added. With
NODE_LLAMA_CPP, the folder of node-llama-cpp (pinned in host/bench/npm/llama.cpp), llama.cpp is asked for
the ids of 1,000 random strings, and of 300 with the vocabulary's special tokens among them, parsed and not.
Into the folder SAMPLES go some of those for tests/make_vocab_vectors.py.

Exit 1 when an id differs, when a text of the vectors does not come back, or when nothing was compared.
"""

import asyncio
import json
import random
import sys
from array import array
from pathlib import Path
from typing import Any

from compare_tokenizers import texts
from make_pre_vectors import ask_llama_cpp

from pagelm.errors import TokenizerError
from pagelm.gguf import read_gguf
from pagelm.sources import FileSource
from pagelm.string_array import StringArray
from pagelm.tokenizer import Tokenizer, tokenizer_from
from pagelm.tokenizer.wpm import WpmTokenizer

PREFIX = "tokenizer.ggml."
BETWEEN = ["a", " ", "  ", "\n", " \t\n", "hello", " world ", "<", ">", "é", "\u2581", "x x x "]


def metadata(path: Path) -> dict[str, Any]:
    """What of a GGUF file's metadata a tokenizer reads."""
    source = FileSource(str(path))
    try:
        values = asyncio.run(read_gguf(source)).metadata
    finally:
        source.close()
    wanted = (
        key for key in values if key.startswith(PREFIX) or key in ("general.name", "general.architecture")
    )
    lists = (array, StringArray)
    return {key: list(values[key]) if isinstance(values[key], lists) else values[key] for key in wanted}


def read_vectors(path: Path) -> list[tuple[str, list[int]]]:
    """The texts that belong to a vocabulary, and llama.cpp's ids of each; none where there are none."""
    if not Path(f"{path}.inp").exists():
        return []
    strings = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    if len(lines) == len(strings) + 1 and not lines[-1]:
        del lines[-1]  # some of these files end with a newline
    return [(text, [int(word) for word in line.split()]) for text, line in zip(strings, lines, strict=True)]


def compare(path: Path, tokenizer: Tokenizer) -> int:
    """How many of a vocabulary's texts differ; what does is printed."""
    vectors = read_vectors(path)
    wrong = 0
    for text, want in vectors:
        got = tokenizer.encode(text, parse_special=False)
        back = tokenizer.decode(got) == text or isinstance(tokenizer, WpmTokenizer)
        if got != want or not back:
            wrong += 1
            print(f"{path.name}: {text!r}: {got}, expected {want}, decoded {tokenizer.decode(got)!r}")
    print(f"{path.name}: {len(vectors)} texts, {wrong} differ")
    return wrong


def with_specials(tokenizer: Tokenizer) -> list[str]:
    """Random texts with special tokens in them."""
    chosen = random.Random(5)
    specials = [tokenizer.vocab.texts[i] for i in tokenizer.vocab.specials]
    return [
        "".join(
            chosen.choice(specials if specials and chosen.random() < 0.5 else BETWEEN)
            for _ in range(chosen.randint(1, 9))
        )
        for _ in range(300)
    ]


def ask(path: Path, values: dict[str, Any], tokenizer: Tokenizer, package: str, sample: Path | None) -> int:
    """How many random texts have other ids than llama.cpp's; what does is printed."""
    plain, special = texts(), with_specials(tokenizer)
    jobs = [(str(path), plain, False), (str(path), special, False), (str(path), special, True)]
    answers = ask_llama_cpp(package, jobs)["ids"]
    if None in answers:
        print(f"{path.name}: llama.cpp does not read it")
        return 1
    wrong = 0
    for (_, strings, parsed), want in zip(jobs, answers, strict=True):
        for text, ids in zip(strings, want, strict=True):
            got = tokenizer.encode(text, parse_special=parsed)
            if got != ids:
                wrong += 1
                print(f"{path.name}: {text!a}: {got}, llama.cpp has {ids}, {parsed=}")
    print(f"{path.name}: {sum(len(strings) for _, strings, _ in jobs)} random texts, {wrong} differ")
    if sample is not None:
        vectors = [
            {"text": text, "idsNoSpecial": ids} for text, ids in zip(plain[:100], answers[0], strict=False)
        ]
        for text, without, ids in list(zip(special, *answers[1:], strict=True))[:100]:
            vectors.append({"text": text, "ids": ids, "idsNoSpecial": without})
        sample.write_text(json.dumps({"metadata": values, "vectors": vectors}), encoding="utf-8")
    return wrong


def main(folder: Path, package: str | None = None, samples: str | None = None) -> int:
    compared = failed = 0
    for path in sorted(folder.glob("ggml-vocab-*.gguf")):
        try:
            values = metadata(path)
            tokenizer = tokenizer_from(values)
        except TokenizerError as error:
            print(f"{path.name}: not supported: {str(error)[:100]}")
            continue
        failed += compare(path, tokenizer)
        if package is not None:
            sample = Path(samples) / f"{path.stem}.json" if samples else None
            failed += ask(path, values, tokenizer, package, sample)
        compared += 1
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
