"""Reference files: what llama.cpp, or an independent float32 pass, computed for some prompts; and the score.

Two kinds, told apart by what their cases hold. "llama.cpp": ids of a prompt, the tokens that followed, the
best ten of the first step, and each step's lead over the runner-up. "f32": the same prompts by name, with
the greedy ids of a float32 pass; the prompts stand in the llama.cpp file beside it.
Scoring is teacher-forced: the device is fed the reference's own tokens, so that one different choice does
not make all later steps incomparable.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pagelm.errors import ContextFull, PagelmError
from pagelm.host.oracle.ops import argmax, log_softmax
from pagelm.host.terminal import read_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from numpy.typing import NDArray

    Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rule:
    """When a score passes: share of steps that agree, largest margin (nats) of a step that does not, largest
    difference (nats) of a log probability among the first step's best ten. `outliers`: the steps, by case
    and number, whose margin is not asked for."""

    min_agree: float
    max_margin: float
    max_logprob_diff: float
    outliers: tuple[tuple[str, int], ...] = ()


# llama.cpp quantises activations to 8 bits, so an exact float32 pass differs from it by this much (measured).
LLAMA_CPP = Rule(min_agree=0.95, max_margin=0.30, max_logprob_diff=0.5)
# In some models that makes more; by the sha256 of the model's file.
LLAMA_CPP_FOR = {
    # Gemma 3 270M Q4_K_M; two independent float32 passes differ from llama.cpp at its outlier.
    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818": Rule(
        min_agree=0.95, max_margin=0.40, max_logprob_diff=0.6, outliers=(("code-python", 23),)
    ),
}
# Both are float32; the file gives five decimals, and rounding moves a log probability by a few of the last.
FLOAT32 = Rule(min_agree=1.0, max_margin=0.0, max_logprob_diff=1e-3)


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt. `next_ids`: the tokens that followed; `margins`: their lead over the runner-up, in nats."""

    name: str
    ids: tuple[int, ...]
    next_ids: tuple[int, ...]
    first_top10: tuple[tuple[int, float], ...]
    margins: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A whole file. `model` is what the file says of the model: its name, size and sha256."""

    name: str
    kind: str  # "llama.cpp" or "f32"
    model: dict[str, Any]
    rule: Rule
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Differs:
    """A step at which the device would have gone on with another token."""

    step: int
    want: int
    got: int
    margin: float


@dataclass(frozen=True, slots=True)
class CaseScore:
    """One case: `worst_margin` is the reference's largest lead where the device chose another token."""

    name: str
    steps: int
    agree: int
    worst_margin: float
    max_logprob_diff: float
    differs: tuple[Differs, ...]


def load_reference(path: str | Path) -> Reference:
    """Read and check a file. Raises: PagelmError naming the file, the case and the field that is wrong."""
    path = Path(path)
    data, rows = _read(path)
    kinds = {"f32" if "f32Greedy" in row else "llama.cpp" for row in rows}
    if len(kinds) != 1:
        raise PagelmError(f"{path}: some cases are of a float32 file and some are not; one kind is allowed")
    kind = kinds.pop()
    prompts: dict[str, dict[str, Any]] = {}
    if kind == "f32":
        beside = path.with_name(path.name.replace("-f32", ""))
        if beside == path:
            raise PagelmError(f"{path}: a float32 file is named NAME-f32.json and stands beside NAME.json")
        prompts = {_name(beside, row, i): row for i, row in enumerate(_read(beside)[1])}
    cases = tuple(_case(path, row, i, kind, prompts) for i, row in enumerate(rows))
    if len({case.name for case in cases}) != len(cases):
        raise PagelmError(f"{path}: two cases have the same name; names must differ")
    model = data.get("model", {})
    if not isinstance(model, dict):
        raise PagelmError(f"{path}: model is {_shown(model)}; allowed: an object")
    rule = FLOAT32 if kind == "f32" else LLAMA_CPP_FOR.get(str(model.get("sha256")), LLAMA_CPP)
    return Reference(path.name, kind, model, rule, cases)


