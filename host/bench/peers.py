"""The programs that pagelm is compared with: their names, how they are installed and opened.

Each is one npm package, pinned with its dependencies in npm/NAME/, and installed into the cache when it is
first asked for. A peer is loaded once and then waits, without computing, for its turn.
"""

import hashlib
import importlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagelm.errors import PagelmError
from pagelm.host import assets
from pagelm.host.bench import quiet
from pagelm.host.bench.sample import Sample

INSTALL_S = 1800
UNUSED = "-cuda"  # optional builds of llama.cpp that no peer uses: half a gigabyte
SOFTWARE_GEN = 24  # tokens on a software GPU, where a peer may need half a second for each


class PeerError(PagelmError):
    """A peer could not be installed, did not start, computes elsewhere than asked, hangs or died."""

    def __init__(self, peer: str, what: str) -> None:
        super().__init__(f"peer {peer}: {what}")
        self.peer = peer


@dataclass(frozen=True, slots=True)
class Task:
    """What every program is to do: generate `gen` tokens after the prompt, as ids and as text."""

    model: Path
    ids: tuple[int, ...]
    text: str
    gen: int
    n_ctx: int


class Peer(ABC):
    """A peer with the model loaded. `about`: what to report of it beside its speed (threads, device …)."""

    def __init__(self, name: str, task: Task) -> None:
        self.name = name
        self.version = ""
        self.about: dict[str, Any] = {}
        self.roots: Collection[int] = ()  # processes that it runs in, with their children
        self._task = task
        self._gen = task.gen

    @abstractmethod
    async def generate(self) -> Sample:
        """Raises: PeerError."""

    @abstractmethod
    async def close(self) -> None:
        """End it and what it started."""


# name -> module, class, the options that tell those of one class apart
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama.cpp": ("pagelm.host.bench.llama_cpp", "LlamaCpp", {"gpu": False}),
    "llama.cpp-vulkan": ("pagelm.host.bench.llama_cpp", "LlamaCpp", {"gpu": True}),
    "wllama": ("pagelm.host.bench.wllama", "Wllama", {"gpu": False}),
    "wllama-webgpu": ("pagelm.host.bench.wllama", "Wllama", {"gpu": True}),
}


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """One element of --peers: NAME or NAME:THREADS. `text` as it was given is the key in the report."""

    text: str
    kind: str
    threads: int | None


def parse_peers(text: str) -> list[PeerSpec]:
    """The list that --peers takes, for example "llama.cpp:2,wllama". Raises: PagelmError."""
    specs = [_parse(part.strip()) for part in text.split(",")]
    for spec in specs:
        if sum(other.text == spec.text for other in specs) > 1:
            raise PagelmError(f"--peers names {spec.text} twice; name each peer once")
    return specs


def _parse(text: str) -> PeerSpec:
    kind, colon, threads = text.partition(":")
    if kind not in KINDS:
        raise PagelmError(f"--peers names {kind!r}; allowed: {', '.join(KINDS)}, each also as NAME:THREADS")
    if colon and not (threads.isascii() and threads.isdigit() and 1 <= int(threads) <= 1024):
        raise PagelmError(f"--peers {text}: {threads!r} is no number of threads; allowed: 1 to 1024")
    return PeerSpec(text, kind, int(threads) if colon else None)


async def open_peers(
    specs: Sequence[PeerSpec], task: Task, stack: AsyncExitStack, say: Callable[[str], object]
) -> list[Peer]:
    """Load the peers, one after the other; `stack` closes them. Raises: PeerError, SetupError."""
    peers: list[Peer] = []
    for spec in specs:
        say(f"loading {spec.text} …")
        module, name, options = KINDS[spec.kind]
        before = quiet.children()
        kind = getattr(importlib.import_module(module), name)
        peer: Peer = await kind.open(spec.text, task, threads=spec.threads, **options)
        stack.push_async_callback(peer.close)
        peer.roots = quiet.children() - before
        peers.append(peer)
    return peers


def offloaded(log: str) -> tuple[int, int]:
    """How many layers of how many llama.cpp says it put on the GPU; (0, 0) where it says nothing."""
    found = re.search(r"offloaded (\d+)/(\d+) layers to GPU", log)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def only_offloaded(peer: str, layers: int, total: int, advice: str) -> None:
    """Raises: PeerError unless all layers are on the GPU: llama.cpp goes on with its CPU and says nothing."""
    if not total or layers < total:
        found = f"{layers} of {total} layers are" if layers else "no layer is"
        raise PeerError(peer, f"{found} on the GPU, its CPU would do the rest; {advice}")


def gen_on(device: str, gen: int) -> int:
    """How many tokens to ask for: fewer of a GPU, named `device`, that a CPU stands in for."""
    software = re.search("swiftshader|llvmpipe|lavapipe", device, re.IGNORECASE)
    return min(gen, SOFTWARE_GEN) if software else gen


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def npm_package(name: str, peer: str) -> Path:
    """The node_modules folder with what npm/NAME/ pins, installed into the cache if it is not there.

    Raises: PeerError.
    """
    pins = Path(__file__).with_name("npm") / name
    digest = hashlib.sha256((pins / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = assets.cache_dir() / "peers" / f"{name}-{digest}"
    modules = folder / "node_modules"
    wanted = json.loads((pins / "package.json").read_text())["dependencies"]
    if not all((modules / package / "package.json").is_file() for package in wanted):
        shutil.rmtree(folder, ignore_errors=True)  # what is left of a damaged one
        _npm_install(pins, folder, peer)
    return modules


def _npm_install(pins: Path, folder: Path, peer: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise PeerError(peer, "npm, which brings it, was not found (Debian: apt-get install nodejs npm)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as tmp:
        part = Path(tmp) / "package"
        part.mkdir()
        for file in ("package.json", ".npmrc"):
            shutil.copy(pins / file, part)
        lock = _without(UNUSED, json.loads((pins / "package-lock.json").read_text()))
        (part / "package-lock.json").write_text(json.dumps(lock))
        command = [npm, "ci", "--ignore-scripts", "--no-progress", "--loglevel=error"]
        try:
            done = subprocess.run(command, cwd=part, capture_output=True, text=True, timeout=INSTALL_S)
        except subprocess.TimeoutExpired:
            raise PeerError(peer, f"npm ci did not end in {INSTALL_S} s") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            raise PeerError(peer, f"npm ci failed: {said[0]}; npm's cache or the network may be out of reach")
        part.rename(folder)


def _without(word: str, value: Any) -> Any:
    """JSON without the keys that hold `word`, at any depth."""
    if not isinstance(value, dict):
        return value
    return {key: _without(word, item) for key, item in value.items() if word not in key}
