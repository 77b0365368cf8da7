"""Models in several files, files past 4 GiB, vocabularies past 65,535: natively, against the oracle."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from split_gguf import write_parts, write_spread
from tiny_gguf import tiny_model

import pagelm.gguf
from pagelm.device.native import NativeGpu
from pagelm.host.oracle import Oracle
from pagelm.loading import load_model
from pagelm.sources import FileSource
from pagelm.split import SplitSource

pytestmark = pytest.mark.gpu

PROMPT = [(i * 37 + 11) % 390 for i in range(21)]
SPREAD = (
    1 << 28
)  # bytes from one tensor to the next: 20 tensors are past 2^31 from the 8th, past 2^32 from the 16th


def run_model(*paths, prompt=PROMPT, n=4, n_ctx=64, **limits):
    """Ids and logits of `n` greedy steps, and the plan."""

    async def main():
        gpu = await NativeGpu.open()
        gpu.limits = replace(gpu.limits, **limits)
        model = await load_model(gpu, SplitSource([FileSource(path) for path in paths]), n_ctx=n_ctx)
        try:
            steps = [(token, np.array(logits)) async for token, logits in model.trace(prompt, n)]
            return [token for token, _ in steps], np.stack([logits for _, logits in steps]), model.plan
        finally:
            await model.close()
            gpu.close()

    return asyncio.run(main())


def test_split_model_has_the_bits_of_the_whole_one(tmp_path):
    data = tiny_model(tmp_path / "whole.gguf", n_vocab=400, quant={"ffn_down": "Q4_0", "": "Q8_0"})
    paths = write_parts(tmp_path, data, [0, 5, 6])
    ids, logits, _ = run_model(tmp_path / "whole.gguf")
    for given in (paths[2:3], [paths[3], paths[1], paths[0], paths[2]]):
        split_ids, split_logits, _ = run_model(*given)
        assert split_ids == ids and np.array_equal(split_logits, logits)


def test_tensors_past_4_gib_of_a_file_have_the_bits_of_a_small_one(tmp_path, monkeypatch):
    """The file is sparse; GGUF has no room for gaps but the alignment, whose own limit is lifted for it."""
    monkeypatch.setattr(pagelm.gguf, "MAX_ALIGNMENT", SPREAD)
    data = tiny_model(tmp_path / "compact.gguf", n_vocab=400)
    places = write_spread(tmp_path / "spread.gguf", data, SPREAD)
    assert sum(1 << 31 <= at < 1 << 32 for at in places) >= 4 and sum(at >= 1 << 32 for at in places) >= 4
    ids, logits, _ = run_model(tmp_path / "compact.gguf")
    far_ids, far_logits, _ = run_model(tmp_path / "spread.gguf")
    assert far_ids == ids and np.array_equal(far_logits, logits)
    oracle = Oracle(tmp_path / "spread.gguf")
    for step, token in enumerate([None, *ids[:-1]]):
        expected = oracle.forward(PROMPT if token is None else [token])
        assert np.abs(far_logits[step] - expected).max() <= 1e-5 * np.abs(expected).max()


N_VOCAB = 1 << 18
NARROW = {
    "as-it-is": {},
    "slabs": {"max_storage_buffer_binding_size": 4 << 20},  # what the logits of four tokens take
    "one-thread-groups": {"max_compute_invocations_per_workgroup": 1},
    "short-rows-of-groups": {"max_compute_workgroups_per_dimension": 100},
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model with 262,144 tokens. The last row of its output is twice the best one's after PROMPT."""
    path = tmp_path_factory.mktemp("wide") / "wide.gguf"
    size = dict(n_vocab=N_VOCAB, n_embd=32, n_head=1, n_head_kv=1, n_layer=1, n_ff=32, quant="F16")
    rng = np.random.default_rng(3)
    tensors = {
        f"{name}.weight": rng.standard_normal((N_VOCAB, 32), dtype=np.float32)
        for name in ("token_embd", "output")
    }
    tiny_model(path, tensors=tensors, **size)
    best = int(Oracle(path).forward(PROMPT).argmax())
    tensors["output.weight"][-1] = 2 * tensors["output.weight"][best]
    tiny_model(path, tensors=tensors, **size)
    return path


@pytest.mark.parametrize("narrow", NARROW)
def test_vocabulary_of_262144_is_right_to_its_last_id(wide, narrow, monkeypatch):
    grids, record = [], NativeGpu.record

    def recorded(gpu, steps):
        grids.extend(step.grid for step in steps)
        return record(gpu, steps)

    monkeypatch.setattr(NativeGpu, "record", recorded)
    ids, logits, plan = run_model(wide, n=2, **NARROW[narrow])
    assert (plan.slabs > 6) == (narrow == "slabs")
    assert any(y > 1 for _, y, _ in grids) == (narrow in ("one-thread-groups", "short-rows-of-groups"))
    assert (max(x * y for x, y, _ in grids) > 65535) == (narrow == "one-thread-groups")
    assert ids[0] == N_VOCAB - 1
    oracle = Oracle(wide)
    for step, fed in enumerate([PROMPT, ids[:1]]):  # the second one embeds the last id
        expected = oracle.forward(fed)
        assert np.abs(logits[step] - expected).max() <= 1e-5 * np.abs(expected).max()
        assert ids[step] == int(expected.argmax())


@pytest.mark.model
def test_default_model_in_slabs_of_1_mib_says_the_same(model_path):
    prompt = [504, 3575, 282, 4649, 314]
    ids, logits, plan = run_model(model_path, prompt=prompt, n=8, n_ctx=128)
    slab_ids, slab_logits, slab_plan = run_model(
        model_path, prompt=prompt, n=8, n_ctx=128, max_storage_buffer_binding_size=1 << 20
    )
    assert slab_plan.largest_buffer <= 1 << 20 < plan.largest_buffer
    assert slab_plan.slabs > plan.slabs + 20
    assert slab_ids == ids and np.array_equal(slab_logits, logits)
