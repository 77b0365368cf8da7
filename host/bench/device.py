"""How fast is a device: medians over rounds, with the spread, the work per token and the machine's state.

Every round is a generation of the same length from the same ids, timed by the clock of this process, which
asks for it. The first one, which warms caches up, is not counted.
"""

import contextlib
import platform
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pagelm
from pagelm.errors import PagelmError
from pagelm.host.bench.peers import PeerSpec, Task, cores, open_peers
from pagelm.host.bench.quiet import children
from pagelm.host.bench.rounds import Turns, figures
from pagelm.host.bench.sample import Sample
from pagelm.host.inspect import read_header
from pagelm.host.lm import Lm, kernels_of
from pagelm.loading import DEFAULT_N_CTX
from pagelm.tokenizer import tokenizer_from

CONTEXT_GEN = 32  # few, so that the context they see is about the one they are named for
TEXT = (
    "The lighthouse stood at the end of a long spit of sand, and for most of the year nobody came there but "
    "the keeper, the supply boat and the birds. In the mornings he wrote down the weather: the wind, the "
    "height of the waves, what the clouds were doing over the bay. In the evenings he lit the lamp, wound "
    "the clockwork that turned it, and sat down with a book beside the stove. Once a month the boat brought "
    "oil, flour, coffee and a bundle of newspapers, which he read in order, one each day, so that he was "
    "never more than thirty days behind the rest of the world. When people asked whether he was lonely he "
    "would think about it for a while, and then say that he had never had the time. "
)


async def text_prompt_of(lm: Lm, path: str, n_tokens: int) -> tuple[list[int], str]:
    """Exactly `n_tokens` ids of English text, and the text that has these ids.

    Raises: PagelmError when no such text is found: a text may be cut within a word that has one id.
    """
    tokenizer = tokenizer_from((await read_header(path)).metadata)
    begins = [0, *(found.end() for found in re.finditer(r"[.:,] ", TEXT))]
    for begin in begins:
        ids = await prompt_of(lm, n_tokens, TEXT[begin:] + TEXT[:begin])
        text = tokenizer.decode([i for i in ids if i != tokenizer.bos_id])
        if await lm.encode(text) == ids:
            return ids, text
    raise PagelmError(f"no text of exactly {n_tokens} tokens was found; try another --prompt-tokens")


