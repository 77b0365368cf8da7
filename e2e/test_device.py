"""BrowserGpu in Chromium: replay and read-back, compiling, limits, losses, and what no error may hide.

Most of the Python here runs in the worker: `python(code)` gives the value of its last expression.
"""

from collections.abc import Callable
from typing import Any

import pytest
from in_worker import InWorker

Python = Callable[[str], Any]

SETUP = '''
import asyncio, gc, js
from array import array
from dataclasses import replace
from pagelm import errors
from pagelm.device import Binding, Chunk, Kernel, Piece, Step
from pagelm.device.browser import BrowserGpu

SOURCE = """override STEP: u32;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x < arrayLength(&x)) { y[id.x] += x[id.x] + STEP; }
}
"""
LINES = tuple(("shaders/accumulate.wgsl", 10 + i) for i in range(8))
BINDINGS = Binding("x", "read"), Binding("y", "read_write")
ACCUMULATE = Kernel("accumulate", SOURCE, BINDINGS, {"STEP": 3}, LINES)

async def refused(call):
    """The error that a call ends with, as "Type: message"."""
    try:
        result = call()
        if hasattr(result, "__await__"):
            await result
    except errors.PagelmError as e:
        return f"{type(e).__name__}: {e}"
    return "nothing was refused"

async def fresh():
    """A device with 1024 numbers 0, 1, … in x, zeros in y, and a recording of one accumulating step."""
    global gpu, x, y, pipeline, once
    if "gpu" in globals():
        gpu.close()
    gpu = await BrowserGpu.open()
    x, y = gpu.buffer(4096, "x"), gpu.buffer(4096, "y")
    gpu.write(x, 0, array("I", range(1024)).tobytes())
    pipeline = await gpu.pipeline(ACCUMULATE)
    once = gpu.record([Step(pipeline, gpu.bind(pipeline, [x, y]), (16, 1, 1), "accumulate")])
'''


@pytest.fixture(scope="module")
def worker(_browser_lm: Any) -> InWorker:
    inside = InWorker(_browser_lm)
    inside.python(SETUP)
    return inside


@pytest.fixture
def python(worker: InWorker) -> Python:
    """Run Python in the worker, a fresh device in `gpu`."""
    worker.python("await fresh()")
    return worker.python


# ---- replay ----


def test_recording_replays_every_step_in_order(python: Python) -> None:
    value = python("""
many = gpu.record([Step(pipeline, gpu.bind(pipeline, [x, y]), (16, 1, 1))] * 400)
first = await gpu.submit(many, (y, 4 * 10))
assert gpu.submit(many) is None
numbers = array("I", await gpu.read(y, 0, 4096))
[first, all(numbers[i] == 800 * (i + 3) for i in range(1024))]
""")
    assert value == [400 * 13, True]


def test_reads_in_flight_give_the_value_of_their_own_submit(python: Python) -> None:
    values = python("""
pending, values = [], []
for _ in range(20):
    pending.append(gpu.submit(once, (y, 4 * 10)))
    if len(pending) == 3:
        values.append(await pending.pop(0))
for value in pending:
    values.append(await value)
values
""")
    assert values == [13 * (i + 1) for i in range(20)]


def test_reads_that_nobody_awaits_give_their_slots_back(python: Python) -> None:
    refused, value = python("""
for _ in range(4):
    gpu.submit(once, (y, 40))
text = await refused(lambda: gpu.submit(once, (y, 40)))
await gpu.idle()
await asyncio.sleep(0.1)
[text, await gpu.submit(once, (y, 40))]
""")
    assert "more than 4 reads are pending" in refused
    assert value == 13 * 5  # the refused one was not submitted


