"""Measures several programs in turns on one machine, and only while nothing else uses it.

Round by round each one is measured once, in the same order, so that whatever changes slowly (heat, clocks,
a neighbour on the same host) meets them all alike. A measurement during which other work kept more than
`max_noise` cores busy is discarded and made again, TRIES times at most; then the quietest one counts, and
is marked.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pagelm.host.bench.quiet import BUSY_CORES, Meter, ProcMeter
from pagelm.host.bench.sample import Sample, spread

TRIES = 3
CALM_S = 5.0  # the longest wait for the machine to come to rest before a try
LOOK_S = 0.25


class Subject(Protocol):
    """Something that generates text, loaded and ready."""

    name: str
    roots: Collection[int]  # the processes that compute, or whose children do; none: this process

    async def generate(self) -> Sample:
        """Generate once, from an empty cache."""
        ...


@dataclass(slots=True)
class Measured:
    """One measurement. `other_cores` None: not known here. `discarded`: the tries before it, for noise."""

    sample: Sample
    other_cores: float | None
    noisy: bool = False
    discarded: list[tuple[Sample, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Turns:
    """How to measure: with what noise at most, in cores, known from which meter, told to whom."""

    meter: Meter = field(default_factory=ProcMeter)
    max_noise: float = BUSY_CORES
    calm_s: float = CALM_S
    look_s: float = LOOK_S
    say: Callable[[str], object] = lambda line: None

    async def take(self, subjects: Sequence[Subject], rounds: int) -> dict[str, list[Measured]]:
        """`rounds` measurements of each subject by name, after one of each that is not counted."""
        found: dict[str, list[Measured]] = {subject.name: [] for subject in subjects}
        for subject in subjects:
            self.say(line("warm-up", subject, await subject.generate()))
        for i in range(rounds):
            for subject in subjects:
                found[subject.name].append(await self.measure(subject, f"round {i + 1}"))
        return found

    async def measure(self, subject: Subject, title: str) -> Measured:
        """One quiet measurement, or the quietest of TRIES, which `title` names to whoever listens."""
        noisy: list[tuple[Sample, float]] = []
        for _ in range(TRIES):
            await self._calm(subject)
            cores = self.meter.start(subject.roots)
            sample = await subject.generate()
            other = cores()
            if other is None or other <= self.max_noise:
                self.say(line(title, subject, sample))
                return Measured(sample, other, discarded=noisy)
            noisy.append((sample, other))
            self.say(f"{line(title, subject, sample)}; discarded: {other:.2f} cores busy with other work")
        best = min(noisy, key=lambda one: one[1])
        noisy.remove(best)
        self.say(f"{title}: {subject.name}: none of {TRIES} was quiet; the quietest counts and is marked")
        return Measured(*best, noisy=True, discarded=noisy)

    async def _calm(self, subject: Subject) -> None:
        """Wait until nothing but the subject computes, for `calm_s` at most."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self.calm_s
        while loop.time() < give_up:
            if (other := await self.look(subject.roots)) is None or other <= self.max_noise:
                return

    async def look(self, roots: Collection[int]) -> float | None:
        """How many cores other work keeps busy just now; None where that is not known."""
        cores = self.meter.start(roots)
        await asyncio.sleep(self.look_s)
        return cores()


def line(title: str, subject: Subject, sample: Sample) -> str:
    speeds = f"prefill {sample.prefill_tok_s:.2f} tok/s, decode {sample.decode_tok_s:.2f} tok/s"
    return f"{title}: {subject.name}: {speeds}"


def figures(measured: Sequence[Measured]) -> dict[str, Any]:
    """The rates of one subject over its rounds, tokens per second, and how quiet the machine was."""
    samples = [one.sample for one in measured]
    known = [one.other_cores for one in measured if one.other_cores is not None]
    return {
        "prompt_tokens": samples[0].prompt_tokens,
        "gen": samples[0].gen,
        "prefill_tok_s": spread([sample.prefill_tok_s for sample in samples]),
        "decode_tok_s": spread([sample.decode_tok_s for sample in samples]),
        "ttft_s": spread([sample.first_s for sample in samples])["p50"],
        "other_cores": max(known) if known else None,
        "noisy_rounds": [i + 1 for i, one in enumerate(measured) if one.noisy],
        "discarded": [
            {
                "round": i + 1,
                "prefill_tok_s": sample.prefill_tok_s,
                "decode_tok_s": sample.decode_tok_s,
                "other_cores": other,
            }
            for i, one in enumerate(measured)
            for sample, other in one.discarded
        ],
    }
