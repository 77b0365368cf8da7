"""Peers: their names and installation, and how pagelm is compared with them."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from fake_lm import FakeLm
from fake_peer import FakeMeter, FakePeer

from pagelm.errors import PagelmError
from pagelm.host import bench as benchmark
from pagelm.host.bench import device, peers
from pagelm.host.bench.peers import PeerError, PeerSpec, Task, parse_peers

PINS = Path(peers.__file__).with_name("npm")
TASK = Task(Path("m.gguf"), (1, 2, 3, 4), "text", gen=100, n_ctx=512)


# ---- names ----


def test_list_of_peers_has_names_and_threads():
    assert parse_peers("llama.cpp, llama.cpp:2,wllama-webgpu") == [
        PeerSpec("llama.cpp", "llama.cpp", None),
        PeerSpec("llama.cpp:2", "llama.cpp", 2),
        PeerSpec("wllama-webgpu", "wllama-webgpu", None),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names ''; allowed: llama.cpp, llama.cpp-vulkan, wllama, wllama-webgpu"),
        ("wllama,", "names ''"),
        ("ollama", "names 'ollama'"),
        ("wllama:", "'' is no number of threads"),
        ("wllama:0", "'0' is no number of threads"),
        ("wllama:two", "'two' is no number of threads"),
        ("wllama:1025", "allowed: 1 to 1024"),
        ("wllama,llama.cpp,wllama", "names wllama twice"),
    ],
)
def test_list_of_peers_that_is_none_is_refused(text, told):
    with pytest.raises(PagelmError) as error:
        parse_peers(text)
    assert told in str(error.value)


# ---- together with pagelm ----


@pytest.fixture
def with_peers(monkeypatch):
    """`compare(*peers)` is the report on a FakeLm and these peers."""

    async def text_prompt_of(lm, path, n):
        return list(range(n)), "text"

    def compare(*given, lm=None, noise=(), **options):
        async def open_peers(specs, task, stack, say):
            for peer in given:
                stack.push_async_callback(peer.close)
            return list(given)

        monkeypatch.setattr(device, "text_prompt_of", text_prompt_of)
        monkeypatch.setattr(device, "open_peers", open_peers)
        lm = lm or FakeLm(speeds=[(100.0, 30.0)])
        turns = benchmark.Turns(FakeMeter(noise), calm_s=0, look_s=0)
        options = {"prompt_tokens": 16, "gen": 4, "rounds": 3} | options
        specs = [PeerSpec(peer.name, peer.name, None) for peer in given]
        return asyncio.run(
            benchmark.bench(lm, peers=specs, path="m.gguf", turns=turns, clock=lm.clock, **options)
        )

    return compare


def test_ratios_are_pagelms_medians_over_the_peers(with_peers):
    # 16 / 0.2 = 80 tokens per second of prompt, 3 / 0.3 = 10 after it; one round is off
    slow = FakePeer("slow", [(1.0, 2.0), (0.2, 0.5), (9.0, 99.0), (0.2, 0.5)])
    fast = FakePeer("fast", [(0.04, 0.07)])
    report = with_peers(slow, fast)
    assert report["ratios"]["slow"] == pytest.approx({"prefill": 100 / 80, "decode": 30 / 10})
    assert report["ratios"]["fast"] == pytest.approx({"prefill": 100 / 400, "decode": 30 / 100})
    peer = report["peers"]["slow"]
    assert peer["prefill_tok_s"] == pytest.approx({"p50": 80.0, "min": 16 / 9, "max": 80.0})
    assert peer["decode_tok_s"] == pytest.approx({"p50": 10.0, "min": 3 / 90, "max": 10.0})
    assert (peer["version"], peer["ttft_s"], peer["gen"], peer["threads"]) == ("1.2.3", 0.2, 4, 2)


def test_pagelm_and_its_peers_take_turns_and_are_closed(with_peers):
    order = []

    class Noted(FakeLm):
        async def generate(self, *args, **options):
            order.append("pagelm")
            return await super().generate(*args, **options)

    a, b = (FakePeer(name, order=order) for name in "ab")
    with_peers(a, b, lm=Noted(), rounds=2)
    assert order[:9] == ["pagelm", "a", "b"] * 3
    assert a.closed and b.closed


def test_peer_that_fails_ends_the_comparison_and_all_are_closed(with_peers):
    class Failing(FakePeer):
        async def generate(self):
            raise PeerError(self.name, "it died")

    a, b = FakePeer("a"), Failing("b")
    with pytest.raises(PeerError, match="peer b: it died"):
        with_peers(a, b)
    assert a.closed and b.closed


def test_tables_show_everyone_and_mark_what_was_never_quiet(with_peers):
    # a look before, then a run of pagelm and the tries of the peer
    report = with_peers(FakePeer("a", gen=3), rounds=1, noise=[0.0, 0.0, 0.5, 0.6, 0.7])
    assert report["peers"]["a"]["noisy_rounds"] == [1]
    for text in (benchmark.as_text(report), benchmark.as_markdown(report)):
        line = next(line for line in text.splitlines() if line.startswith("| a 1.2.3"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[1:5] == ["paper, 2 threads", "3", "16.0 (16.0 to 16.0)\\*", "2.0 (2.0 to 2.0)\\*"]
        assert cells[6] == "prefill ×6.25, decode ×15.00"
        assert "noisy runs discarded: a 2 (limit 0.15 cores)" in text
        assert "never quiet in some round: a" in text


def test_markdown_names_date_machine_device_and_versions(with_peers):
    report = with_peers(FakePeer("a"))
    text = benchmark.as_markdown(report)
    for part in (report["date"], report["machine"]["cpu"], "native (fake, none)", "python 3."):
        assert part in text
    head, line, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in (head, line, *rows)} == {8}
    assert len(rows) == 2


# ---- installing ----


@pytest.mark.parametrize("name", ["wllama", "llama.cpp"])
def test_pinned_packages_are_the_locked_ones_and_name_no_registry(name):
    pins = json.loads((PINS / name / "package.json").read_text())["dependencies"]
    lock = json.loads((PINS / name / "package-lock.json").read_text())["packages"]
    for package, version in pins.items():
        assert lock[f"node_modules/{package}"]["version"] == version
    assert all("resolved" not in entry for entry in lock.values())


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """`npm(script)`: a program of that name alone on the PATH, and an empty cache; gives the cache."""

    def install(script):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        if script is not None:
            (folder / "npm").write_text(f"#!{sys.executable}\n{script}")
            (folder / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setenv("PAGELM_CACHE", str(tmp_path / "cache"))
        return tmp_path / "cache" / "peers"

    return install


def test_package_is_installed_once_without_what_nobody_uses(npm):
    script = (
        "import os, sys; assert sys.argv[1] == 'ci'; os.makedirs('node_modules/node-llama-cpp');"
        "open('node_modules/node-llama-cpp/package.json', 'w').close();"
        "assert os.path.exists('package.json'); os.link('package-lock.json', 'node_modules/lock')"
    )
    cache = npm(script)
    folder = peers.npm_package("llama.cpp", "llama.cpp:2")
    assert folder.parent.parent == cache and [p.name for p in cache.iterdir()] == [folder.parent.name]
    given = (folder / "lock").read_text()
    assert "linux-x64-vulkan" in given and "cuda" not in given
    npm("raise SystemExit('npm must not run again')")
    assert peers.npm_package("llama.cpp", "llama.cpp:2") == folder
    (folder / "node-llama-cpp" / "package.json").unlink()
    npm(script)
    assert peers.npm_package("llama.cpp", "llama.cpp:2") == folder  # a damaged one is installed again
    assert (folder / "node-llama-cpp" / "package.json").exists()


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (None, "npm, which brings it, was not found"),
        ("import sys; sys.exit('npm error network unreachable')", "npm ci failed: npm error network"),
    ],
)
def test_package_that_cannot_be_installed_is_an_error_that_names_the_peer(npm, script, told):
    cache = npm(script)
    with pytest.raises(PeerError, match=f"peer wllama: {told}"):
        peers.npm_package("wllama", "wllama")
    assert not cache.exists() or list(cache.iterdir()) == []  # nothing half done stays


def test_peers_are_told_apart_by_their_processes(monkeypatch):
    running = [{7}, {7, 8}, {7, 8}, {7, 8, 9}]
    monkeypatch.setattr(peers.quiet, "children", lambda: running.pop(0))

    class Opened:
        open = staticmethod(lambda name, task, threads, **kind: asyncio.sleep(0, FakePeer(name)))

    monkeypatch.setattr(peers.importlib, "import_module", lambda name: type("m", (), {"Wllama": Opened}))

    async def main():
        async with AsyncExitStack() as stack:
            return await peers.open_peers(parse_peers("wllama,wllama-webgpu"), TASK, stack, lambda line: None)

    one, two = asyncio.run(main())
    assert (one.roots, two.roots) == ({8}, {9})
    assert one.closed and two.closed
