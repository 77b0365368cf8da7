"""What a token costs, counted in the worker by wrapping WebGPU's own methods, not by the engine."""

import pytest
from in_worker import usual_costs

pytestmark = [pytest.mark.browser, pytest.mark.model]

WRAP = """() => {
  const counts = (globalThis.counts = { made: 0, submits: 0, maps: 0, bytes: 0, largest: 0, written: 0 });
  const wrap = (proto, name, note) => {
    const inner = proto[name];
    proto[name] = function (...args) { note(...args); return inner.apply(this, args); };
  };
  for (const name of ["createBuffer", "createBindGroup", "createBindGroupLayout", "createPipelineLayout",
      "createShaderModule", "createComputePipeline", "createComputePipelineAsync", "createTexture",
      "createQuerySet"])
    wrap(GPUDevice.prototype, name, () => counts.made++);
  wrap(GPUQueue.prototype, "submit", (buffers) => (counts.submits += buffers.length > 0));
  wrap(GPUQueue.prototype, "writeBuffer", (buffer, offset, data, from, size) => {
    const bytes = size ?? data.byteLength;
    if (counts.uploading) { counts.written += bytes; counts.largest = Math.max(counts.largest, bytes); }
  });
  wrap(GPUBuffer.prototype, "mapAsync", function () { counts.maps++; });
  const range = GPUBuffer.prototype.getMappedRange;
  GPUBuffer.prototype.getMappedRange = function (...args) {
    const got = range.apply(this, args);
    counts.bytes += got.byteLength;
    return got;
  };
}"""


@pytest.fixture
def counts(loaded_lm):
    """A function that generates `n` tokens and gives the result and the counts."""
    worker = loaded_lm.lm.page.workers[0]
    if not loaded_lm.run(worker.evaluate("'counts' in globalThis")):
        loaded_lm.run(worker.evaluate(WRAP))

    def generate(n, emit=None, prompt="The capital of France is"):
        zero = "Object.assign(counts, {made: 0, submits: 0, maps: 0, bytes: 0})"
        loaded_lm.run(worker.evaluate(zero))
        result = loaded_lm.run(loaded_lm.lm.generate(prompt, n, True, emit))
        return result, loaded_lm.run(worker.evaluate("counts"))

    return generate


def test_a_token_costs_one_submit_and_four_bytes_and_creates_nothing(counts):
    one, first = counts(1)
    many, more = counts(21)
    assert len(many["ids"]) == 21
    assert more["submits"] - first["submits"] == 20  # N - 1 after the prompt
    assert more["made"] == 0
    assert (more["maps"], more["bytes"]) == (21, 4 * 21)
    assert many["stats"]["submits"] - one["stats"]["submits"] == more["submits"]
    assert many["stats"]["buffers_created_in_decode"] == 0
    assert many["stats"]["bytes_read_back_per_token"] == 4


def test_an_early_stop_costs_at_most_one_submit_more(counts):
    _, first = counts(1)
    pieces: list[str] = []
    result, more = counts(200, emit=lambda piece: pieces.append(piece) or len(pieces) < 5)
    assert result["stop_reason"] == "cancelled"
    assert more["submits"] - first["submits"] <= len(result["ids"]) - 1 + 1
    again, _ = counts(3)
    assert len(again["ids"]) == 3


def test_guessed_tokens_share_submits_and_create_nothing(counts, loaded_lm):
    repeats = "1, 2, 1, 2, 1, 2, 1, 2,"
    with usual_costs(loaded_lm):
        for _ in range(50):  # until the kernels are there
            one, first = counts(1, prompt=repeats)
            many, more = counts(33, prompt=repeats)
            accepted = many["stats"]["accepted"] - one["stats"]["accepted"]
            pieces = [
                run["submits"] - run["maps"] for run in (first, more)
            ]  # of the prompt: a slow one has more
            if accepted > 8 and not more["made"] and pieces[0] == pieces[1]:
                break
    assert accepted > 8
    submits = more["submits"] - first["submits"]
    assert 8 <= submits <= 32 - accepted + 1
    assert (more["made"], more["bytes"]) == (0, 4 * more["maps"])
    assert more["maps"] - first["maps"] == submits
    assert many["stats"]["buffers_created_in_decode"] == 0
