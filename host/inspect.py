"""What a GGUF file holds and what it will cost, from its header alone: metadata, tensors, memory plan."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from pagelm.device import Limits, Source
from pagelm.errors import PagelmError
from pagelm.gguf import Gguf, Part
from pagelm.host.models import is_url
from pagelm.hparams import hparams_from
from pagelm.loading import context_of, layout_of
from pagelm.sources import FileSource, HttpSource
from pagelm.split import SplitSource, read_model
from pagelm.weights import exact

SHOWN = 8  # elements of a long array


async def open_source(model: str) -> Source:
    """The bytes of a model given as a URL or a path; of a split one that of any part."""
    return SplitSource([await HttpSource.open(model) if is_url(model) else FileSource(model)])


async def read_header(model: str) -> Gguf:
    """The parsed header of a model, all parts of a split one; its weights are not read."""
    source = await open_source(model)
    try:
        return await read_model(source)
    finally:
        source.close()


async def inspect(
    model: str,
    *,
    n_ctx: int | None = None,
    memory_budget: int | None = None,
    cache_type: str = "f32",
    full: bool = False,
) -> dict[str, Any]:
    """metadata (arrays shortened unless `full`), tensors, and plan for WebGPU's guaranteed minimum limits.

    Of a split model "file" has the parts too, and each tensor the number of its part, from 0; its offset is
    the one in that part.
    A model that pagelm cannot run still has its metadata and tensors shown: plan then is {"error": …}.
    Raises: GgufError, SourceError.
    """
    gguf = await read_header(model)
    tensors = [
        {
            "name": t.name,
            "shape": list(t.shape),
            "type": t.quant.name,
            "offset": gguf.at(t) - gguf.parts[t.part].at,
            "nbytes": t.nbytes,
            **({"part": t.part} if len(gguf.parts) > 1 else {}),
        }
        for t in gguf.tensors.values()
    ]
    return {
        "file": {
            "name": gguf.name,
            "bytes": gguf.size,
            "version": gguf.version,
            "data_offset": gguf.data_offset,
            **({"parts": [_part(part) for part in gguf.parts]} if len(gguf.parts) > 1 else {}),
        },
        "metadata": {
            key: value if full else _shortened(value) for key, value in _plain(gguf.metadata).items()
        },
        "tensors": tensors,
        "plan": _plan(gguf, n_ctx, memory_budget, cache_type),
    }


def _part(part: Part) -> dict[str, Any]:
    return {"name": part.name, "bytes": part.size, "data_offset": part.data_offset}


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON can have it: arrays become lists."""
    scalars = (bool, int, float, str)
    return {key: value if isinstance(value, scalars) else list(value) for key, value in metadata.items()}


def _shortened(value: Any) -> Any:
    if not isinstance(value, list) or len(value) <= SHOWN:
        return value
    return {"length": len(value), "first": list(islice(value, SHOWN))}


def _plan(gguf: Gguf, n_ctx: int | None, memory_budget: int | None, cache_type: str) -> dict[str, Any]:
    limits = Limits(memory_budget=memory_budget)
    try:
        hp = hparams_from(gguf)
        *_, plan = layout_of(hp, gguf, limits, context_of(hp, n_ctx), cache_type=cache_type)
    except PagelmError as e:
        return {"error": f"{type(e).__name__}: {e}"}
    return dict(plan.as_dict())


def as_text(report: Mapping[str, Any]) -> str:
    """The report for people: three tables."""
    file = report["file"]
    lines = [f"{file['name']}: GGUF version {file['version']}, {file['bytes']:,} bytes"]
    if parts := file.get("parts"):
        counts = Counter(t["part"] for t in report["tensors"])
        lines += ["", f"parts ({len(parts)})"]
        lines += _columns(
            [
                (part["name"], f"{counts[i]} tensors", f"{part['bytes']:,} bytes")
                for i, part in enumerate(parts)
            ]
        )
    lines += ["", "metadata"]
    rows = [(key, _value_text(value)) for key, value in report["metadata"].items()]
    lines += _columns(rows)
    lines += ["", f"tensors ({len(report['tensors'])}; {_types(report['tensors'])})"]
    lines += _columns(
        [
            (t["name"], t["type"], " × ".join(map(str, t["shape"])), f"{t['nbytes']:,} bytes")
            for t in report["tensors"]
        ]
    )
    lines += ["", "memory plan (GPU memory, for WebGPU's minimum limits)"]
    plan = report["plan"]
    if "error" in plan:
        lines.append(f"  cannot be run: {plan['error']}")
    else:
        lines += _columns([(key, _plan_text(key, value)) for key, value in plan.items()])
    return "\n".join(lines) + "\n"


def _plan_text(key: str, value: int | str | None) -> str:
    if value is None:
        return "none"
    return str(value) if isinstance(value, str) or key in ("n_ctx", "n_batch", "slabs") else exact(value)


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['length']:,} values: {', '.join(map(repr, value['first']))}, …"
    if isinstance(value, str):
        return repr(value if len(value) <= 70 else value[:70] + "…")
    return repr(value)


def _types(tensors: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in Counter(t["type"] for t in tensors).most_common())


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with every column but the last as wide as its widest cell."""
    if not rows:
        return ["  none"]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(cell.ljust(w) for cell, w in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in rows
    ]
