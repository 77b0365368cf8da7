"""In Chromium: split models from servers, pickers, stored files and bytes; files past 4 GiB; narrow limits.

The folder that is served is another origin than the page's, as a model's server mostly is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cut_server import CutServer
from in_worker import InWorker
from playwright.sync_api import Page, expect
from split_gguf import split, write_parts, write_spread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from test_page import SLOW_MS, open_page, wait_for_end, write
from tiny_gguf import tiny_model

from pagelm.errors import SourceError, SplitError
from pagelm.host.oracle import Oracle
from pagelm.host.server import serve_app, start_server

PROMPT = [(i * 37 + 11) % 300 for i in range(21)]
CUTS = [0, 7, 6]  # tensors of the parts; the rest is in a fourth
SPREAD = 1 << 28  # bytes from one tensor to the next: of 20, those from the 16th on lie past 2^32


class Folder:
    """Files on a server, and the names that were asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = ""

    def app(self) -> Starlette:
        cors = Middleware(CORSMiddleware, allow_origins=["*"], expose_headers=["Content-Range"])
        return Starlette(routes=[Mount("/", StaticFiles(directory=self.path))], middleware=[cors])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Folder]:
    found = Folder(tmp_path_factory.mktemp("models"))
    with serve_app(found.app()) as server:
        found.url = server.url
        yield found


@pytest.fixture(scope="module")
def tiny(folder: Folder) -> bytes:
    data = tiny_model(folder.path / "whole.gguf")
    write_parts(folder.path, data, CUTS)
    return data


@pytest.fixture(scope="module")
def paths(tiny: bytes, folder: Folder) -> list[Path]:
    return sorted(folder.path.glob("tiny-*.gguf"))


@pytest.fixture(scope="module")
def whole(_browser_lm: Any, tiny: bytes) -> Any:
    """Four steps of the model in one file: (id, logits) of each."""
    _browser_lm.load(tiny)
    return _browser_lm.trace(PROMPT, 4)


def load(browser_lm: Any, **args: Any) -> dict[str, Any]:
    browser_lm.loaded = None  # what the fixture thinks is loaded goes away
    info: dict[str, Any] = browser_lm.call("load", {"n_ctx": 64, **args})
    return info


def pick(browser_lm: Any, paths: list[Path], given: str = "[...files]") -> Any:
    """What loading files from a picker, in this order, brings: the answer, or an error's text."""
    lm, page = browser_lm, browser_lm.lm.page
    lm.loaded = None
    lm.run(page.evaluate("document.body.innerHTML = '<input type=file id=pick multiple>'"))
    lm.run(page.set_input_files("#pick", paths))
    return lm.run(
        page.evaluate(f"""() => {{
          const {{ files }} = document.getElementById("pick");
          return window.pagelm.call("load", {{file: {given}, n_ctx: 64}})
            .then((info) => info, (error) => `${{error.name}}: ${{error.message}}`);
        }}""")
    )


def assert_same(steps: Any, expected: Any) -> None:
    assert [token for token, _ in steps] == [token for token, _ in expected]
    for (_, got), (_, wanted) in zip(steps, expected, strict=True):
        assert np.array_equal(got, wanted)


# ---- where parts come from ----


@pytest.mark.parametrize("named", [0, 2, 3])
def test_url_of_any_part_loads_the_model(
    browser_lm: Any, whole: Any, folder: Folder, paths: list[Path], named: int
) -> None:
    events: list[dict[str, Any]] = []
    browser_lm.loaded = None
    url = f"{folder.url}{paths[named].name}?download=true"
    info = browser_lm.call("load", {"url": url, "n_ctx": 64}, events.append)
    assert info["n_parts"] == 4 and info["size"] == sum(path.stat().st_size for path in paths)
    assert info["name"] == f"{folder.url}{paths[0].name}?download=true"
    weights = [e for e in events if e.get("phase") == "weights"]
    assert weights[-1]["done"] == weights[-1]["total"] and len({e["total"] for e in weights}) == 1
    assert_same(browser_lm.trace(PROMPT, 4), whole)


def test_connections_that_are_cut_in_any_part_are_taken_up_again(
    browser_lm: Any, whole: Any, folder: Folder, paths: list[Path]
) -> None:
    app = CutServer(folder.path, 15000)
    with serve_app(app) as server:
        load(browser_lm, url=server.url + paths[0].name)
    assert set(app.cuts) == {path.name for path in paths[1:]}
    assert_same(browser_lm.trace(PROMPT, 4), whole)


