"""Every file of tests/corpus is refused: by the right stage, error type, field and byte, at little cost."""

import asyncio
import json
import tracemalloc

import make_corpus
import pytest
import raw_gguf
from make_corpus import CORPUS

from pagelm import errors
from pagelm.errors import GgufError, PagelmError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import hparams_from
from pagelm.sources import MemorySource
from pagelm.tensors import operands_of
from pagelm.tokenizer import tokenizer_from

MANIFEST = json.loads((CORPUS / "manifest.json").read_text("utf-8"))
STAGES = ("gguf", "hparams", "tensors", "tokenizer")
PEAK_BYTES = 256 << 10  # the files are small; a count taken at its word is not


def run_until(stage: str, data: bytes) -> None:
    """Do what loading does, up to and with `stage`."""
    gguf: Gguf = asyncio.run(read_gguf(MemorySource(data)))
    if stage == "gguf":
        return
    hparams = hparams_from(gguf)
    if stage == "hparams":
        return
    operands_of(hparams, gguf)
    if stage == "tokenizer":
        tokenizer_from(gguf.metadata)


def test_corpus_is_what_the_script_writes():
    cases = make_corpus.cases()
    assert {p.name for p in CORPUS.iterdir()} == {"manifest.json", *(f"{c.name}.gguf" for c in cases)}
    for case in cases:
        assert (CORPUS / f"{case.name}.gguf").read_bytes() == case.data
    assert (CORPUS / "manifest.json").read_text("utf-8") == make_corpus.manifest(cases)


def test_the_file_that_the_corpus_damages_is_right():
    run_until("tokenizer", raw_gguf.llama().data())
    run_until("gguf", raw_gguf.one().data())
    run_until("gguf", raw_gguf.table(raw_gguf.Tensor("a", (8,)), raw_gguf.Tensor("b", (8,))).data())


@pytest.mark.parametrize("file", MANIFEST)
def test_corpus_file_is_refused(file):
    expected = MANIFEST[file]
    data = (CORPUS / file).read_bytes()
    stage = STAGES.index(expected["stage"])
    if stage:
        run_until(STAGES[stage - 1], data)  # what comes before has nothing to complain about
    with pytest.raises(PagelmError) as e:
        run_until(expected["stage"], data)
    assert type(e.value) is getattr(errors, expected["error"])
    message = str(e.value)
    assert message.isprintable(), "a message is one line"
    assert len(message) < 500
    if isinstance(e.value, GgufError):
        assert (e.value.field, e.value.offset) == (expected["field"], expected["offset"])
        assert e.value.field in message
        if e.value.offset is not None:
            assert 0 <= e.value.offset <= len(data)
            assert f"at byte {e.value.offset}" in message
    else:
        assert expected["field"] in message


@pytest.mark.parametrize("file", [f for f, row in MANIFEST.items() if row["stage"] != "tokenizer"])
def test_corpus_file_costs_little_memory(file):
    data = (CORPUS / file).read_bytes()

    async def parse() -> None:
        hparams_from(await read_gguf(MemorySource(data)))

    async def measure() -> int:
        tracemalloc.start()
        try:
            with pytest.raises(PagelmError):
                await parse()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    if MANIFEST[file]["stage"] in ("gguf", "hparams"):
        assert asyncio.run(measure()) < PEAK_BYTES


# Classes of notes on what breaks GGUF parsers, by the words that a case's source must hold.
CLASSES = (
    "CVE-2024-21802 CVE-2024-21825 CVE-2024-21836 CVE-2024-23496 CVE-2024-23605 CVE-2024-39720 CVE-2024-8063 "
    "CVE-2024-12055 CVE-2025-0312 CVE-2025-0315 CVE-2025-0317 CVE-2025-49847 CVE-2025-52566 CVE-2025-66959 "
    "CVE-2025-66960 CVE-2026-27940 CVE-2026-33298 CVE-2026-7482 HEADER KV TENSORS DATA MEM_SIZE_OVERFLOW "
    "F001 F004 53-byte #20735 #24884 #24885 #24888 #25475 #25821 #25969 #26690 #27226 UGM no_vocab own"
).split()


@pytest.mark.parametrize("word", CLASSES)
def test_corpus_has_the_class(word):
    assert any(word in row["source"] for row in MANIFEST.values())
