"""What a token costs, counted in the worker by wrapping WebGPU's own methods, not by the engine."""

import pytest

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


@pytest.fixture(scope="module")
def worker(lm):
    return lm.guest.page.workers[0]


@pytest.fixture(scope="module", autouse=True)
def _wrapped(run, worker):
    run(worker.evaluate(WRAP))


def counted(run, lm, worker, n, ignore_eos=True, emit=None):
    run(worker.evaluate("Object.assign(counts, {made: 0, submits: 0, maps: 0, bytes: 0})"))
    result = run(lm.generate("The capital of France is", n, ignore_eos, emit))
    return result, run(worker.evaluate("counts"))


def test_a_token_costs_one_submit_and_four_bytes_and_creates_nothing(run, lm, worker):
    one, first = counted(run, lm, worker, 1)
    many, counts = counted(run, lm, worker, 21)
    assert len(many["ids"]) == 21
    assert counts["submits"] - first["submits"] == 20  # N - 1 after the prompt
    assert counts["made"] == 0
    assert (counts["maps"], counts["bytes"]) == (21, 4 * 21)
    assert many["stats"]["submits"] - one["stats"]["submits"] == counts["submits"]
    assert many["stats"]["buffers_created_in_decode"] == 0
    assert many["stats"]["bytes_read_back_per_token"] == 4


def test_an_early_stop_costs_at_most_one_submit_more(run, lm, worker):
    _, first = counted(run, lm, worker, 1)
    pieces: list[str] = []
    result, counts = counted(run, lm, worker, 200, emit=lambda piece: pieces.append(piece) or len(pieces) < 5)
    assert result["stop_reason"] == "cancelled"
    assert counts["submits"] - first["submits"] <= len(result["ids"]) - 1 + 1
    again, _ = counted(run, lm, worker, 3)
    assert len(again["ids"]) == 3
