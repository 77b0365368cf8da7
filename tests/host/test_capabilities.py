"""What `pagelm capabilities` says is what the registries, the proofs and the files say."""

import asyncio
import json

import pytest

from pagelm.arch import supported
from pagelm.gguf import read_gguf
from pagelm.host import capabilities as matrix
from pagelm.host.models import MODELS
from pagelm.quants import SUPPORTED
from pagelm.sources import FileSource


def test_proofs_name_only_what_there_is_and_keep_the_rule():
    for device, found in json.loads(matrix.PROOFS.read_text()).items():
        assert device in ("native", "browser") and found["adapter"] and found["date"]
        for arch, kinds in found["pairs"].items():
            assert arch in supported() and set(kinds) <= set(SUPPORTED)
            assert all(0 < worst <= 1e-5 for worst in kinds.values())


def test_every_pair_has_a_proof_and_a_mark():
    found = matrix.capabilities()
    assert list(found["architectures"]) == list(supported())
    for kinds in found["architectures"].values():
        assert list(kinds) == list(SUPPORTED)
        assert all(cell["proof"] in matrix.MARKS for cell in kinds.values())
    lines = matrix.table(found).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(supported())
    assert all(len(line.split()) == 1 + len(SUPPORTED) for line in lines[1:])


@pytest.mark.parametrize(
    ("proofs", "proof"),
    [
        ({}, "kernel"),
        ({"native": 1e-6}, "part"),
        ({"browser": 1e-6}, "part"),
        ({"native": 1e-6, "browser": 2e-6}, "model"),
    ],
)
def test_what_was_run_where_decides(proofs, proof):
    of = {device: {"pairs": {"qwen2": {"Q4_K": worst}}} for device, worst in proofs.items()}
    cell = matrix._proof(of, "qwen2", "Q4_K")
    assert cell == {"proof": proof, "native": proofs.get("native"), "browser": proofs.get("browser")}
    assert matrix._proof({}, "llama", "Q4_1")["proof"] == "real"


def types_of(path):
    source = FileSource(path)
    try:
        gguf = asyncio.run(read_gguf(source))
    finally:
        source.close()
    kinds = {t.quant.name for t in gguf.tensors.values() if len(t.shape) == 2}
    return gguf.metadata["general.architecture"], tuple(sorted(kinds))


@pytest.mark.model
def test_the_default_model_has_the_types_that_it_proves(model_path):
    assert types_of(model_path) == matrix.REAL["smollm2"]


def test_real_models_are_packaged():
    assert set(matrix.REAL) == set(MODELS)
