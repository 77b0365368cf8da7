"""Kernels chosen by measurement, on a fake device whose kernels take as long and give what they are told."""

import asyncio
import json
from array import array

import pytest
from fake_gpu import FakeGpu
from fake_model import TINY, load, run

import pagelm
from pagelm.adapt import Choice, candidates, choose, plainest
from pagelm.cancel import Cancel
from pagelm.device import AdapterInfo, Limits
from pagelm.device.file_store import FileStore
from pagelm.errors import Cancelled, DeviceError, PagelmError, ShaderError
from pagelm.gguf import read_gguf
from pagelm.hparams import hparams_from
from pagelm.sources import MemorySource
from pagelm.tune import LIMIT_S, Tuner
from pagelm.weights import matrices_of

QUAD = Choice("quad", "registers", 64)
RIGHT = [0.5 - i for i in range(192)]  # a result; what counts is that all agree
SOFTWARE = {
    "swiftshader": (AdapterInfo("google", "swiftshader", backend="webgpu"), 4),
    "lavapipe-in-disguise": (AdapterInfo("google", "swiftshader", backend="webgpu"), 8),
    "llvmpipe": (AdapterInfo("llvmpipe", "", "llvmpipe (LLVM 15.0.6, 256 bits)", "Mesa", "Vulkan"), 0),
    "lavapipe": (AdapterInfo("mesa", "lavapipe", backend="webgpu"), 8),
}


def matrices():
    gguf = run(read_gguf(MemorySource(TINY)))
    return matrices_of(hparams_from(gguf), gguf, Limits.default())[0]


class Paced(FakeGpu):
    """A dispatch takes `seconds(choice's name)` of `now`; what it stores is `results(name)`."""

    def __init__(self, seconds=lambda name: 1e-3, results=lambda name: RIGHT, limits=None):
        super().__init__(limits)
        self.subgroups, self.timestamps = True, False
        self.now = 0.0
        self.tried: list[str] = []
        self._seconds, self._results = seconds, results

    def submit(self, recording, read=None):
        if recording[0].label == "tuning":
            for step in recording:
                share, rows, tile = step.pipeline.name.split(".")[-3:]
                name = f"{share}.{rows}.wg{step.pipeline.overrides['WG']}.{tile.partition('t')[0]}"
                self.now += self._seconds(name)
            self.tried.append(name)
            got = array("f", self._results(name)).tobytes()
            recording[0].bindings[-1].data[: len(got)] = got
        return super().submit(recording, read)


class Kept:
    """A store in memory that counts."""

    def __init__(self, text=None):
        self.text, self.sets = text, 0

    async def get(self, key):
        self.key = key
        return self.text

    async def set(self, key, text):
        assert key == self.key
        self.text, self.sets = text, self.sets + 1


def tuned(gpu, mode="force", store=None, named=QUAD, report=lambda p: None, cancel=None):
    if store is not None and mode == "force":
        store.key = Tuner("cached")._key(gpu, pagelm.tune.sample_of(matrices()))
    tuner = Tuner(mode, store, clock=lambda: gpu.now)
    return run(tuner.tune(gpu, matrices(), named, report, cancel or Cancel()))


def verdicts(tuning):
    return {row.choice.name: row.verdict for row in tuning.rows}


def test_the_fastest_is_chosen_and_the_table_says_by_how_much():
    gpu = Paced(lambda name: 1e-3 if name == "alone.registers.wg32.p2" else 2e-3)
    tuning = tuned(gpu)
    assert tuning.choice == Choice("alone", "registers", 32, 2)
    assert tuning.source == "measured" and "2.00 times as long" in tuning.because
    found = {row.choice.name: row for row in tuning.rows}
    assert len(found) == 18 and found[tuning.choice.name].ms == pytest.approx(1)
    assert all(row.ms == pytest.approx(2) for name, row in found.items() if name != tuning.choice.name)
    assert sum(verdict == "chosen" for verdict in verdicts(tuning).values()) == 1
    assert gpu.memory_used == 0 and gpu.buffers_created > 0


