"""What llama.cpp computed for the tiny models (references/), and how far other logits are from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("references")


@dataclass(frozen=True, slots=True)
class Reference:
    """llama.cpp's log-probabilities (natural) for `ids` and then `generated`, its own greedy choices.

    Position p predicts the token after p. `rows`: position -> (n_vocab,); `top_ids`, `top`: (positions, 8),
    the most probable of every position. `gaps`: nats between the two most probable tokens where each of
    `generated` was chosen; where one is small a correct engine may choose the other. `digest`: of the model.
    """

    name: str
    digest: str
    n_ctx: int
    ids: tuple[int, ...]
    generated: tuple[int, ...]
    gaps: tuple[float, ...]
    rows: Mapping[int, np.ndarray]
    top_ids: np.ndarray
    top: np.ndarray
    producer: Mapping[str, Any]

    @property
    def all_ids(self) -> tuple[int, ...]:
        """What to feed for a row of logits at every position: `ids` and `generated`."""
        return self.ids + self.generated

    def nmse(self, logits: np.ndarray) -> float:
        """The worst of the stored rows: squared error of the log-probabilities over their variance.

        logits: (positions, n_vocab), of `all_ids` or of a beginning of it that is no shorter than `ids`.
        """
        ours = log_softmax(logits)
        errors = [
            np.mean((ours[p] - row) ** 2) / np.var(row) for p, row in self.rows.items() if p < len(ours)
        ]
        return float(max(errors))

    def difference(self, logits: np.ndarray) -> float:
        """The largest difference, in nats, of the most probable tokens' log-probabilities at any position."""
        ours = np.take_along_axis(log_softmax(logits), self.top_ids[: len(logits)], axis=1)
        return float(np.abs(ours - self.top[: len(logits)]).max())

    def decided(self, least: float = 1e-3) -> int:
        """How many of `generated` a correct engine must choose: those before the first gap below `least`."""
        return next((i for i, gap in enumerate(self.gaps) if gap < least), len(self.gaps))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def load(name: str) -> Reference:
    """The reference of the model with that name."""
    found = json.loads((FOLDER / f"{name}.json").read_text())
    top = np.array(found["top"])
    return Reference(
        name=name,
        digest=found["digest"],
        n_ctx=found["n_ctx"],
        ids=tuple(found["ids"]),
        generated=tuple(found["generated"]),
        gaps=tuple(found["gaps"]),
        rows={int(p): np.array(row) for p, row in found["rows"].items()},
        top_ids=top[:, 0::2].astype(np.int64),
        top=top[:, 1::2],
        producer=found["producer"],
    )


def save(
    name: str,
    digest: str,
    n_ctx: int,
    ids: Sequence[int],
    generated: Sequence[int],
    probabilities: np.ndarray,
    kept: Sequence[int],
    producer: Mapping[str, Any],
    n_top: int = 8,
) -> Path:
    """Write a reference from probabilities (len(ids) + len(generated), n_vocab); `kept`: the rows to keep."""
    lp = np.log(probabilities / probabilities.sum(axis=1, keepdims=True))
    order = np.argsort(-lp, axis=1)
    best = np.take_along_axis(lp, order, axis=1)
    choosing = best[len(ids) - 1 : -1] if generated else best[:0]
    fields = {
        "model": name,
        "producer": dict(producer),
        "digest": digest,
        "n_ctx": n_ctx,
        "ids": list(ids),
        "generated": list(generated),
        "gaps": [_rounded(gap, 4) for gap in choosing[:, 0] - choosing[:, 1]],
        "top": [
            [x for i in range(n_top) for x in (int(order[p, i]), _rounded(best[p, i]))]
            for p in range(len(lp))
        ],
        "rows": {str(p): [_rounded(x) for x in lp[p]] for p in kept},
    }
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.json"
    path.write_text(_one_line_each(fields))
    return path


def _rounded(x: float, digits: int = 7) -> float:
    return float(f"{x:.{digits}g}")


def _one_line_each(fields: Mapping[str, Any]) -> str:
    """JSON with a line for every field and every row of `top` and `rows`: a diff shows what changed."""

    def dump(value: Any, depth: int) -> str:
        tight = json.dumps(value, separators=(",", ":"))
        if depth == 0 or not value or not isinstance(value, dict | list):
            return tight
        if isinstance(value, dict):
            return (
                "{\n" + ",\n".join(f"{json.dumps(k)}:{dump(v, depth - 1)}" for k, v in value.items()) + "\n}"
            )
        nested = isinstance(value[0], list)
        return "[\n" + ",\n".join(dump(v, depth - 1) for v in value) + "\n]" if nested else tight

    return dump(dict(fields), 2) + "\n"