def test_token_loop_makes_nothing_but_its_commands(python: Python, worker: InWorker) -> None:
    python("""
async def tokens(n):
    pending = []
    for _ in range(n):
        pending.append(gpu.submit(once, (y, 40)))
        if len(pending) == 2:
            await pending.pop(0)
    await pending.pop(0)
await tokens(20)
""")
    made = worker.javascript("""async () => {
      const made = {}, undo = [];
      for (const type of [GPUDevice, GPUQueue, GPUBuffer, GPUCommandEncoder]) {
        for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(type.prototype))) {
          if (typeof value !== "function" || name === "constructor") continue;
          undo.push(() => (type.prototype[name] = value));
          type.prototype[name] = function (...args) {
            made[name] = (made[name] ?? 0) + 1;
            return value.apply(this, args);
          };
        }
      }
      try {
        await pyodide.runPythonAsync("await tokens(100)");
        return made;
      } finally {
        undo.forEach((f) => f());
      }
    }""")
    per_token = ["createCommandEncoder", "beginComputePass", "copyBufferToBuffer", "finish", "submit"]
    per_token += ["mapAsync", "getMappedRange", "unmap"]
    assert made == dict.fromkeys(per_token, 100)


def test_thousand_submits_leave_nothing_behind(python: Python) -> None:
    before, after, grown = python("""
import pyodide_js
wasm = lambda: pyodide_js._module.HEAPU8.byteLength
async def tokens(n):
    for _ in range(n):
        await gpu.submit(once, (y, 40))
    gc.collect()
    return len(gc.get_objects())
before, size = await tokens(100), wasm()
[before, await tokens(1000), wasm() - size]
""")
    assert abs(after - before) < 50
    assert grown == 0


def test_timed_replay_does_the_work_and_brings_the_times_of_every_pass(python: Python) -> None:
    value, spans, whole, wall_ns = python("""
import time
many = gpu.record([Step(pipeline, gpu.bind(pipeline, [x, y]), (16, 1, 1))] * 100)
await gpu.timed(many)
before = time.perf_counter_ns()
coming = gpu.timed(many), gpu.timed(many, whole=True)
spans, whole = [await c for c in coming]
wall_ns = time.perf_counter_ns() - before
numbers = array("I", await gpu.read(y, 0, 4096))
first = spans[0][0]  # JavaScript's numbers hold differences, not moments
spans, whole = ([[a - first, b - first] for a, b in times] for times in (spans, whole))
[[numbers[10]], spans, whole, wall_ns]
""")
    assert value == [300 * 13]
    assert (len(spans), len(whole)) == (100, 1)
    moments = [moment for span in (*spans, *whole) for moment in span]
    assert moments == sorted(moments) and 0 < moments[-1] <= wall_ns * 1.001 + 200_000  # rounded at most so


def test_timing_needs_timestamp_queries(python: Python) -> None:
    told = python("gpu.timestamps = False; await refused(lambda: gpu.timed(once))")
    assert "DeviceError: the adapter " in told and "timestamp-query" in told


def test_recording_that_webgpu_refuses_is_told_once(python: Python) -> None:
    awaited, not_awaited, after = python("""
wrong = gpu.bind(pipeline, [x, x])  # one buffer, read and written in one dispatch
with_read = await refused(lambda: gpu.submit(gpu.record([Step(pipeline, wrong, (1, 1, 1))]), (y, 0)))
gpu.submit(gpu.record([Step(pipeline, wrong, (1, 1, 1))]))
[with_read, await refused(gpu.idle), await refused(gpu.idle)]
""")
    assert awaited.startswith("DeviceError") and "writable usage" in awaited
    assert not_awaited == awaited
    assert after == "nothing was refused"


# ---- buffers ----


def test_reading_back_works_at_any_offset(python: Python) -> None:
    assert (
        python("""
data = bytes(i * 7 % 256 for i in range(4096))
gpu.write(x, 0, data)
ranges = [(0, 4096), (1, 1), (3, 6), (5, 0), (4095, 1), (8, 4)]
[await gpu.read(x, at, n) == data[at:at + n] for at, n in ranges]
""")
        == [True] * 6
    )


def test_new_buffers_are_zero_and_rounded_to_words(python: Python) -> None:
    assert python("b = gpu.buffer(5, 'five'); list(await gpu.read(b, 0, b.nbytes))") == [0] * 8