def test_within_three_percent_the_first_of_the_list_is_kept():
    tuning = tuned(Paced(lambda name: 1.02e-3 if name == QUAD.name else 1e-3))
    assert tuning.choice == QUAD and "listed before" in tuning.because
    assert tuned(Paced(lambda name: 1.04e-3 if name == QUAD.name else 1e-3)).choice != QUAD


@pytest.mark.parametrize("off", [1e-3, float("nan"), float("inf")])
def test_what_is_faster_but_wrong_is_refused_and_told(off):
    wrong = "quad.registers.wg64.p4"
    gpu = Paced(
        lambda name: 1e-6 if name == wrong else 1e-3,
        lambda name: [*RIGHT[:-1], RIGHT[-1] * (1 + off)] if name == wrong else RIGHT,
    )
    tuning = tuned(gpu)
    assert tuning.choice.name != wrong
    row = next(row for row in tuning.rows if row.choice.name == wrong)
    assert row.ms is None and row.verdict.startswith("wrong: off by")
    assert gpu.tried.count(wrong) == 1  # never timed


def test_rounding_is_not_an_error():
    right = [value * (1 + 1e-7) for value in RIGHT]
    tuning = tuned(
        Paced(lambda n: 1e-3 if n == QUAD.name else 2e-3, lambda n: right if "quad" in n else RIGHT)
    )
    assert tuning.choice == QUAD


def test_rows_that_a_candidate_does_not_store_are_found_wrong():
    """The result of the one before lies in the same buffer."""
    gpu = Paced(results=lambda name: RIGHT[:-1] if name == QUAD.name else RIGHT)
    assert verdicts(tuned(gpu))[QUAD.name].startswith("wrong: off by")


def test_a_kernel_that_does_not_compile_is_refused_and_told():
    class Choosy(Paced):
        async def pipeline(self, kernel):
            if kernel.name.endswith("quad.registers.p4t1"):
                raise ShaderError("shaders/rows/registers.wgsl:7:1 no such thing")
            return await super().pipeline(kernel)

    tuning = tuned(Choosy())
    told = [row for row in tuning.rows if row.choice.share == "quad" and row.choice.pairs == 4]
    assert len(told) == 3 and all(
        row.verdict.startswith("failed: shaders/rows/registers.wgsl:7") for row in told
    )
    assert tuning.choice not in [row.choice for row in told]


def test_a_lost_device_ends_it_and_everything_is_freed():
    class Lost(Paced):
        def submit(self, recording, read=None):
            if len(self.tried) == 5:
                raise DeviceError("the GPU device was lost")
            return super().submit(recording, read)

    gpu = Lost()
    with pytest.raises(DeviceError, match="lost"):
        tuned(gpu)
    assert gpu.memory_used == 0


def test_a_device_lost_while_kernels_compile_leaves_none_behind():
    class Lost(Paced):
        async def pipeline(self, kernel):
            await asyncio.sleep(0)
            if len(self.kernels) == 3:
                raise DeviceError("the GPU device was lost")
            return await super().pipeline(kernel)

    gpu = Lost()
    with pytest.raises(DeviceError, match="lost"):
        tuned(gpu)
    assert gpu.memory_used == 0


def test_cancelling_ends_it_and_everything_is_freed():
    gpu, cancel, seen = Paced(), Cancel(), []

    def report(progress):
        seen.append(progress)
        if len(seen) == 25:
            cancel.cancel()

    with pytest.raises(Cancelled, match="choosing the kernels"):
        tuned(gpu, report=report, cancel=cancel)
    assert gpu.memory_used == 0 and len(seen) == 25


def test_progress_runs_up_to_its_total():
    seen = []
    tuned(Paced(lambda name: 1e-3 if "quad" in name else 9e-3), report=seen.append)
    assert {p.phase for p in seen} == {"tuning"} and len({p.total for p in seen}) == 1
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == seen[-1].total and done[-2] < done[-1]