async def prompt_of(lm: Lm, n_tokens: int, text: str = TEXT) -> list[int]:
    """Exactly `n_tokens` ids of English text, the same ones every time."""
    once = await lm.encode(text)
    ids = once if len(once) >= n_tokens else await lm.encode(text * (n_tokens // len(once) + 2))
    return ids[:n_tokens]


class Own:
    """pagelm as one of those that take turns. `result`: what its last generation returned."""

    name = "pagelm"

    def __init__(self, lm: Lm, ids: Sequence[int], gen: int, clock: Callable[[], float]) -> None:
        self.roots: Collection[int] = children()  # a browser, where one is open; peers come later
        self.result: dict[str, Any] = {}
        self._lm = lm
        self._ids = ids
        self._gen = gen
        self._clock = clock

    async def generate(self) -> Sample:
        """Raises: PagelmError when the context ends before the generation."""
        began = self._clock()
        first: list[float] = []
        result = await self._lm.generate(
            self._ids,
            self._gen,
            True,
            lambda piece: first.append(self._clock()) if not first else None,
            guess=False,
        )
        ended = self._clock()
        if len(result["ids"]) != self._gen:
            raise PagelmError(
                f"{len(result['ids'])} of {self._gen} tokens were generated ({result['stop_reason']}); "
                f"{len(self._ids)} + {self._gen} tokens need a larger --ctx"
            )
        self.result = result
        # A token that is no text by itself shows nothing; then the engine's own clock has to do.
        first_s = first[0] - began if first else result["timing"]["prefill_s"]
        return Sample(len(self._ids), self._gen, first_s, ended - began)


async def bench(
    lm: Lm,
    *,
    prompt_tokens: int = 128,
    gen: int = 128,
    rounds: int = 5,
    peers: Sequence[PeerSpec] = (),
    path: str = "",
    contexts: Sequence[int] = (),
    cache_type: str = "f32",
    turns: Turns | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Time `rounds` generations of `gen` tokens after a prompt, past end tokens. Rates in tokens per second.

    `peers` do the same in turns with `lm`; for them `path` is the model's file. `contexts`: lengths in
    tokens after which decoding is timed as well. `cache_type`: what `lm` was loaded with, for the report.

    Raises: PagelmError for fewer than 2 generated tokens, or when the context ends before the generation;
    PeerError, SetupError for a peer.
    """
    if gen < 2:
        raise PagelmError(f"--gen is {gen}; it must be at least 2: the first token counts as prefill")
    turns = turns or Turns()
    if peers:
        ids, text = await text_prompt_of(lm, path, prompt_tokens)
    else:
        ids, text = await prompt_of(lm, prompt_tokens), ""
    own = Own(lm, ids, gen, clock)
    busy = await turns.look(own.roots)
    async with contextlib.AsyncExitStack() as stack:
        task = Task(Path(path), tuple(ids), text, gen, max(512, len(ids) + gen))
        others = await open_peers(peers, task, stack, turns.say)
        found = await turns.take([own, *others], rounds)
    report = {
        "device": lm.device,
        "adapter": lm.adapter,
        "cache_type": cache_type,
        "tuning": kernels_of(lm),
        "rounds": rounds,
        **figures(found[own.name]),
        "timing": own.result["timing"],
        "stats": own.result["stats"],
        "busy_cores": busy,
        "max_noise": turns.max_noise,
        "versions": versions(lm),
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "guest_peak_heap_bytes": await lm.heap_bytes(),
    }
    report["dispatches_per_token"], report["submits_per_token"] = await _work_per_token(lm, ids[:1])
    if peers:
        report["peers"] = {
            peer.name: {"version": peer.version, **peer.about, **figures(found[peer.name])} for peer in others
        }
        report["ratios"] = {name: ratios(report, peer) for name, peer in report["peers"].items()}
    if contexts:
        report["context"] = await _at_contexts(lm, contexts, min(gen, CONTEXT_GEN), turns, clock)
    return report


async def _at_contexts(
    lm: Lm, lengths: Sequence[int], gen: int, turns: Turns, clock: Callable[[], float]
) -> list[dict[str, Any]]:
    """The speed of decoding after prompts of these lengths, and how it compares with the first of them."""
    found: list[dict[str, Any]] = []
    for n in lengths:
        own = Own(lm, await prompt_of(lm, n), gen, clock)
        one = await turns.measure(own, f"context {n}")
        speed = one.sample.decode_tok_s
        found.append(
            {
                "tokens": n,
                "gen": gen,
                "prefill_tok_s": one.sample.prefill_tok_s,
                "decode_tok_s": speed,
                "ratio": speed / (found[0]["decode_tok_s"] if found else speed),
                "noisy": one.noisy,
                "discarded": len(one.discarded),
            }
        )
    return found


def parse_lengths(text: str) -> list[int]:
    """The list that --context takes, for example "128,1024". Raises: PagelmError."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit() and 0 < int(part) < 1 << 31):
            raise PagelmError(
                f"--context: {part!r} is no number of tokens; allowed: integers from 1, as in 128,1024"
            )
    return list(dict.fromkeys(int(part) for part in parts))


def context_for(tokens: int) -> int | None:
    """The context to load a model with for so many tokens; None where its own is enough."""
    return tokens if tokens > DEFAULT_N_CTX else None


def ratios(own: Mapping[str, Any], peer: Mapping[str, Any]) -> dict[str, float]:
    """How many times as fast as the peer, by medians."""
    return {
        name: own[f"{name}_tok_s"]["p50"] / peer[f"{name}_tok_s"]["p50"] for name in ("prefill", "decode")
    }


async def _work_per_token(lm: Lm, ids: Sequence[int], more: int = 4) -> tuple[float, float]:
    """Dispatches and submits of a decoded token: what `more` further tokens add to the counts."""
    counts = []
    for n in (1, 1, 1 + more):  # counts run on since loading: take them after a run, and after the next
        stats = (await lm.generate(ids, n, True, guess=False))["stats"]
        counts.append((stats["dispatches"], stats["submits"]))
    short = [b - a for a, b in zip(counts[0], counts[1], strict=True)]
    long = [b - a for a, b in zip(counts[1], counts[2], strict=True)]
    dispatches, submits = ((b - a) / more for a, b in zip(short, long, strict=True))
    return dispatches, submits


def versions(lm: Lm | None = None) -> dict[str, str]:
    """pagelm, Python, the browser and the packages that reach the GPU, as far as installed."""
    found = {"pagelm": pagelm.__version__, "python": platform.python_version(), "os": platform.platform()}
    if browser := getattr(lm, "browser_version", ""):
        found["chromium"] = browser
    for package in ("wgpu", "playwright", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor's name and how many cores of it this process may use."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        if told := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            name = told[1]
    return {"cpu": name, "cores": cores()}