def test_list_of_urls_loads_the_model(browser_lm: Any, whole: Any, folder: Folder, paths: list[Path]) -> None:
    load(browser_lm, url=[folder.url + path.name for path in paths[::-1]])
    assert_same(browser_lm.trace(PROMPT, 4), whole)


@pytest.mark.parametrize("given", ["[...files]", "files"])
def test_picked_files_in_any_order_load_the_model(
    browser_lm: Any, whole: Any, paths: list[Path], given: str
) -> None:
    """As an array and as the picker's own FileList."""
    info = pick(browser_lm, [paths[2], paths[0], paths[3], paths[1]], given)
    assert (info["name"], info["n_parts"]) == (paths[0].name, 4)
    assert_same(browser_lm.trace(PROMPT, 4), whole)


def test_bytes_load_the_model(browser_lm: Any, whole: Any, tiny: bytes) -> None:
    load(browser_lm, file=split(tiny, CUTS)[::-1])
    assert_same(browser_lm.trace(PROMPT, 4), whole)


STORE = """async (urls) => {
  const folder = await navigator.storage.getDirectory();
  self.handles = await Promise.all(urls.map(async (url, i) => {
    const handle = await folder.getFileHandle(`stored-${i}.gguf`, { create: true });
    await (await fetch(url)).body.pipeTo(await handle.createWritable());
    return handle;
  }));
  self.files = await Promise.all(self.handles.map((handle) => handle.getFile()));
}"""
LOAD = """
import pagelm
model = await pagelm.load({spec}, n_ctx=64)
logits = [token async for token, _ in model.trace({prompt}, 4)]
await model.close()
[logits, len(model.gguf.parts), model.memory_used]
"""


@pytest.mark.parametrize(
    "spec",
    [
        "js.handles",
        "list(js.handles)",
        "js.files",
        "[js.files[1], js.handles[0], js.files[3], js.handles[2]]",
    ],
)
def test_stored_files_load_the_model(
    browser_lm: Any, whole: Any, folder: Folder, paths: list[Path], spec: str
) -> None:
    """As a JavaScript array and as a list of Python's, of handles, of files and of both."""
    worker = InWorker(browser_lm)
    worker.javascript(STORE, [folder.url + path.name for path in paths[::-1]])
    ids, n_parts, left = worker.python("import js\n" + LOAD.format(spec=spec, prompt=PROMPT))
    assert (ids, n_parts, left) == ([token for token, _ in whole], 4, 0)


def test_loads_of_a_split_model_are_timed_from_both_places(browser_lm: Any, paths: list[Path]) -> None:
    from pagelm.host.loadtime import time_loads

    report = browser_lm.run(time_loads(str(paths[1]), n_ctx=64, rounds=1))
    assert 0 < report["weights_bytes"] < sum(path.stat().st_size for path in paths)
    assert report["opfs"]["load_s"]["p50"] > 0


# ---- what is wrong ----


def test_a_part_that_is_missing_is_told(
    browser_lm: Any, folder: Folder, tiny: bytes, paths: list[Path]
) -> None:
    gone = write_parts(folder.path, tiny, CUTS, "gone")
    gone[2].unlink()
    with pytest.raises(SourceError) as e:
        load(browser_lm, url=folder.url + gone[0].name)
    assert str(e.value).startswith(f"{folder.url}{gone[2].name}: the server answered 404")
    assert f"needed with {folder.url}{gone[0].name}, as one of the 4 parts" in str(e.value)
    text = pick(browser_lm, [paths[3], paths[0]])
    assert text.startswith(f"SplitError: {paths[0].name}: of 4 parts (split.count) parts 2, 3 are missing")
    text = pick(browser_lm, [paths[1]], "files[0]")
    assert text.startswith(f"SplitError: {paths[1].name}: it is part 2 of 4")
    assert "give all parts together" in text
    with pytest.raises(SplitError, match="both are part 2 of 4"):
        load(browser_lm, file=[*split(tiny, CUTS), split(tiny, CUTS)[1]])


