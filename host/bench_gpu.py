"""Is a GPU right, and is it fast? `pagelm bench-gpu`: one run that needs nothing from outside.

For each of a few shapes of real models, with random weights made here (synthetic.py):

- "oracle": logits and greedy ids against the numpy oracle, by the rule of `pagelm check`; of a model cut to
  one layer where the whole would take numpy too long;
- "whole": at full depth, the device against itself: logits of the prompt's program against those of the
  decode program, and the last residual stream of the prompt's against that of the program that does one
  operation a dispatch. All of them wrong in the same way would pass;
- "speed": prefill and decode by the host's clock, and what share that is of what the adapter does at best.

Every shape gets its part of the time that is left. What there is no time or memory for is skipped, and the
report says so.
"""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelm.adapt import NARROW
from pagelm.cancel import Cancel
from pagelm.device import AdapterInfo
from pagelm.device.native import NativeGpu
from pagelm.engine import Model
from pagelm.errors import Cancelled, LimitError, PagelmError
from pagelm.host import profile
from pagelm.host.bench import TEXT, busy_cores, versions
from pagelm.host.check import check, rel_diff
from pagelm.host.native_lm import NativeLm
from pagelm.host.oracle import Oracle
from pagelm.host.synthetic import SHAPES, Shape, SyntheticSource
from pagelm.loading import load_model
from pagelm.metrics import Progress
from pagelm.tune import Tuner

Say = Callable[[str], object]
Report = dict[str, Any]

PROMPTS = (TEXT[:90], "1, 1, 2, 3, 5, 8")  # a token a byte: more than go into one submit, and few
STEPS = 8
ORACLE_WEIGHTS = 400_000_000  # of a larger model numpy gets one layer
ORACLE_WEIGHTS_S = 30_000_000  # that numpy gets through, all steps of all prompts, on two cores
ORACLE_BYTES = 10  # memory that numpy takes for a weight: float32, and what decoding takes meanwhile
ITSELF_MAX_REL = 2e-5  # two passes of the device: each may be off by 1e-5
PROMPT_TOKENS = (512, 256, 128, 64, 32)
GEN = 64
LEAST_GEN = 8
N_CTX = 1024
ROUNDS = 5
FREE_SHARE = 0.8  # of the free memory, where the adapter computes in the machine's own
BARS = {"decode_of_copy": 0.60, "prefill_of_fma": 0.30}  # what a real GPU should reach
BARRED = ("llama-3.2-1b", "qwen3-8b")  # smaller ones have too little to do for it


class Skipped(PagelmError):
    """There was no time or memory for a step."""