def test_memory_used_counts_live_buffers(python: Python) -> None:
    assert python("""
start = gpu.memory_used
a, b = gpu.buffer(1000, "a"), gpu.buffer(5, "b")
both = gpu.memory_used - start
gpu.free(a, b)
gpu.free(a)
[start, both, gpu.memory_used - start]
""") == [8192, 1008, 0]


def test_uniform_buffer_reaches_its_kernel(python: Python) -> None:
    assert (
        python('''
source = """struct P { n: u32 }
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@group(0) @binding(1) var<uniform> p: P;
@compute @workgroup_size(1) fn main() { y[0] = p.n; }"""
p = await gpu.pipeline(Kernel("u", source, (Binding("y", "read_write"), Binding("p", "uniform")), {}))
n = gpu.buffer(4, "n")
gpu.write(n, 0, array("I", [77]).tobytes())
await gpu.submit(gpu.record([Step(p, gpu.bind(p, [y, n]), (1, 1, 1))]), (y, 0))
''')
        == 77
    )


# ---- limits ----


def test_limits_are_the_adapters_not_the_defaults(python: Python) -> None:
    ours, theirs = python("""
adapter = await js.navigator.gpu.requestAdapter()
[[gpu.limits.max_buffer_size, gpu.limits.max_storage_buffer_binding_size,
  gpu.limits.max_storage_buffers_per_shader_stage, gpu.limits.max_compute_workgroup_storage_size],
 [adapter.limits.maxBufferSize, adapter.limits.maxStorageBufferBindingSize,
  adapter.limits.maxStorageBuffersPerShaderStage, adapter.limits.maxComputeWorkgroupStorageSize]]
""")
    assert ours == theirs


def test_what_passes_a_limit_is_refused_before_it_is_made(python: Python) -> None:
    buffer, budget, binding, grid = python("""
gpu.limits = replace(gpu.limits, max_buffer_size=1 << 20, memory_budget=1 << 21)
gpu.limits = replace(gpu.limits, max_storage_buffer_binding_size=4096)
texts = [await refused(lambda: gpu.buffer((1 << 20) + 1, "token_embd"))]
kept = gpu.buffer(1 << 20, "kept")
texts.append(await refused(lambda: gpu.buffer(1 << 20, "next")))
texts.append(await refused(lambda: gpu.bind(pipeline, [kept, y])))
texts.append(await refused(lambda: gpu.record([Step(pipeline, None, (1, 65536, 1), "blk.0.attn_q")])))
texts
""")
    assert buffer == "LimitError: token_embd needs a buffer of 1048580 bytes; this adapter allows 1048576"
    assert "next needs 1048576 bytes" in budget and "1040384 are left" in budget
    assert binding == "LimitError: kept needs one binding of 1048576 bytes; this adapter allows 4096"
    assert grid.startswith("LimitError: blk.0.attn_q needs (1, 65536, 1) workgroups")


@pytest.mark.vendor_sensitive
def test_out_of_memory_names_the_buffer_and_spares_the_device(python: Python) -> None:
    if python("gpu.adapter.architecture") != "swiftshader":
        pytest.skip("only SwiftShader is known to refuse a buffer of exactly its limit")
    refused, after = python("""
big = gpu.buffer(gpu.limits.max_buffer_size, "big")
text = await refused(gpu.idle)
gpu.free(big)
[text, await gpu.submit(once, (y, 40))]
""")
    assert refused.startswith("LimitError: buffer big of") and "no memory left" in refused
    assert after == 13