def test_a_part_that_breaks_while_it_is_read_is_told_by_name(
    browser_lm: Any, paths: list[Path], tmp_path: Path
) -> None:
    """Files that change on the disk after they were picked can no longer be read."""
    copies = [tmp_path / path.name for path in paths]
    for copy, path in zip(copies, paths, strict=True):
        copy.write_bytes(path.read_bytes())
    assert pick(browser_lm, copies)["n_parts"] == 4
    copies[2].write_bytes(copies[2].read_bytes() + b"x")
    text = browser_lm.run(
        browser_lm.lm.page.evaluate("""() => {
          const { files } = document.getElementById("pick");
          return window.pagelm.call("load", {file: [...files]}).then(() => "", (error) => String(error));
        }""")
    )
    assert copies[2].name in text and "SourceError" in text


@pytest.mark.parametrize("part", [1, 2, 3])
def test_cancelling_in_any_part_frees_all_and_the_next_load_works(
    browser_lm: Any, whole: Any, folder: Folder, paths: list[Path], part: int
) -> None:
    """Inside the worker: a page hears of so small a model too late."""
    told = InWorker(browser_lm).python(f"""
import pagelm
from pagelm import errors
from pagelm.device.default import open_gpu
cancel, seen = pagelm.Cancel(), []
gpu = await open_gpu()
upload = gpu.upload
async def uploaded(source, chunk):
    await upload(source, chunk)
    seen.append(source.name)
    if len(seen) == {part}:
        cancel.cancel()
gpu.upload = uploaded
try:
    await pagelm.load("{folder.url}{paths[1].name}", gpu=gpu, cancel=cancel)
    text = ""
except errors.Cancelled as e:
    text = str(e)
left = gpu.memory_used
gpu.close()
[text, seen, left]
""")
    assert told == ["cancelled while loading the weights", [folder.url + p.name for p in paths[1:]][:part], 0]
    load(browser_lm, url=folder.url + paths[part].name)
    assert_same(browser_lm.trace(PROMPT, 4), whole)


# ---- the page ----


def test_page_takes_several_files_from_the_picker_and_from_a_drop(
    page: Page, wheel: Path, paths: list[Path]
) -> None:
    with start_server(paths[2], wheel) as server:
        open_page(page, server.url)
        expect(page.get_by_label("Address of a GGUF file")).to_have_value(f"model/{paths[2].name}")
        page.get_by_test_id("load").click()
        expect(page.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)
        expect(page.get_by_test_id("model-facts")).to_contain_text("4 files")
        write(page, "hello", 4)
        served = wait_for_end(page)
        page.get_by_test_id("change").click()
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="choose a file on this device").click()
        assert chooser.value.is_multiple()
        chooser.value.set_files(paths[::-1])
        expect(page.get_by_test_id("load-form")).to_be_hidden(timeout=SLOW_MS)
        expect(page.get_by_test_id("loaded")).to_be_visible(timeout=SLOW_MS)
        expect(page.get_by_test_id("model-facts")).to_contain_text(f"{paths[0].name} · llama · 4 files")
        write(page, "hello", 4)
        assert wait_for_end(page) == served
        drop = """async (names) => {
          const dataTransfer = new DataTransfer();
          for (const name of names) {
            const blob = await (await fetch(`model/${name}`)).blob();
            dataTransfer.items.add(new File([blob], `dropped-${name}`));
          }
          dispatchEvent(new DragEvent("drop", {dataTransfer, cancelable: true}));
        }"""
        page.evaluate(drop, [paths[i].name for i in (1, 3, 0, 2)])
        expect(page.get_by_test_id("model-facts")).to_contain_text(
            f"dropped-{paths[0].name}", timeout=SLOW_MS
        )
        page.evaluate(drop, [paths[0].name, paths[1].name])
        error = page.get_by_test_id("load-error")
        expect(error).to_be_visible(timeout=SLOW_MS)
        expect(error).to_contain_text("SplitError")
        expect(error).to_contain_text(
            f"of 4 parts (split.count) parts 3, 4 are missing; given: dropped-{paths[0].name}"
        )


# ---- large files, wide vocabularies, narrow limits ----


@pytest.fixture
def far(browser_lm: Any, folder: Folder, tiny: bytes) -> Iterator[Path]:
    """A sparse file of 5 GiB with the tensors of `tiny`. GGUF has no room for gaps but the alignment."""
    worker = InWorker(browser_lm)
    worker.python(
        f"import pagelm.gguf\nkept, pagelm.gguf.MAX_ALIGNMENT = pagelm.gguf.MAX_ALIGNMENT, {SPREAD}"
    )
    path = folder.path / "far.gguf"
    places = write_spread(path, tiny, SPREAD)
    assert sum(1 << 31 <= at < 1 << 32 for at in places) >= 4 and sum(at >= 1 << 32 for at in places) >= 4
    yield path
    worker.python("pagelm.gguf.MAX_ALIGNMENT = kept")
    path.unlink()


