"""Make tests/archs/references/: what llama.cpp, prebuilt by node-llama-cpp, computes for the tiny models.

    python tests/make_arch_references.py [NAME ...]     # all of them, or those named

One thread on the CPU, flash attention off, F32 cache, matrices decoded to F32: as near to the model as
llama.cpp comes. What it still rounds is its gelu, which it looks up by half float. Of every model:
log-probabilities after each of 48 ids and of 32 greedy tokens, the 8 largest of every position and some rows.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from archs.models import MODELS, N_CTX, N_VOCAB, TinyModel
from archs.references import load, save
from archs.values import digest, write_decoded

from pagelm.errors import PagelmError
from pagelm.host.bench.peers import npm_package

DRIVER = Path(__file__).with_name("archs") / "llama_cpp.mjs"
PINS = "llama.cpp"  # the folder of host/bench/npm
N_IDS, N_GEN = 48, 32
# Whole rows are kept of the first positions, around a window of 16, the ends of ids and of generation.
KEPT = (0, 1, 15, 16, 31, 47, 79)


def prompt(model: TinyModel) -> list[int]:
    """Ids of bytes and merges, none special; the same for every model of a seed."""
    bits = np.random.PCG64([model.seed, 0]).random_raw(N_IDS)
    return [int(3 + b % (N_VOCAB - 3)) for b in bits]


class LlamaCpp:
    """The driver's process. Raises: PagelmError where node or the package cannot be had."""

    def __enter__(self) -> "LlamaCpp":
        package = npm_package(PINS, PINS) / "node-llama-cpp"
        node = shutil.which("node")
        if node is None:
            raise PagelmError("node, which runs llama.cpp's addon, was not found")
        command = [node, str(DRIVER), json.dumps({"package": str(package), "n_ctx": N_CTX})]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def answer(self, path: Path, ids: list[int]) -> dict[str, Any]:
        """What llama_cpp.mjs answers for a model and ids. No two models may have had the same path."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"model": str(path), "ids": ids, "gen": N_GEN}) + "\n")
        stdin.flush()
        line = next((line for line in stdout if line.startswith("{")), '{"error": "it died"}')
        answer: dict[str, Any] = json.loads(line)
        if error := answer.get("error"):
            raise PagelmError(f"llama.cpp does not run {path.name}: {error}")
        return answer

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def make(llama_cpp: LlamaCpp, model: TinyModel, folder: Path) -> str:
    """Write one reference; what to say about it."""
    ids = prompt(model)
    given = model.stand_in or model
    answer = llama_cpp.answer(write_decoded(given, folder / f"{model.name}.gguf"), ids)
    probabilities = np.array(answer["rows"], np.float64)
    assert probabilities.shape == (N_IDS + N_GEN, N_VOCAB), probabilities.shape
    producer = {
        "node-llama-cpp": answer["version"],
        "llama.cpp": answer["release"],
        "cache": "F32",
        "arch": given.arch,
    }
    generated = answer["generated"]
    out = save(model.name, digest(model), N_CTX, ids, generated, probabilities, KEPT, producer)
    return (
        f"{out.stat().st_size / 1000:.0f} kB, deviation of log-probabilities "
        f"{np.log(probabilities).std(axis=1).mean():.2f}, {len(set(generated))} different greedy tokens, "
        f"smallest gap {min(load(model.name).gaps)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    names = parser.parse_args().names or list(MODELS)
    if unknown := set(names) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    try:
        with LlamaCpp() as llama_cpp, tempfile.TemporaryDirectory() as folder:
            for name in names:
                print(f"{name}: {make(llama_cpp, MODELS[name], Path(folder))}", flush=True)
    except PagelmError as e:
        sys.exit(str(e))


if __name__ == "__main__":
    main()
