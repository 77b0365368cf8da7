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

import numpy as np
from archs.models import MODELS, N_CTX, N_VOCAB, TinyModel
from archs.references import save
from archs.values import digest, write_decoded

from pagelm.host.bench.peers import npm_package

DRIVER = Path(__file__).with_name("archs") / "llama_cpp.mjs"
PINS = "llama.cpp"  # the folder of host/bench/npm
N_IDS, N_GEN = 48, 32
KEPT = (
    0,
    1,
    15,
    16,
    31,
    47,
    79,
)  # whole rows: the first, around a window of 16, the ends of ids and of generation


def prompt(model: TinyModel) -> list[int]:
    """Ids of bytes and merges, none special; the same for every model of a seed."""
    bits = np.random.PCG64([model.seed, 0]).random_raw(N_IDS)
    return [int(3 + b % (N_VOCAB - 3)) for b in bits]


class LlamaCpp:
    """The driver's process."""

    def __init__(self) -> None:
        package = npm_package(PINS, PINS) / "node-llama-cpp"
        node = shutil.which("node") or sys.exit("node, which runs llama.cpp's addon, was not found")
        given = json.dumps({"package": str(package), "n_ctx": N_CTX})
        command = [node, str(DRIVER), given]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, path: Path, ids: list[int]) -> dict[str, object]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"model": str(path), "ids": ids, "gen": N_GEN}) + "\n")
        stdin.flush()
        line = next((line for line in stdout if line.startswith("{")), '{"error": "it died"}')
        return json.loads(line)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def make(llama_cpp: LlamaCpp, model: TinyModel, folder: Path) -> str:
    """Write one reference; what to say about it."""
    path = write_decoded(model, folder / f"{model.name}.gguf")
    ids = prompt(model)
    got = llama_cpp.answer(path, ids)
    path.unlink()
    if error := got.get("error"):
        return f"FAILED: {error}"
    probabilities = np.array(got["rows"], np.float64)
    assert probabilities.shape == (N_IDS + N_GEN, N_VOCAB), probabilities.shape
    producer = {"node-llama-cpp": got["version"], "llama.cpp": got["release"], "cache": "F32"}
    generated = got["generated"]
    assert isinstance(generated, list)
    out = save(model.name, digest(model), N_CTX, ids, generated, probabilities, KEPT, producer)
    gaps = json.loads(out.read_text())["gaps"]
    spread = np.log(probabilities).std(axis=1).mean()
    return (
        f"{out.stat().st_size / 1000:.0f} kB, deviation of log-probabilities {spread:.2f}, "
        f"{len(set(generated))} different greedy tokens, smallest gap {min(gaps)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}")
    names = parser.parse_args().names or list(MODELS)
    if unknown := set(names) - set(MODELS):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    llama_cpp = LlamaCpp()
    failed = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                said = make(llama_cpp, MODELS[name], Path(folder))
                failed |= said.startswith("FAILED")
                print(f"{name}: {said}", flush=True)
    finally:
        llama_cpp.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