class Clock:
    """Seconds that are left of a budget."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()

    def need(self, seconds: float, what: str) -> None:
        """Raises: Skipped when less is left than `what` takes."""
        if self.left < seconds:
            raise Skipped(f"{what} takes about {seconds:.0f} s; {max(0, self.left):.0f} s are left")


async def bench_gpu(
    shapes: Sequence[Shape] = SHAPES,
    *,
    budget_s: float = 300,
    memory_budget: int | None = None,
    say: Say = lambda line: None,
) -> Report:
    """Run all of it on the native adapter.

    Returns ok (something was compared, nothing was wrong), compared of how many comparisons, adapter, limits,
    busy_cores, versions, budget_s, took_s, shapes.

    A shape's report: name, n_layer, weight_bytes, load_s, tuning (`Tuning.as_dict`), and the steps "oracle",
    "whole", "speed", each with "ok" or "skipped" (why); or "skipped" or "error" for the shape as a whole.
    Raises: DeviceError without an adapter.
    """
    clock, busy = Clock(budget_s), busy_cores()
    gpu = await NativeGpu.open(memory_budget=memory_budget)
    gpu.close()
    if memory_budget is None and (free := free_bytes()) is not None and _is_software(gpu.adapter):
        memory_budget = int(FREE_SHARE * free)  # its memory is the machine's: nothing else would stop it
    adapter = ", ".join(filter(None, (gpu.adapter.device, gpu.adapter.description, gpu.adapter.backend)))
    say(f"{adapter}; {budget_s:g} s for {len(shapes)} shapes")
    reports = []
    for i, shape in enumerate(shapes):
        say(f"{shape.name}: {shape.n_layer} layers, {shape.n_embd} wide, {shape.quant}")
        share = Clock(clock.left / (len(shapes) - i))
        gpu = await NativeGpu.open(memory_budget=memory_budget)
        try:
            reports.append(await _shape(gpu, shape, share, say))
        finally:
            gpu.close()
    steps = [r[step] for r in reports for step in ("oracle", "whole", "speed") if step in r]
    wrong = [r for r in (*reports, *steps) if "error" in r or r.get("ok") is False]
    compared = sum("ok" in step for step in steps)
    return {
        "ok": not wrong and compared > 0,
        "compared": compared,
        "comparisons": 2 * len(reports),
        "device": "native",
        "adapter": adapter,
        "limits": {"max_storage_buffer_binding_size": gpu.limits.max_storage_buffer_binding_size},
        "busy_cores": busy,
        "versions": versions(),
        "budget_s": budget_s,
        "took_s": budget_s - clock.left,
        "shapes": reports,
    }


async def _shape(gpu: NativeGpu, shape: Shape, clock: Clock, say: Say) -> Report:
    """All steps of a shape. What goes wrong is part of the report."""
    source = SyntheticSource(shape)
    report: Report = {"name": shape.name, "n_layer": shape.n_layer, "weight_bytes": source.size}

    async def step(name: str, run: Callable[[], Awaitable[Report]]) -> None:
        start = time.monotonic()
        report[name] = await _caught(run)
        report[name]["took_s"] = time.monotonic() - start
        if why := report[name].get("skipped") or report[name].get("error"):
            say(f"  {name}: {'skipped' if 'skipped' in report[name] else 'ERROR'}: {why}")

    await step("oracle", lambda: _against_oracle(gpu, shape, clock, say))
    start = time.monotonic()
    try:
        model = await _loaded(gpu, source, min(N_CTX, shape.n_ctx_train), clock)
    except PagelmError as e:
        kind = "skipped" if isinstance(e, LimitError | Skipped) else "error"
        say(f"  {kind}: {e}")
        return {**report, kind: str(e)}
    try:
        report["load_s"] = time.monotonic() - start
        report["tuning"] = model.tuning.as_dict()
        say(f"  loaded {source.size / 1e9:.2f} GB in {report['load_s']:.1f} s")
        await step("whole", lambda: _against_itself(model, clock, say))
        await step("speed", lambda: _speed(model, shape, clock, say))
    finally:
        await model.close()
    return report


async def _loaded(gpu: NativeGpu, source: SyntheticSource, n_ctx: int, clock: Clock) -> Model:
    """Raises: Skipped when the time ends before the model is loaded; what loading raises."""
    cancel = Cancel()

    def watch(progress: Progress) -> None:
        if clock.left <= 0:
            cancel.cancel()

    try:
        return await load_model(
            gpu, source, n_ctx=n_ctx, on_progress=watch, cancel=cancel, tuner=Tuner("force")
        )
    except Cancelled:
        raise Skipped("there was no time left to load it") from None


async def _caught(run: Callable[[], Awaitable[Report]]) -> Report:
    try:
        return await run()
    except (Skipped, LimitError) as e:
        return {"skipped": str(e)}
    except PagelmError as e:
        return {"error": f"{type(e).__name__}: {e}"}


# ---- is it right ----


async def _against_oracle(gpu: NativeGpu, shape: Shape, clock: Clock, say: Say) -> Report:
    if n_weights(shape) > ORACLE_WEIGHTS:
        shape = shape.with_layers(1)
    n, free = n_weights(shape, multiplied=True), free_bytes()
    if free is not None and ORACLE_BYTES * n > free:
        needed = ORACLE_BYTES * n / 1e9
        raise Skipped(f"numpy needs about {needed:.0f} GB of memory for it; {free / 1e9:.0f} GB are free")
    clock.need(n / ORACLE_WEIGHTS_S, f"numpy, for {n / 1e6:.0f} million weights,")
    source = SyntheticSource(shape)
    model = await load_model(gpu, source, n_ctx=min(256, shape.n_ctx_train), tuner=Tuner("force"))
    try:
        oracle = Oracle(source, n_ctx=model.n_ctx)
        found = await check(NativeLm(model), oracle, PROMPTS, steps=STEPS)
    finally:
        await model.close()
    worst, equal = found["max_rel_logit_diff"], "equal" if found["ids_equal"] else "DIFFER"
    off = f"off by {worst:.1e} (allowed {found['tolerance']:g}), ids {equal}"
    say(f"  oracle, {shape.n_layer} layer(s): {off}")
    if found["first_bad"]:
        say(f"  WRONG: first in {found['first_bad']}")
    return {"n_layer": shape.n_layer, **{k: v for k, v in found.items() if k != "cases"}}


async def _against_itself(model: Model, clock: Clock, say: Say) -> Report:
    """At full depth: prompt against decode, fused against one operation a dispatch."""
    clock.need(1, "comparing programs")
    ids, last = ids_of(model, 24), f"blk.{model.hparams.n_layer - 1}."
    start = time.monotonic()
    whole = _f32(await model.prefill_logits(ids))
    clock.need(5 * (time.monotonic() - start), "comparing programs")  # two more such passes, and tokens
    fed = ids[-STEPS:]  # one at a time, after the rest
    steps = [logits async for _, logits in model.trace(ids[:-STEPS], STEPS + 1, forced=fed)]
    decode = rel_diff(_f32(steps[-1]), whole)
    await model.prefill_logits(ids, stop=last + "attn_residual")
    fused = _f32(await model.peek("x"))
    await model.prefill_logits(ids, stop=last + "ffn_norm")  # what only the unfused program can stop after
    plain = rel_diff(fused, _f32(await model.peek("x")))
    ok = max(decode, plain) <= ITSELF_MAX_REL
    say(
        f"  whole: prompt and decode differ by {decode:.1e}, fused and unfused by {plain:.1e} "
        f"(allowed {ITSELF_MAX_REL:g}){'' if ok else ': WRONG'}"
    )
    return {"ok": ok, "decode_rel": decode, "unfused_rel": plain, "tolerance": ITSELF_MAX_REL}


# ---- is it fast ----


async def _speed(model: Model, shape: Shape, clock: Clock, say: Say) -> Report:
    clock.need(1, "timing")
    run = NativeLm(model).generate
    for _ in range(2):  # the first warms up; pieces of a prompt grow with what it took
        timing = (await run(ids_of(model, 64), LEAST_GEN, True))["timing"]
    prefill, decode = timing["prefill_tok_s"], timing["decode_tok_s"]
    # what the profile takes (see pagelm.profile): passes over a piece of the prompt, tokens, the whole prompt
    profile_s = 6 + 4 * LEAST_GEN / decode + 11 * model.plan.n_batch / prefill
    part_s = (clock.left - profile_s) / 6  # of a round, which there should be two of, and of the profile
    fitting = [n for n in PROMPT_TOKENS if n / prefill <= part_s and n + GEN <= model.n_ctx]
    n_prompt = fitting[0] if fitting else PROMPT_TOKENS[-1]
    profile_s += n_prompt / prefill
    gen = max(LEAST_GEN, min(GEN, int(part_s * decode)))
    prefills, decodes = [], []
    while len(decodes) < ROUNDS:
        start = time.monotonic()
        timing = (await run(ids_of(model, n_prompt), gen, True))["timing"]
        prefills.append(timing["prefill_tok_s"])
        decodes.append(timing["decode_tok_s"])
        if clock.left < profile_s + 1.2 * (time.monotonic() - start):
            break
    report: Report = {
        "prompt_tokens": n_prompt,
        "gen": gen,
        "rounds": len(decodes),
        "prefill_tok_s": _spread(prefills),
        "decode_tok_s": _spread(decodes),
    }
    say(
        f"  speed: prefill {report['prefill_tok_s']['p50']:.1f} tok/s ({n_prompt} tokens), decode "
        f"{report['decode_tok_s']['p50']:.1f} tok/s ({gen} tokens), {len(decodes)} round(s)"
    )
    report["profile"] = await _caught(lambda: _profile(model, n_prompt, clock, profile_s))
    if why := report["profile"].get("skipped") or report["profile"].get("error"):
        say(f"  profile: none: {why}")
        return report
    return {**report, **_shares(report, shape, say)}


async def _profile(model: Model, n_prompt: int, clock: Clock, seconds: float) -> Report:
    clock.need(seconds, "the profile")
    found = await profile.profile(NativeLm(model), prompt_tokens=n_prompt, tokens=LEAST_GEN)
    return {name: value for name, value in found.items() if name != "raw"}


def _shares(report: Report, shape: Shape, say: Say) -> Report:
    """Of the adapter's best, what decode and prefill reach by the host's clock, and where a GPU should be."""
    found = report["profile"]
    decode, prompt = (found[kind]["kernels"][-1] for kind in ("decode", "prompt"))
    # what a token needs, times tokens a second: the prompt's last row alone has logits, in every prompt
    shares = {
        "decode_of_copy": decode["bytes"] * report["decode_tok_s"]["p50"] / found["copy_bytes_s"],
        "prefill_of_fma": prompt["flops"]
        / found["prompt"]["n_tokens"]
        * report["prefill_tok_s"]["p50"]
        / found["fma_flops_s"],
    }
    bars = BARS if shape.name in BARRED else {}
    for name, share in shares.items():
        what, of = name.split("_of_")
        bar = f" (a GPU should reach {bars[name]:.0%})" if name in bars else ""
        say(f"  {what}: {share:.0%} of what the adapter does at best ({of}){bar}")
    reached = {name: bool(shares[name] >= bar) for name, bar in bars.items()}
    return {**shares, "bars": bars, "bars_reached": reached}


def as_text(report: Report) -> str:
    """The profile of every shape, and the verdict."""
    lines = []
    for shape in report["shapes"]:
        found = shape.get("speed", {}).get("profile", {})
        if "decode" in found:
            lines.append(f"==== {shape['name']}\n{profile.as_text(found)}")
    missed = [
        f"{shape['name']} {name}"
        for shape in report["shapes"]
        for name, reached in shape.get("speed", {}).get("bars_reached", {}).items()
        if not reached
    ]
    verdict = "yes" if report["ok"] else "NO" if report["compared"] else "nothing was compared"
    made = f"{report['compared']} of {report['comparisons']} comparisons made"
    lines.append(f"right: {verdict}; {made}; took {report['took_s']:.0f} s")
    if missed:
        lines.append(f"slower than a GPU should be: {', '.join(missed)}")
    return "\n".join(lines) + "\n"


# ---- small things ----


def shapes_named(names: Sequence[str]) -> list[Shape]:
    """Shapes by name, all of them for none. Raises: PagelmError."""
    known = {shape.name: shape for shape in SHAPES}
    if unknown := [name for name in names if name not in known]:
        raise PagelmError(f"there is no shape {unknown[0]!r}; allowed: {', '.join(known)}")
    return [known[name] for name in names] or list(SHAPES)


def n_weights(shape: Shape, multiplied: bool = False) -> int:
    """Elements of all matrices, or of those that are multiplied with, not just looked up in."""
    kv = shape.n_embd // shape.n_head * shape.n_head_kv
    layer = shape.n_embd * (2 * shape.n_embd + 2 * kv + 3 * shape.n_ff)
    return shape.n_layer * layer + shape.n_vocab * shape.n_embd * (1 if shape.tied or multiplied else 2)


def ids_of(model: Model, n: int) -> list[int]:
    """The same random ids every time."""
    found: list[int] = np.random.default_rng(7).integers(0, model.hparams.n_vocab, n).tolist()
    return found


def free_bytes() -> int | None:
    """Memory of the machine that is free for the asking; None where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        try:
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, AttributeError):
            return None


def _is_software(adapter: AdapterInfo) -> bool:
    text = f"{adapter.architecture} {adapter.device} {adapter.vendor}".lower()
    return any(name in text for name in NARROW)


def _f32(values: Any) -> NDArray[np.float32]:
    return np.frombuffer(values, np.float32)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": float(np.median(values)), "min": min(values), "max": max(values)}