def score_case(case: Case, logits: Iterable["Logits"]) -> CaseScore:
    """Score a device's logits (n_vocab,), one for each of `case.next_ids`, fed the reference's tokens.

    The device's choice is the first of its largest logits. A step with a NaN agrees with nothing.
    Raises: PagelmError when there are fewer or more steps, or fewer logits than an id needs.
    """
    differs: list[Differs] = []
    diff, steps = 0.0, 0
    for step, row in enumerate(logits):
        if step >= len(case.next_ids):
            raise PagelmError(f"{case.name}: more than the reference's {len(case.next_ids)} steps were given")
        steps += 1
        want = case.next_ids[step]
        highest_id = max(want, *(i for i, _ in case.first_top10)) if step == 0 else want
        if highest_id >= len(row):
            raise PagelmError(
                f"{case.name}: the reference has token {highest_id}, the device {len(row)} logits; "
                "the file is for another model"
            )
        broken = bool(np.isnan(row).any())
        got = argmax(row)
        if broken or got != want:
            differs.append(Differs(step, want, got, case.margins[step]))
        if step == 0:
            diff = float("inf") if broken else _logprob_diff(case.first_top10, row)
    if steps != len(case.next_ids):
        raise PagelmError(f"{case.name}: {steps} of {len(case.next_ids)} steps were given")
    worst = max((d.margin for d in differs), default=0.0)
    return CaseScore(case.name, steps, steps - len(differs), worst, diff, tuple(differs))


def _logprob_diff(top: Sequence[tuple[int, float]], row: "Logits") -> float:
    got = log_softmax(row)
    return max(abs(float(got[i]) - p) for i, p in top)


def total(reference: Reference, scores: Sequence[CaseScore]) -> dict[str, Any]:
    """The score of a whole file, ready for JSON: ok, steps, agree, worst_margin, max_logprob_diff, cases …

    `worst_margin` is that of the steps that are no outliers of the rule.
    """
    steps = sum(s.steps for s in scores)
    agree = sum(s.agree for s in scores)
    known = set(reference.rule.outliers)
    worst = max((d.margin for s in scores for d in s.differs if (s.name, d.step) not in known), default=0.0)
    diff = max((s.max_logprob_diff for s in scores), default=0.0)
    rule = reference.rule
    whole = len(scores) == len(reference.cases)
    ok = agree >= rule.min_agree * steps and worst <= rule.max_margin and diff <= rule.max_logprob_diff
    return {
        "ok": whole and ok,
        "reference": reference.name,
        "kind": reference.kind,
        "steps": steps,
        "agree": agree,
        "worst_margin": worst,
        "max_logprob_diff": diff,
        "rule": asdict(rule),
        "cases": [asdict(s) for s in scores],
    }


def first_difference(case: Case, ids: Sequence[int]) -> int | None:
    """For a free greedy run: the first step whose id is not the reference's (or is missing), or None."""
    for step, want in enumerate(case.next_ids):
        if step >= len(ids) or ids[step] != want:
            return step
    return None


class Traced(Protocol):
    """What is asked of a device; see host/lm.py."""

    device: str

    def trace(
        self, prompt_ids: Sequence[int], n: int, forced: Sequence[int] | None = None
    ) -> "AsyncIterator[tuple[int, Logits]]": ...


