"""BrowserLm: what it hands over, what it does when things die, and that it leaves nothing behind."""

import array
import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_gguf import tiny_model

from pagelm.errors import DeviceError, GgufError, PagelmError
from pagelm.host.browser_lm import BrowserLm
from pagelm.host.cpu_lm import CpuLm
from pagelm.host.generate import generate
from pagelm.host.loadtime import time_loads

DOUBLE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn main(@builtin(workgroup_id) at: vec3u) { y[at.x] = 2.0 * x[at.x]; }
"""
CHANCE = random.Random(3)
HANG = "() => { window.kept = window.driver.call; window.driver.call = () => new Promise(() => {}); }"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(tiny_model(n_ctx_train=2048))
    return path


def kernel(source: str) -> dict[str, Any]:
    bindings = [{"name": "x", "access": "read"}, {"name": "y", "access": "read_write"}]
    return {"name": "double", "source": source, "bindings": bindings}


def test_bytes_go_to_the_gpu_and_come_back(browser_lm: Any) -> None:
    x = array.array("f", [1.0, -2.5, 1e30])
    args = {"kernel": kernel(DOUBLE), "buffers": {"x": x.tobytes(), "y": 12}, "grid": [3, 1, 1]}
    y = array.array("f", browser_lm.call("run_kernel", args)["y"])
    assert list(y) == [2.0, -5.0, array.array("f", [2e30])[0]]


def keys(value: Any) -> Any:
    """The keys of an object and of the objects in it."""
    return {key: keys(item) for key, item in value.items()} if isinstance(value, dict) else None


def test_result_has_the_keys_and_counts_that_it_has_on_the_cpu(browser_lm: Any, tiny: Path) -> None:
    async def both() -> list[dict[str, Any]]:
        cpu = await CpuLm.open(str(tiny))
        return [await generate(lm, "hello", 3, True, None) for lm in (browser_lm.lm, cpu)]

    browser_lm.loaded = None  # counts run on since loading
    browser_lm.load(tiny.read_bytes())
    page, cpu = browser_lm.run(both())
    assert keys(page) == keys(cpu)
    for key in ("prompt_ids", "ids", "text", "stop_reason", "n_past"):
        assert page[key] == cpu[key], key
    for key in ("tokens", "prompt_tokens"):
        assert page["stats"][key] == cpu["stats"][key], key


def test_loads_are_timed_from_the_server_and_from_stored_files(browser_lm: Any, tiny: Path) -> None:
    report = browser_lm.run(time_loads(str(tiny), n_ctx=64, rounds=2))
    assert 0 < report["weights_bytes"] < tiny.stat().st_size
    for place in ("server", "opfs"):
        found = report[place]
        assert 0 < found["weights_s"]["min"] <= found["weights_s"]["max"] < found["load_s"]["max"]
        assert found["compile_again_s"]["max"] < found["compile_s"]["min"]  # the browser has them still
        assert found["weights_mb_s"]["min"] > 0 < found["weights_alone_mb_s"]["min"]


def test_unknown_method_is_an_error_that_lists_the_methods(browser_lm: Any) -> None:
    with pytest.raises(RuntimeError, match="no method 'sing'.*generate"):
        browser_lm.call("sing")


def test_typed_error_of_the_page_comes_out_typed(browser_lm: Any) -> None:
    browser_lm.loaded = None
    with pytest.raises(GgufError):
        browser_lm.call("load", {"file": b"this is no model, whatever its name says" * 10})


def test_listener_stops_the_call_by_false_and_by_raising(browser_lm: Any, tiny: Path) -> None:
    browser_lm.load(tiny.read_bytes())
    # Stopping takes a moment to reach the worker: enough tokens that it comes in time on a busy machine.
    args = {"prompt": [1, 2, 3], "max_tokens": 2000, "ignore_eos": True}
    stopped = browser_lm.call("generate", args, lambda event: False)
    assert stopped["stop_reason"] == "cancelled" and 1 <= len(stopped["ids"]) < 2000

    def refuse(event: dict[str, Any]) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        browser_lm.call("generate", args, refuse)
    assert len(browser_lm.call("generate", {**args, "max_tokens": 20})["ids"]) == 20


def test_cancelled_task_cancels_the_call_in_the_page(browser_lm: Any, tiny: Path) -> None:
    browser_lm.load(tiny.read_bytes())
    args = {"prompt": [1, 2, 3], "max_tokens": 2000, "ignore_eos": True}

    def tokens() -> int:
        return int(browser_lm.call("stats")["stats"]["tokens"])

    async def cancel_after_three() -> None:
        pieces: list[Any] = []
        task = asyncio.ensure_future(browser_lm.lm.call("generate", args, pieces.append))
        while len(pieces) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while True:  # the worker ends at the next token
            try:
                await browser_lm.lm.call("reset")
                return
            except PagelmError:
                await asyncio.sleep(0.05)

    before = tokens()
    browser_lm.run(cancel_after_three(), 60)
    assert 3 <= tokens() - before < 2000
    assert len(browser_lm.call("generate", {**args, "max_tokens": 20})["ids"]) == 20


def test_silent_page_ends_as_device_error(browser_lm: Any) -> None:
    async def hang() -> None:
        page = browser_lm.lm.page
        await page.evaluate(HANG)
        try:
            with pytest.raises(DeviceError, match=r"nothing was heard for 0\.5 s while info"):
                await browser_lm.lm.call("info", stall_s=0.5)
        finally:
            await page.evaluate("() => { window.driver.call = window.kept; }")

    browser_lm.run(hang(), 30)
    assert browser_lm.call("info")["version"]


def test_page_that_crashes_during_a_call_ends_as_device_error(wheel: Path, tiny: Path) -> None:
    async def crash() -> None:
        lm = await BrowserLm.start(tiny, wheel=wheel)
        try:
            await lm.load(lm.model_url or "")
            args = {"prompt": [1, 2, 3], "max_tokens": 2000, "ignore_eos": True}
            first = asyncio.Event()
            running = asyncio.ensure_future(lm.call("generate", args, lambda event: first.set()))
            await asyncio.wait_for(first.wait(), 60)
            kill = asyncio.ensure_future(lm.page.goto("chrome://crash"))
            with pytest.raises(DeviceError, match="crash"):
                await asyncio.wait_for(running, 30)
            with pytest.raises(DeviceError):
                await asyncio.wait_for(lm.call("info"), 30)
            kill.cancel()
        finally:
            await asyncio.wait_for(lm.close(), 30)

    asyncio.run(crash())


@pytest.mark.linux
def test_gpu_process_that_dies_ends_as_device_error_and_loading_works_again(
    wheel: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def lose_the_gpu() -> None:
        lm = await BrowserLm.start(tiny, wheel=wheel)
        try:
            await lm.load(lm.model_url or "")
            args = {"prompt": [1, 2, 3], "max_tokens": 2000, "ignore_eos": True}
            first = asyncio.Event()
            running = asyncio.ensure_future(lm.call("generate", args, lambda event: first.set()))
            await asyncio.wait_for(first.wait(), 60)
            os.kill(gpu_process_of(str(tmp_path)), signal.SIGKILL)
            with pytest.raises(DeviceError):
                await asyncio.wait_for(running, 30)
            await asyncio.wait_for(lm.load(lm.model_url or ""), 60)
            assert len((await lm.generate([1, 2, 3], 5, True))["ids"]) == 5
        finally:
            await asyncio.wait_for(lm.close(), 30)

    asyncio.run(lose_the_gpu())


def test_python_that_does_not_start_ends_as_device_error(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
        (tmp_path / name).write_text("this is no Pyodide")
    monkeypatch.setenv("PAGELM_PYODIDE", str(tmp_path))
    with pytest.raises(DeviceError, match="Python did not start"):
        asyncio.run(BrowserLm.start(None, wheel=wheel))


SCRIPT = """
import asyncio, sys
from pagelm.host.browser_lm import BrowserLm

