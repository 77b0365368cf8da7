"""Kernels chosen by measurement in the page: measured once, kept in the Cache API, measured again."""

import pytest
from in_worker import InWorker
from tiny_gguf import tiny_model

pytestmark = pytest.mark.browser

MODEL = tiny_model(quant="Q4_1", n_embd=96, n_head=3, n_head_kv=1, n_ff=160, n_layer=1)
ENTRIES = """async () => {
  const cache = await caches.open("pagelm");
  return Promise.all((await cache.keys()).map(async (r) => [r.url, await (await cache.match(r)).text()]));
}"""
SPOIL = """async () => {
  const cache = await caches.open("pagelm");
  for (const request of await cache.keys()) await cache.put(request, new Response("{"));
}"""


@pytest.fixture
def tuned(browser_lm):
    """A function that loads the model with `tune` and gives what was chosen and the progress."""
    worker = InWorker(browser_lm)
    worker.javascript("async () => caches.delete('pagelm')")
    browser_lm.loaded = None

    def load(tune):
        seen = []
        info = browser_lm.call("load", {"file": MODEL, "tune": tune}, seen.append)
        phases = [event["phase"] for event in seen if event["kind"] == "progress"]
        assert info["memory_used"] == info["plan"]["total"] - info["plan"]["staging"]
        return info["tuning"], "tuning" in phases

    load.worker = worker
    yield load
    worker.javascript("async () => caches.delete('pagelm')")


def test_the_second_load_takes_what_the_first_one_measured(tuned):
    first, measured = tuned("cached")
    assert (first["source"], measured) == ("measured", True)
    assert [row["name"] for row in first["rows"] if row["verdict"] == "chosen"] == [first["name"]]
    assert not [row for row in first["rows"] if row["verdict"].startswith(("wrong", "failed"))]
    second, measured = tuned("cached")
    assert (second["source"], measured) == ("cache", False)
    assert (second["choice"], second["rows"]) == (first["choice"], first["rows"])
    ((address, text),) = tuned.worker.javascript(ENTRIES)
    assert address.startswith("https://pagelm.invalid/") and first["because"] in text


def test_force_measures_again_and_off_goes_by_name(tuned):
    tuned("cached")
    again, measured = tuned("force")
    assert (again["source"], measured) == ("measured", True)
    off, measured = tuned("off")
    assert (off["source"], off["rows"], measured) == ("name", [], False)
    assert len(tuned.worker.javascript(ENTRIES)) == 1


def test_a_spoilt_cache_is_measured_again(tuned):
    tuned("cached")
    tuned.worker.javascript(SPOIL)
    assert tuned("cached")[0]["source"] == "measured"
    assert tuned("cached")[0]["source"] == "cache"


def test_a_page_that_may_keep_nothing_measures_every_time(tuned):
    tuned.worker.javascript(
        "() => Object.defineProperty(self, 'caches', {configurable: true, get() { throw new Error('no'); }})"
    )
    try:
        assert [tuned("cached")[0]["source"] for _ in range(2)] == ["measured", "measured"]
    finally:
        tuned.worker.javascript("() => { delete self.caches; }")


def test_the_device_tells_its_lanes_and_its_browser(tuned):
    code = (
        "from pagelm.device.default import open_gpu\ngpu = await open_gpu()\n[gpu.subgroup_size, gpu.runtime]"
    )
    lanes, runtime = tuned.worker.python(code)
    assert lanes >= 1 and "Chrom" in runtime