@pytest.mark.parametrize("place", ["server", "picker"])
def test_tensors_past_4_gib_of_a_file_have_the_bits_of_a_small_one(
    browser_lm: Any, whole: Any, folder: Folder, far: Path, place: str
) -> None:
    info = load(browser_lm, url=folder.url + far.name) if place == "server" else pick(browser_lm, [far])
    assert info["size"] > 5 << 30
    assert_same(browser_lm.trace(PROMPT, 4), whole)


@pytest.fixture
def narrow(browser_lm: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Devices opened meanwhile have these limits; BrowserGpu holds bindings and grids to them."""
    worker = InWorker(browser_lm)
    worker.python(f"""
from dataclasses import replace
from pagelm.device.browser import BrowserGpu
kept = BrowserGpu.__dict__["open"]
async def narrow(**options):
    gpu = await kept.__get__(None, BrowserGpu)(**options)
    gpu.limits = replace(gpu.limits, **{request.param!r})
    return gpu
BrowserGpu.open = narrow
""")
    yield
    worker.python("BrowserGpu.open = kept")
    browser_lm.loaded = None


@pytest.fixture(scope="module")
def one_binding(_browser_lm: Any) -> Any:
    """Eight steps of the default model with the adapter's own limits."""
    _browser_lm.load(n_ctx=128)
    return _browser_lm.lm.info["plan"], _browser_lm.trace([504, 3575, 282, 4649, 314], 8)


@pytest.mark.model
@pytest.mark.parametrize(
    "narrow", [{"max_storage_buffer_binding_size": 1 << 20}], indirect=True, ids=["1-mib"]
)
def test_default_model_in_slabs_of_1_mib_says_the_same(
    browser_lm: Any, one_binding: Any, narrow: None
) -> None:
    plan, expected = one_binding
    slab_plan = load(browser_lm, url=browser_lm.lm.model_url, n_ctx=128)["plan"]
    assert slab_plan["largest_buffer"] <= 1 << 20 < plan["largest_buffer"]
    assert slab_plan["slabs"] > plan["slabs"] + 20
    assert_same(browser_lm.trace([504, 3575, 282, 4649, 314], 8), expected)


@pytest.fixture(scope="module")
def wide(folder: Folder) -> Path:
    """A model with 262,144 tokens. The last row of its output is twice the best one's after PROMPT."""
    path, n_vocab = folder.path / "wide.gguf", 1 << 18
    size: dict[str, Any] = dict(
        n_vocab=n_vocab, n_embd=32, n_head=1, n_head_kv=1, n_layer=1, n_ff=32, quant="F16"
    )
    rng = np.random.default_rng(3)
    tensors: dict[str, np.ndarray | None] = {}
    output = rng.standard_normal((n_vocab, 32), dtype=np.float32)
    tensors = {
        "token_embd.weight": rng.standard_normal((n_vocab, 32), dtype=np.float32),
        "output.weight": output,
    }
    tiny_model(path, tensors=tensors, **size)
    output[-1] = 2 * output[int(Oracle(path).forward(PROMPT).argmax())]
    tiny_model(path, tensors=tensors, **size)
    return path


@pytest.mark.parametrize(
    "narrow",
    [
        {},
        {"max_storage_buffer_binding_size": 4 << 20},  # what the logits of four tokens take
        {"max_compute_workgroups_per_dimension": 100},
    ],
    indirect=True,
    ids=["as-it-is", "slabs", "short-rows-of-groups"],
)
def test_vocabulary_of_262144_is_right_to_its_last_id(
    browser_lm: Any, folder: Folder, wide: Path, narrow: None
) -> None:
    load(browser_lm, url=folder.url + wide.name)
    steps = browser_lm.trace(PROMPT, 2)
    assert steps[0][0] == (1 << 18) - 1
    oracle = Oracle(wide)
    for (token, logits), fed in zip(steps, [PROMPT, [steps[0][0]]], strict=True):
        expected = oracle.forward(fed)
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
        assert token == int(expected.argmax())
