"""Is a device's arithmetic right? Its logits against the numpy oracle's, and where the first error arises.

The device generates freely; the oracle is fed the same ids and its logits are compared step by step. When
they differ, the pass is stopped after one step after another until the first wrong one is found.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pagelm.errors import ContextFull, NumericError, PagelmError, PromptError
from pagelm.host.cpu_lm import local_file, open_oracle
from pagelm.host.lm import Lm, kernels_of
from pagelm.host.oracle import Oracle, ops
from pagelm.host.terminal import read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_REL = 1e-5  # of the largest logit: the rule for float32 against float32
MAX_REL_F16_CACHE = 2e-3  # f16 keys and values are off by 5e-4 each
STEPS = 32

# Varied on purpose: scripts of 1 to 4 bytes a character, digits, code, white space, special tokens,
# repetition, one token, and more tokens than go into one submit.
PROMPTS = (
    "The capital of France is",
    "Once upon a time there was a small robot who",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "Die Hauptstadt von Österreich heißt",
    "日本の首都は",
    "🙂🙃🙂🙃",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "the the the the the the the the the the",
    "\n",
    '{"name": "Ada", "born": 1815, "languages": ["English", "French"',
    "Water boils at a temperature that depends on the pressure of the air around it. At sea level that is "
    "one hundred degrees Celsius; on a high mountain, where the air is thinner, it is a good deal less, so "
    "that eggs and potatoes take longer to cook. A pressure cooker turns this around:",
)

# Steps, by the last part of their labels.
ENDS = ("embed", "embed_positions", "attn_residual", "ffn_residual", "output")  # of links in the chain
APART = ("kv_store", "attn_scores", "attn_softmax", "argmax")  # kept in another form than the oracle's


class Reference(Protocol):
    """What is asked of the oracle; see host/oracle/model.py."""

    n_ctx: int

    def reset(self) -> None: ...
    def forward(
        self, ids: Sequence[int], n_layers: int | None = None, trace: dict[str, Any] | None = None
    ) -> "NDArray[np.float32]": ...


@dataclass(frozen=True, slots=True)
class Rule:
    """What a device with a cache of this type is held to, as parts of the oracle's largest logit.

    `max_rel`: how far logits may be off. `near_tie`: another id than the oracle's may be chosen where the
    oracle has it below its own by less than this; with 0 ids must be equal.
    """

    cache_type: str
    max_rel: float
    near_tie: float = 0.0


RULES = {"f32": Rule("f32", MAX_REL), "f16": Rule("f16", MAX_REL_F16_CACHE, near_tie=MAX_REL_F16_CACHE)}


@dataclass(frozen=True, slots=True)
class FirstBad:
    """The first step whose result is off: its layer (None outside the layers), operation and error."""

    layer: int | None
    op: str
    rel: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One prompt: the worst relative difference of a step's logits, and the step; and whether ids agree.

    `ids_differ`: steps at which they do not; `id_margin`: the most by which the oracle has its own id above
    the one chosen, as a part of its largest logit.
    `whole_tokens`: ids of the whole prompt, of which the first `prompt_tokens` left room for the steps.
    """

    prompt: str
    prompt_tokens: int
    whole_tokens: int
    ids: list[int]
    max_rel_logit_diff: float
    worst_step: int
    ids_differ: int
    id_margin: float

    @property
    def ids_equal(self) -> bool:
        return self.ids_differ == 0

    def is_ok(self, rule: Rule) -> bool:
        return self.ids_agree(rule) and self.max_rel_logit_diff <= rule.max_rel

    def ids_agree(self, rule: Rule) -> bool:
        """Whether they are equal but for near-ties that the rule allows."""
        return self.ids_equal or self.id_margin < rule.near_tie

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ids_equal": self.ids_equal}


def rel_diff(got: "NDArray[Any]", want: "NDArray[Any]") -> float:
    """max |got - want| / max |want|; infinite when anything is not finite or the shapes differ."""
    if got.shape != want.shape or not (np.isfinite(got).all() and np.isfinite(want).all()):
        return float("inf")
    scale = float(np.abs(want).max(initial=0.0))
    diff = float(np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0.0))
    return diff / scale if scale else (0.0 if diff == 0.0 else float("inf"))


def rel_margin(want: "NDArray[Any]", token: int) -> float:
    """(largest - `token`'s logit) / max |want|; infinite when anything is not finite."""
    scale = float(np.abs(want).max())
    behind = float(want.max()) - float(want[token])
    return behind / scale if scale and np.isfinite(want).all() else float("inf")