async def check_reference(
    lm: Traced, path: str | Path, *, say: Callable[[str], object] = lambda line: None
) -> dict[str, Any]:
    """Score a device against a file, case by case; see `total` for what comes back."""
    reference = load_reference(path)
    scores = []
    say(f"{'agree':>9}  {'margin':>7}  {'logprob':>8}  case   ({lm.device} against {reference.name})")
    for case in reference.cases:
        steps = lm.trace(case.ids, len(case.next_ids), forced=case.next_ids)
        try:
            scores.append(score := score_case(case, [logits async for _, logits in steps]))
        except ContextFull as e:
            raise ContextFull(f"{case.name}: {e}", n_ctx=e.n_ctx) from e
        agree = f"{score.agree} of {score.steps}"
        say(f"{agree:>9}  {score.worst_margin:7.4f}  {score.max_logprob_diff:8.5f}  {case.name}")
    report = total(reference, scores)
    verdict = "ok" if report["ok"] else "WRONG"
    outliers = ", ".join(f"step {step} of {name}" for name, step in reference.rule.outliers)
    beside = f" (but for {outliers}, known to differ)" if outliers else ""
    say(
        f"{verdict}: {report['agree']} of {report['steps']} steps agree, the worst margin is "
        f"{report['worst_margin']:.4f} nats{beside}, the largest log-probability difference "
        f"{report['max_logprob_diff']:.5f} nats"
    )
    return report


def _read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        data = json.loads(read_text(path))
    except (ValueError, RecursionError) as e:
        raise PagelmError(f"{path}: not JSON: {e}") from e
    rows = data.get("cases") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise PagelmError(f"{path}: cases is {_shown(rows)}; allowed: a list of objects, at least one")
    return data, rows


def _name(path: Path, row: dict[str, Any], index: int) -> str:
    name = row.get("name")
    if not isinstance(name, str) or not name:
        raise PagelmError(
            f"{path}: case {index}: name is {_shown(name)}; allowed: a string that is not empty"
        )
    return name


def _case(path: Path, row: dict[str, Any], index: int, kind: str, prompts: dict[str, dict[str, Any]]) -> Case:
    name = _name(path, row, index)
    where = f"{path}: case {name}"
    if kind == "f32":
        if name not in prompts:
            raise PagelmError(f"{where}: the file beside it, with the prompts, has no case of that name")
        ids = _ids(where, "ids", prompts[name].get("ids"))
        next_ids = _ids(where, "f32Greedy", row.get("f32Greedy"))
        top = _top(where, "f32FirstTop10", row.get("f32FirstTop10"))
        margins = _numbers(where, "f32Margins", row.get("f32Margins"))
    else:
        ids = _ids(where, "ids", row.get("ids"))
        next_ids = _ids(where, "greedy", row.get("greedy"))
        top = _top(where, "firstTop10", row.get("firstTop10"))
        margins = _leads(where, row.get("top2"))
    if len(margins) != len(next_ids):
        raise PagelmError(f"{where}: {len(next_ids)} tokens but {len(margins)} margins; they must be as many")
    return Case(name, ids, next_ids, top, margins)


def _is_id(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300  # neither NaN


def _ids(where: str, field: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(map(_is_id, value)):
        raise PagelmError(f"{where}: {field} is {_shown(value)}; allowed: a list of token ids, at least one")
    return tuple(value)


def _numbers(where: str, field: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not all(map(_is_number, value)):
        raise PagelmError(f"{where}: {field} is {_shown(value)}; allowed: a list of finite numbers")
    return tuple(float(x) for x in value)


def _top(where: str, field: str, value: Any) -> tuple[tuple[int, float], ...]:
    pairs = value if isinstance(value, list) else []
    fine = all(isinstance(p, list) and len(p) == 2 and _is_id(p[0]) and _is_number(p[1]) for p in pairs)
    if not pairs or not fine:
        allowed = "a list of [token id, log probability], at least one"
        raise PagelmError(f"{where}: {field} is {_shown(value)}; allowed: {allowed}")
    return tuple((p[0], float(p[1])) for p in pairs)


def _leads(where: str, value: Any) -> tuple[float, ...]:
    rows = value if isinstance(value, list) else None
    shape = [
        isinstance(r, list) and len(r) == 3 and _is_number(r[0]) and _is_number(r[2]) for r in rows or []
    ]
    if rows is None or not all(shape):
        allowed = "a list of [log probability, runner-up id, its log probability]"
        raise PagelmError(f"{where}: top2 is {_shown(value)}; allowed: {allowed}")
    return tuple(float(r[0]) - float(r[2]) for r in rows)


def _shown(value: Any) -> str:
    text = "missing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
