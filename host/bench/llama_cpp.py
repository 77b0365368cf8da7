"""llama.cpp itself, prebuilt: node-llama-cpp in a process of its own, on the CPU or through Vulkan."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Any

from pagelm.host.bench.peers import Peer, PeerError, Task, gen_on, npm_package, offloaded, only_offloaded
from pagelm.host.bench.sample import Sample

LOAD_S = 300.0
GENERATE_S = 900.0
CLOSE_S = 5.0
LINE = 1 << 24  # bytes; a log is one line


class LlamaCpp(Peer):
    """A Node process that has the model loaded and waits on its standard input."""

    def __init__(self, name: str, task: Task, process: Process) -> None:
        super().__init__(name, task)
        self._process = process

    @classmethod
    async def open(cls, name: str, task: Task, *, threads: int | None, gpu: bool) -> "LlamaCpp":
        """Raises: PeerError."""
        node = shutil.which("node")
        if node is None:
            raise PeerError(name, "node, which runs it, was not found (Debian: apt-get install nodejs npm)")
        package = await asyncio.to_thread(npm_package, "llama.cpp", name) / "node-llama-cpp"
        given = {
            "package": str(package),
            "model": str(task.model),
            "gpu": "vulkan" if gpu else False,
            "threads": threads or 1,
            "n_ctx": task.n_ctx,
            "ids": task.ids,
        }
        script = Path(__file__).with_name("llama_cpp.mjs")
        return await cls.start(name, task, [node, str(script), json.dumps(given)], gpu=gpu)

    @classmethod
    async def start(
        cls, name: str, task: Task, command: list[str], *, gpu: bool, load_s: float = LOAD_S
    ) -> "LlamaCpp":
        """Start `command`, which speaks llama_cpp.mjs's lines, and wait until the model is loaded.

        Raises: PeerError.
        """
        # Without the second variable llama.cpp leaves out every Vulkan device that is a CPU.
        env = {"GGML_VK_VISIBLE_DEVICES": "0"} | os.environ if gpu else None
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=env, limit=LINE
        )
        peer = cls(name, task, process)
        try:
            ready = (await peer._answer(load_s, "loading the model"))["ready"]
            peer.version = ready["version"]
            peer.about = {
                "engine": f"llama.cpp {ready['release']}",
                "threads": ready["threads"],
                "device": "CPU",
            }
            if gpu:
                peer._check_offload(ready)
        except BaseException:
            await peer.close()
            raise
        return peer

    def _check_offload(self, ready: dict[str, Any]) -> None:
        devices = ", ".join(ready["devices"])
        layers, total = offloaded(ready["log"]) if devices else (0, 0)
        advice = f"its Vulkan devices: {devices or 'none'}; VK_ICD_FILENAMES names the driver to use"
        only_offloaded(self.name, layers, total, advice)
        self.about["device"] = f"Vulkan ({devices}), {layers} of {total} layers"
        self._gen = gen_on(devices, self._task.gen)

    async def generate(self, timeout_s: float = GENERATE_S) -> Sample:
        """Raises: PeerError when the process ends, fails, or does not answer for `timeout_s` seconds."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):  # it has ended: there is no answer either, which says so
            self._process.stdin.write(f"{self._gen}\n".encode())
            await self._process.stdin.drain()
        took = await self._answer(timeout_s, "generating")
        if took["gen"] != self._gen:
            raise PeerError(self.name, f"it generated {took['gen']} of {self._gen} tokens")
        return Sample(len(self._task.ids), self._gen, took["first_s"], took["total_s"])

    async def _answer(self, timeout_s: float, doing: str) -> dict[str, Any]:
        """The next line that is a JSON object; libraries print other lines."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                async for line in self._process.stdout:
                    if line.startswith(b"{"):
                        answer: dict[str, Any] = json.loads(line)
                        if error := answer.get("error"):
                            raise PeerError(self.name, f"{error} while {doing}")
                        return answer
                code = await self._process.wait()
        except TimeoutError:
            raise PeerError(self.name, f"it hangs: no answer in {timeout_s:g} s while {doing}") from None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise PeerError(self.name, f"it died ({how}) while {doing}")

    async def close(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), CLOSE_S)