# ---- compiling ----


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('source=SOURCE.replace("+ STEP", "+ STEPP")', "ShaderError: shaders/accumulate.wgsl:14:"),
        ('source=SOURCE.replace("fn main", "fn mean")', "ShaderError: shaders/accumulate.wgsl: Entry point"),
        ('overrides={"STEP": 3, "STRIDE": 1}', "STRIDE"),
        ("overrides={}", "STEP"),
        ("bindings=ACCUMULATE.bindings[:1]", "@binding(1)"),
        # both bindings are wrong; which of them Dawn names differs from run to run
        ('bindings=(Binding("x", "read_write"), Binding("y", "read"))', "BufferBindingType"),
    ],
)
def test_kernel_that_does_not_compile_says_where(python: Python, change: str, told: str) -> None:
    text = python(f"await refused(lambda: gpu.pipeline(replace(ACCUMULATE, {change})))")
    assert text.startswith("ShaderError: shaders/accumulate.wgsl")
    assert told in text
    assert "\n" not in text
    assert python("await gpu.submit(once, (y, 40))") == 13  # no error scope was left open, nothing is lost


def test_compiling_many_at_once_keeps_their_errors_apart(python: Python) -> None:
    assert (
        python("""
wrong = replace(ACCUMULATE, source=SOURCE.replace("STEP;", "STEPS;"))
both = await asyncio.gather(*(gpu.compile(k) for k in [ACCUMULATE, wrong] * 4))
[made[0] is not None for made in both]
""")
        == [True, False] * 4
    )


def test_warnings_of_the_compiler_come_out(python: Python) -> None:
    made, messages = python("""
source = SOURCE + "fn f() -> u32 { return 1u; return 2u; }"
made, messages, _ = await gpu.compile(replace(ACCUMULATE, source=source))
[made is not None, [[m.type, m.line, m.text] for m in messages]]
""")
    assert made
    assert messages == [["warning", 7, "code is unreachable"]]


# ---- losses ----

EVERYTHING = """[await refused(call) for call in [
    lambda: gpu.submit(once), lambda: gpu.submit(once, (y, 0)), gpu.idle, lambda: gpu.read(y, 0, 4),
    lambda: gpu.write(x, 0, bytes(4)), lambda: gpu.buffer(4, "b"), lambda: gpu.pipeline(ACCUMULATE),
    lambda: gpu.bind(pipeline, [x, y]),
    lambda: gpu.upload(MemorySource(bytes(8)), Chunk(0, 8, (Piece(x, 0, 0, 8),)))]]"""


def test_every_call_on_a_lost_device_says_so(python: Python) -> None:
    pending, lost, texts, again = python(f"""
from pagelm.sources import MemorySource
value = gpu.submit(once, (y, 40))
gpu._js.device.destroy()
pending = await refused(lambda: value)
texts = {EVERYTHING}
lost = gpu.lost
await fresh()
[pending, lost, texts, await gpu.submit(once, (y, 40))]
""")
    assert lost.startswith("the GPU device was lost") and "load the model again" in lost
    assert [pending, *texts] == [f"DeviceError: {lost}"] * 10
    assert again == 13


def test_closed_device_refuses_everything_quietly(python: Python) -> None:
    texts, used = python(f"""
from pagelm.sources import MemorySource
gpu.close()
texts = {EVERYTHING}
gpu.free(x)
gpu.close()
[texts, gpu.memory_used]
""")
    assert texts == ["DeviceError: the device was closed"] * 9
    assert used == 0


@pytest.mark.parametrize(
    ("hidden", "advice"),
    [
        ("Object.defineProperty(navigator, 'gpu', {value: undefined, configurable: true})", "no WebGPU"),
        ("navigator.gpu.requestAdapter = async () => null", "--enable-unsafe-webgpu"),
        (
            "navigator.gpu.requestAdapter = async () => ({limits: {}, info: {}, features: new Set(), "
            "requestDevice: async () => { throw new DOMException('used', 'OperationError') }})",
            "gave no device: used",
        ),
    ],
)
def test_missing_webgpu_says_what_to_do(worker: InWorker, hidden: str, advice: str) -> None:
    worker.javascript(f"() => {{ {hidden}; }}")
    try:
        text = worker.python("await refused(BrowserGpu.open)")
    finally:
        worker.javascript("() => { delete navigator.gpu; delete navigator.gpu.requestAdapter; }")
    assert text.startswith("DeviceError: ")
    assert advice in text