@pytest.mark.parametrize("seconds", [0.1, 0.4, 5.0])
def test_time_is_limited_and_the_best_so_far_is_kept(seconds):
    gpu = Paced(lambda name: seconds)
    tuning = tuned(gpu)
    assert gpu.now <= LIMIT_S + 2 * seconds  # what was begun ends
    assert len(tuning.rows) == 18
    assert any("no time left" in verdict for verdict in verdicts(tuning).values())
    assert verdicts(tuning)[tuning.choice.name] == "chosen" and tuning.seconds == gpu.now


def test_without_time_what_is_wrong_is_still_refused_and_nothing_is_kept():
    store = Kept()
    wrong = [-value for value in RIGHT]
    gpu = Paced(lambda name: 0.5, lambda name: wrong if name == QUAD.name else RIGHT)
    tuning = tuned(gpu, "cached", store)
    assert tuning.choice == plainest(gpu) and "no time" in tuning.because
    assert verdicts(tuning)[QUAD.name].startswith("wrong") and store.text is None


def test_a_slow_candidate_leaves_the_race_after_one_batch():
    gpu = Paced(lambda name: 20e-3 if name == "alone.registers.wg64.p1" else 2e-3)
    tuned(gpu)
    assert gpu.tried.count("alone.registers.wg64.p1") < gpu.tried.count(QUAD.name)


def test_nothing_to_be_held_to_means_by_name():
    tuning = tuned(Paced(results=lambda name: [0.0] * len(RIGHT)))
    assert (tuning.source, tuning.choice, tuning.rows) == ("name", QUAD, ())
    assert "nothing to be held to" in tuning.because


def test_off_goes_by_name_and_runs_nothing():
    gpu, store = Paced(), Kept()
    tuning = tuned(gpu, "off", store)
    assert (tuning.source, tuning.choice) == ("name", QUAD)
    assert gpu.buffers_created == 0 and store.text is None


def test_what_was_measured_is_kept_and_the_next_time_nothing_is_measured():
    store = Kept()
    first = tuned(Paced(lambda name: 1e-3 if name == "quad.registers.wg32.p2" else 2e-3), "cached", store)
    gpu = Paced()
    second = tuned(gpu, "cached", store)
    assert (first.source, second.source, store.sets) == ("measured", "cache", 1)
    assert (second.choice, second.rows, second.because) == (first.choice, first.rows, first.because)
    assert gpu.buffers_created == 0 and gpu.kernels == []


def test_force_measures_what_is_kept_again_and_keeps_the_new():
    store = Kept()
    tuned(Paced(lambda name: 1e-3 if name == "quad.registers.wg32.p2" else 2e-3), "cached", store)
    again = tuned(Paced(lambda name: 1e-3 if name == "quad.registers.wg128.p1" else 2e-3), "force", store)
    assert again.source == "measured" and again.choice.workgroup_size == 128
    assert json.loads(store.text)["choice"]["workgroup_size"] == 128 and store.sets == 2


def changed(**fields):
    tuning = tuned(Paced()).as_dict()
    return json.dumps({**tuning, "choice": {**tuning["choice"], **fields}})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[1]",
        '"text"',
        "{}",
        '{"choice": 1, "rows": []}',
        '{"choice": {"share": "quad"}, "rows": [], "because": ""}',
        changed(workgroup_size=7),  # no candidate here
        changed(rows="loop"),
        changed(new_field=1),
        changed(pairs=[4]),
    ],
)
def test_a_cache_with_something_else_in_it_is_measured_again(text):
    store = Kept(text)
    assert tuned(Paced(), "cached", store).source == "measured"
    assert store.sets == 1 and json.loads(store.text)["source"] == "measured"


def test_what_the_choice_depends_on_is_in_the_key():
    def key(gpu, version="1"):
        return Tuner(version=version)._key(gpu, pagelm.tune.sample_of(matrices()))

    one, other = Paced(), Paced()
    assert key(one) == key(other) != key(one, "2")
    other.runtime = "fake 2"
    assert key(other) != key(one)
    other = Paced()
    other.adapter = AdapterInfo(vendor="fake", backend="none", description="driver 2")
    assert key(other) != key(one)


