"""Ask llama.cpp how each pre-tokenizer cuts `pre_vocab.texts()`; writes tests/vectors/pre_tokenizers.json.

    python tests/make_pre_vectors.py NODE_LLAMA_CPP

NODE_LLAMA_CPP is the folder of node-llama-cpp (`host/bench/npm/llama.cpp` pins it). The ids are those of its
prebuilt llama.cpp for a vocabulary that `pre_vocab` makes. A name that it does not know is left out, and
named; pre-tokenizers with the same ids share a row.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import raw_gguf
from pre_vocab import lengths, metadata, texts

from pagelm.tokenizer.pres import PRES

SCRIPT = """
import { readFileSync, writeFileSync } from "node:fs";
const [folder, job] = process.argv.slice(2);
const { getLlama, LlamaLogLevel } = await import(`${folder}/dist/index.js`);
const quiet = { progressLogs: false, logLevel: LlamaLogLevel.disabled };
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, ...quiet });
const ids = [];
for (const [modelPath, texts, special] of JSON.parse(readFileSync(job))) {
  try {
    const model = await llama.loadModel({ modelPath, vocabOnly: true, gpuLayers: 0 });
    ids.push(texts.map((text) => Array.from(model.tokenize(text, special))));
    await model.dispose();
  } catch (error) {
    ids.push(null);
  }
}
writeFileSync(job, JSON.stringify({ ids, release: llama.llamaCppRelease.release }));
process.exit(0);
"""


def vocabulary(values: dict[str, Any]) -> bytes:
    """A GGUF file that holds nothing but a vocabulary."""
    file = raw_gguf.File()
    file.set("general.architecture", raw_gguf.STR, "llama")
    for key, value in values.items():
        if isinstance(value, str):
            file.set(key, raw_gguf.STR, value)
        elif isinstance(value, bool):
            file.set(key, raw_gguf.BOOL, value)
        elif isinstance(value, int):
            file.set(key, raw_gguf.U32, value)
        else:
            kinds = {str: raw_gguf.STR, int: raw_gguf.I32, float: raw_gguf.F32}
            kind = kinds[type(value[0])]
            file.set(key, raw_gguf.ARR, raw_gguf.array(kind, value))
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length"):
        file.set(f"llama.{key}", raw_gguf.U32, 32)
    file.set("llama.attention.head_count", raw_gguf.U32, 1)
    file.set("llama.attention.layer_norm_rms_epsilon", raw_gguf.F32, 1e-5)
    return file.data()


def ask_llama_cpp(package: str, jobs: list[tuple[str, list[str], bool]]) -> dict[str, Any]:
    """`ids` for each job, or None where the file is not read; `release` of llama.cpp.

    A job is a GGUF file, texts, and whether special tokens are looked for in them.
    """
    with tempfile.TemporaryDirectory() as tmp:
        job, script = Path(tmp) / "job.json", Path(tmp) / "job.mjs"
        job.write_text(json.dumps(jobs))
        script.write_text(SCRIPT)
        subprocess.run(["node", script, package, job], check=True)
        answer: dict[str, Any] = json.loads(job.read_text())
    return answer


def main(package: str) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        folder = Path(tmp)
        jobs = []
        for name, pre in PRES.items():
            path = folder / f"{name}.gguf"
            path.write_bytes(vocabulary(metadata(pre, name)))
            jobs.append((str(path), texts(), False))
        answer = ask_llama_cpp(package, jobs)
    rows: dict[str, list[str]] = {}
    for (name, pre), ids in zip(PRES.items(), answer["ids"], strict=True):
        if ids is None:
            print(f"not known to llama.cpp {answer['release']}: {name}")
        else:
            tokens = metadata(pre, name)["tokenizer.ggml.tokens"]
            rows.setdefault(" ".join(lengths(tokens, some) for some in ids), []).append(name)
    path = Path(__file__).parent / "vectors" / "pre_tokenizers.json"
    body = ",\n".join(json.dumps({"names": names, "lengths": row}) for row, names in rows.items())
    path.write_text(f'{{"llama.cpp":{json.dumps(answer["release"])},"rows":[\n{body}\n]}}\n')
    print(f"{path}: {len(rows)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