async def main():
    lm = await BrowserLm.open(sys.argv[1])
    try:
        await lm.generate([1, 2, 3], 100000, True, lambda piece: print("piece", flush=True))
    finally:
        await lm.close()

asyncio.run(main())
"""


@pytest.mark.linux
@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_no_browser_is_left_behind_when_the_program_is_stopped(
    sig: signal.Signals, tiny: Path, tmp_path: Path
) -> None:
    # Playwright puts the browser's profile under TMPDIR, so its processes can be told from others by it.
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PAGELM_ADAPTER": "swiftshader"}
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tiny)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a terminal sends Ctrl-C to the whole group: so does killpg below
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"piece\n"
        assert processes_with(str(tmp_path))
        (os.killpg if sig == signal.SIGINT else os.kill)(program.pid, sig)
        program.wait(30)
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.stdout.close()
    give_up = time.monotonic() + 20
    while (left := processes_with(str(tmp_path))) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert left == []


@pytest.mark.linux
@pytest.mark.parametrize("delay", [round(CHANCE.uniform(0.2, 2.5), 2) for _ in range(4)])
@pytest.mark.parametrize(
    ("sig", "group"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGKILL, True)],
    ids=["Ctrl-C", "INT", "TERM", "KILL to all"],
)
def test_nothing_outlives_the_command_whenever_it_is_stopped(
    sig: signal.Signals, group: bool, delay: float, tiny: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "pagelm.host.cli", "run", str(tiny), "--prompt", "x"]
    program = subprocess.Popen(
        [*command, "--max-tokens", "2000", "--ignore-eos", "--quiet"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PAGELM_ADAPTER": "swiftshader"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert program.stderr is not None
    try:
        time.sleep(delay)
        (os.killpg if group else os.kill)(program.pid, sig)
        code = program.wait(60)
        if sig == signal.SIGINT:
            assert (code, program.stderr.read()) == (130, b"pagelm: interrupted\n")
    finally:
        program.kill()
        program.stderr.close()
    give_up = time.monotonic() + 30
    while (left := processes_of(str(tmp_path))) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert left == []


def processes_of(folder: str) -> list[str]:
    """Command lines of the processes whose TMPDIR is `folder`."""
    left = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                left.append(
                    (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
                )
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return left


def commands() -> dict[int, str]:
    """Command lines of all processes, by number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found[int(path.parent.name)] = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue
    return found


def processes_with(profile: str) -> list[str]:
    """Command lines of the browsers whose profile lies under `profile`."""
    return [text[:200] for text in commands().values() if "--user-data-dir" in text and profile in text]


def gpu_process_of(profile: str) -> int:
    """The GPU process of the browser whose profile lies under `profile`."""
    all_commands = commands()
    for pid, text in all_commands.items():
        above = pid
        while "--type=gpu-process" in text and above > 1:
            above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
            if profile in all_commands.get(above, ""):
                return pid
    raise AssertionError("no GPU process found")
