"""Make the logits of tests/oracle/llama_cpp_archs.json: llama.cpp's for tiny models as they are.

    python tests/make_exact_references.py LLAMA_LOGITS LIBRARIES

LLAMA_LOGITS is tests/oracle/llama_logits.cpp, built as it says; LIBRARIES its folder of libraries. A case is
added by writing name, sizes, types and n_prompt into the file; it gets 30 ids.
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from archs import MODELS, TinyModel, sized, write
from archs.models import N_VOCAB
from archs.values import digest

CASES = Path(__file__).parent / "oracle" / "llama_cpp_archs.json"
N_IDS = 30


def ids_of(model: TinyModel) -> list[int]:
    bits = np.random.PCG64([model.seed, 0]).random_raw(N_IDS)
    return [int(3 + b % (N_VOCAB - 3)) for b in bits]


def rows(command: list[str], model: TinyModel, n_prompt: int, ids: list[int]) -> np.ndarray:
    """Logits after the prompt and after each further id (rows, n_vocab)."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(model, Path(folder) / "model.gguf")
        given = [*command, str(path), str(n_prompt), *map(str, ids)]
        out = subprocess.run(given, stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, "<f4").reshape(-1, N_VOCAB)


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = json.loads(CASES.read_text(encoding="utf-8"))
    for case in found["cases"]:
        name, sizes, n_prompt = case["name"], case["sizes"], case["n_prompt"]
        model = (sized(name, **sizes) if sizes else MODELS[name]).of_types(case["types"])
        case["digest"], case["ids"] = digest(model), case.get("ids") or ids_of(model)
        logits = rows(sys.argv[1:], model, n_prompt, case["ids"])
        ends = {"first": logits[0], "last": logits[-1]}
        case["logits"] = {key: base64.b64encode(row.tobytes()).decode() for key, row in ends.items()}
    CASES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