def rule_for(cache_type: str, n_expert: int) -> Rule:
    """The rule of a cache's type. Raises: PagelmError where there is none: with an f16 cache and experts."""
    if n_expert and cache_type != "f32":
        raise PagelmError(
            f"with a cache of {cache_type} a model with experts cannot be held to a rule: what rounding"
            " changes may send a token to another expert; check it with --cache-type f32"
        )
    return RULES[cache_type]


async def check(
    lm: Lm,
    oracle: Reference,
    prompts: Sequence[str] = PROMPTS,
    *,
    steps: int = STEPS,
    rule: Rule = RULES["f32"],
    say: Callable[[str], object] = lambda line: None,
) -> dict[str, Any]:
    """Compare `steps` greedy steps after each prompt; on failure find the first bad step of a pass.

    Of a prompt that leaves the context no room for them, the first tokens that do are used.

    `rule` is what the device is held to, after the type of its cache.

    Returns ok, tuning, prompts, steps, cache_type, tolerance, max_rel_logit_diff, ids_equal, near_ties (steps
    with other ids that the rule allows), first_bad (or None) and cases.
    Raises: ContextFull when the steps alone do not fit; PromptError naming a prompt without tokens.
    """
    if steps > oracle.n_ctx:  # the last one's id is not fed, one of a prompt is
        raise ContextFull(
            f"{steps} steps do not fit the context of {oracle.n_ctx} tokens; allowed: 1 to {oracle.n_ctx}; "
            "check fewer (--max-tokens), or in a larger context (--ctx)",
            n_ctx=oracle.n_ctx,
        )
    cases = []
    say(f"{'rel diff':>9}  {'tokens':>7}  ids     prompt   ({lm.device}, {steps} steps each)")
    for prompt in prompts:
        cases.append(case := await compare(lm, oracle, prompt, steps))
        agreed = "equal" if case.ids_equal else "near" if case.ids_agree(rule) else "DIFFER"
        cut = "" if case.prompt_tokens == case.whole_tokens else f"  (cut: it has {case.whole_tokens} tokens)"
        say(f"{case.max_rel_logit_diff:9.2e}  {case.prompt_tokens:7}  {agreed:6}  {shortened(prompt)}{cut}")
    worst = max(cases, key=lambda case: (not case.is_ok(rule), case.max_rel_logit_diff))
    ok = worst.is_ok(rule)
    first_bad = None
    if not ok:
        say("looking for the first step that is off …")
        ids = await lm.encode(worst.prompt)
        ids = ids[: worst.prompt_tokens] + worst.ids[: worst.worst_step]
        first_bad = await find_first_bad(lm, oracle, ids, rule.max_rel) or _only_in_decode(worst)
    near = [case for case in cases if not case.ids_equal and case.ids_agree(rule)]
    if near:
        say(
            f"near-ties at {sum(case.ids_differ for case in near)} steps: the oracle has its own id above the"
            f" one chosen by at most {max(case.id_margin for case in near):.2e} of its largest logit"
            f" (allowed {rule.near_tie:g})"
        )
    say(_verdict(worst, first_bad, rule))
    return {
        "ok": ok,
        "tuning": kernels_of(lm),
        "prompts": len(cases),
        "steps": steps,
        "cache_type": rule.cache_type,
        "tolerance": rule.max_rel,
        "max_rel_logit_diff": max(case.max_rel_logit_diff for case in cases),
        "ids_equal": all(case.ids_equal for case in cases),
        "near_ties": sum(case.ids_differ for case in near),
        "first_bad": asdict(first_bad) if first_bad else None,
        "cases": [case.as_dict() for case in cases],
    }


def _verdict(worst: Compared, first_bad: FirstBad | None, rule: Rule) -> str:
    """The result in a line."""
    allowed = f"allowed {rule.max_rel:g}" + f" with an {rule.cache_type} cache" * (rule.cache_type != "f32")
    off = f"{worst.max_rel_logit_diff:.2e} of the largest logit ({allowed})"
    if first_bad is None:
        return f"ok: largest difference {off}"
    layer = "" if first_bad.layer is None else f"layer {first_bad.layer}, "
    return (
        f"WRONG: {off} after {shortened(worst.prompt)}; first bad step: {layer}{first_bad.op}, "
        f"off by {first_bad.rel:.2e}"
    )


def shortened(prompt: str) -> str:
    return repr(prompt if len(prompt) <= 48 else prompt[:47] + "…")