@pytest.mark.parametrize("name", [name for name in SOFTWARE if name != "swiftshader"])
@pytest.mark.parametrize("share", ["quad", "alone"])
def test_mesa_is_never_asked_to_unroll_a_loop(name, share):
    gpu = Paced()
    gpu.adapter, gpu.subgroup_size = SOFTWARE[name]
    named = run(choose(gpu))
    assert (named.rows, named.workgroup_size) == ("registers", 8)
    found = candidates(gpu, Choice(share, "registers", 8))
    assert len(found) >= 2 and {choice.rows for choice in found} == {"registers"}


def test_swiftshader_is_offered_loops():
    gpu = Paced()
    gpu.adapter, gpu.subgroup_size = SOFTWARE["swiftshader"]
    found = candidates(gpu, Choice("quad", "loop", 4, 32, 30))
    assert [c.name for c in found] == [
        "quad.loop.wg4.p32.i30",
        "alone.loop.wg4.p32.i30",
        "quad.registers.wg4.p2",
        "alone.registers.wg64.p1",
    ]


def test_no_candidate_has_quads_where_they_do_not_work():
    for name in (*SOFTWARE, ""):
        gpu = Paced()
        gpu.adapter, gpu.subgroup_size = SOFTWARE.get(name, (gpu.adapter, 0))
        assert {c.share for c in candidates(gpu, run(choose(gpu)))} == {"alone"}


@pytest.mark.parametrize("most", [1, 32, 64, 256])
def test_no_candidate_is_wider_than_the_limits(most):
    gpu = Paced(limits=Limits(max_compute_invocations_per_workgroup=most))
    found = candidates(gpu, Choice("quad", "registers", gpu.limits.workgroup_size()))
    assert {c.workgroup_size for c in found} == {min(most, n) for n in (32, 64, 128)}
    assert found[-1] == plainest(gpu) and found.count(found[-1]) == 1


def test_a_model_is_loaded_with_what_was_chosen():
    gpu = Paced(lambda name: 1e-3 if name == "alone.registers.wg32.p2" else 2e-3)
    seen = []
    model = load(gpu, tuner=Tuner("force", clock=lambda: gpu.now), on_progress=seen.append)
    assert model.tuning.choice == Choice("alone", "registers", 32, 2)
    assert {kernel.overrides["WG"] for kernel in gpu.kernels if kernel.name.startswith("qkv")} == {32}
    assert any(p.phase == "tuning" for p in seen)
    assert model.memory_used == load(Paced()).memory_used
    assert load(Paced()).tuning.source == "name"


def test_load_refuses_another_way_to_tune():
    with pytest.raises(PagelmError, match="tune is 'often'; allowed: off, cached, force"):
        run(pagelm.load(TINY, gpu=FakeGpu(), tune="often"))


def test_prompts_keep_their_pairs_whatever_is_best_for_a_token():
    for pairs in (1, 2, 4):
        choice = Choice("quad", "registers", 64, pairs)
        assert [choice.pairs_of(4096, tokens) for tokens in (1, 4, 8)] == [pairs, 4, 4]
    assert Choice("quad", "loop", 4, 32, 30).pairs_of(4096, 8) == 32


# ---- the store of the desktop ----


def test_a_file_keeps_texts(tmp_path):
    path = tmp_path / "new" / "tuning.json"
    run(FileStore(path).set("a", "1"))
    run(FileStore(path).set("b", "2"))
    run(FileStore(path).set("a", "3"))
    assert [run(FileStore(path).get(key)) for key in ("a", "b", "c")] == ["3", "2", None]
    assert [p.name for p in path.parent.iterdir()] == ["tuning.json"]
    for i in range(300):
        run(FileStore(path).set(str(i), "x"))
    assert len(json.loads(path.read_text())) == 100 and run(FileStore(path).get("299")) == "x"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a": 1}', b"null"])
def test_a_file_that_is_none_of_ours_is_replaced(tmp_path, content):
    path = tmp_path / "tuning.json"
    path.write_bytes(content)
    store = FileStore(path)
    assert run(store.get("a")) is None
    run(store.set("a", "1"))
    assert run(store.get("a")) == "1"


def test_a_place_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    store = FileStore(tmp_path / "file" / "tuning.json")
    run(store.set("a", "1"))
    assert run(store.get("a")) is None