def _only_in_decode(case: Compared) -> FirstBad:
    """A prompt's pass over the same ids is right: what is wrong happens in the pass for one token alone."""
    return FirstBad(None, "decode", case.max_rel_logit_diff)


async def compare(lm: Lm, oracle: Reference, prompt: str, steps: int) -> Compared:
    """The device's free greedy run against the oracle on the same ids."""
    try:
        whole = await lm.encode(prompt)
        if not whole:
            raise PromptError("it has no tokens; leave it out")
    except PromptError as e:
        raise PromptError(f"prompt {shortened(prompt)}: {e}") from e
    ids = whole[: oracle.n_ctx - steps + 1]
    oracle.reset()
    feed: list[int] = ids
    chosen: list[int] = []
    worst, worst_step, ids_differ, margin = -1.0, 0, 0, 0.0
    try:
        async for token, logits in _exactly(lm.trace(ids, steps), steps):
            want = oracle.forward(feed)
            rel = rel_diff(logits, want)
            if rel > worst:
                worst, worst_step = rel, len(chosen)
            best = ops.argmax(want)
            if token != best:
                ids_differ += 1
                margin = max(margin, rel_margin(want, token))
            chosen.append(token)
            feed = [token]
    except NumericError:  # all NaN: as wrong as can be, and just what the search is for
        worst, worst_step, ids_differ, margin = float("inf"), len(chosen), ids_differ + 1, float("inf")
    return Compared(prompt, len(ids), len(whole), chosen, worst, worst_step, ids_differ, margin)


async def _exactly(trace: AsyncIterator[Any], n: int) -> AsyncIterator[Any]:
    """Pass a trace through, and do not take fewer steps for agreement."""
    seen = 0
    async for step in trace:
        seen += 1
        yield step
    if seen != n:
        raise PagelmError(f"the device gave {seen} of {n} steps; the context is too small for the comparison")


async def find_first_bad(
    lm: Lm, oracle: Reference, ids: Sequence[int], tolerance: float = MAX_REL
) -> FirstBad | None:
    """The first step of a pass over `ids` whose result is off by more than `tolerance`, or None.

    The residual stream carries an error on to the end, so the layer is found by bisection. Within it not
    every step depends on the one before, so its steps are tried in order.
    """
    want: dict[str, NDArray[np.float32]] = {}
    oracle.reset()
    oracle.forward(list(ids), trace=want)
    labels = [label for label in await lm.labels() if label in want and _op(label) not in APART]

    async def error(label: str) -> float:
        got = await lm.values(ids, label)
        return rel_diff(got.reshape(-1), want[label].reshape(-1))

    chain = [i for i, label in enumerate(labels) if _op(label) in ENDS]
    if not chain or await error(labels[chain[-1]]) <= tolerance:
        return None
    low, high = 0, len(chain) - 1  # chain[high] is bad; all below chain[low] are good
    while low < high:
        middle = (low + high) // 2
        if await error(labels[chain[middle]]) > tolerance:
            high = middle
        else:
            low = middle + 1
    start = chain[low - 1] + 1 if low else 0
    for label in labels[start : chain[low] + 1]:
        rel = await error(label)
        if rel > tolerance:
            return FirstBad(_layer(label), _op(label), rel)
    return None


def _op(label: str) -> str:
    return label.rpartition(".")[2]


def _layer(label: str) -> int | None:
    return int(label.split(".")[1]) if label.startswith("blk.") else None


@asynccontextmanager
async def oracle_of(model: str, n_ctx: int | None) -> AsyncIterator[Oracle]:
    """The numpy oracle for a model given as a URL (copied here for as long) or a path."""
    with ExitStack() as stack:
        path = await local_file(model, stack)
        yield await open_oracle(path, n_ctx)


def read_prompts(path: Path) -> list[str]:
    """Prompts from a file: a JSON list of strings, or one prompt a line (empty lines are none)."""
    text = read_text(path)
    prompts: list[str]
    if text.lstrip().startswith("["):
        try:
            prompts = json.loads(text)
        except ValueError as e:
            raise PagelmError(f"{path}: begins like a JSON list, but is none: {e}") from e
        if not all(isinstance(p, str) and p for p in prompts):
            raise PagelmError(f"{path}: every element of the list must be a string that is not empty")
    else:
        prompts = [line for line in text.splitlines() if line.strip()]
    if not prompts:
        raise PagelmError(f"{path}: no prompts in it")
    return prompts
