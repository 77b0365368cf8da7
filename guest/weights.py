"""Tensors to GPU buffers: slabs, chunks and the memory plan. Weights never pass through this module.

A tensor keeps the bytes it has in the file. One that is larger than a binding may be is cut into slabs of
whole rows, each with a buffer of its own. Uploads follow the file: chunks of at most 16 MiB, in order, each
with the pieces of it that go to buffers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from .device import CHUNK_BYTES, Buffer, Chunk, Limits, Piece
from .errors import ArchError, LimitError
from .gguf import Gguf, TensorInfo
from .quants import SUPPORTED


@dataclass(frozen=True, slots=True)
class Slab:
    """Rows `row0` … `row0 + n_rows - 1` of a tensor: `nbytes` bytes from file position `at` on."""

    name: str  # of its buffer: the tensor's name, "#1", "#2", … appended from the second slab on
    quant: str
    n_in: int  # elements of a row
    row0: int
    n_rows: int
    at: int
    nbytes: int


def mib(nbytes: int) -> str:
    """Bytes for people."""
    return f"{nbytes / (1 << 20):.1f} MiB"


def exact(nbytes: int) -> str:
    """Bytes for people who compare them with others, which may differ by one."""
    return f"{nbytes:,} bytes ({mib(nbytes)})"


def largest_binding(limits: Limits) -> int:
    """The most bytes one buffer can have and still be bound whole; a multiple of 4."""
    return min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) & ~3


def slabs_of(gguf: Gguf, tensor: TensorInfo, limits: Limits) -> tuple[Slab, ...]:
    """Cut one tensor into as few slabs as the adapter's limits allow.

    Raises: ArchError for a tensor type without kernels, LimitError when one row is past the limit.
    """
    if not tensor.quant.runs:
        raise ArchError(
            f"{gguf.name}: tensor {tensor.name} has type {tensor.quant.name};"
            f" supported: {', '.join(SUPPORTED)}"
        )
    n_rows, n_in = (1, *tensor.shape)[-2:]
    row_bytes = tensor.quant.nbytes(n_in)
    limit = largest_binding(limits)
    per_slab = min(n_rows, limit // row_bytes)
    if per_slab == 0:
        raise LimitError(
            f"{tensor.name}: one row has {exact(row_bytes)}; this adapter binds at most {exact(limit)}",
            needed=row_bytes,
            available=limit,
        )
    return tuple(
        Slab(
            name=tensor.name if row0 == 0 else f"{tensor.name}#{row0 // per_slab}",
            quant=tensor.quant.name,
            n_in=n_in,
            row0=row0,
            n_rows=(rows := min(per_slab, n_rows - row0)),
            at=gguf.at(tensor) + row0 * row_bytes,
            nbytes=rows * row_bytes,
        )
        for row0 in range(0, n_rows, per_slab)
    )


def chunks_of(
    slabs: Sequence[Slab], buffers: Mapping[str, Buffer], chunk_bytes: int = CHUNK_BYTES
) -> list[Chunk]:
    """The reads that bring all slabs in, in file order, none longer than `chunk_bytes`.

    A piece inside a slab is cut at a multiple of 4 bytes of its buffer, which WebGPU's writes need.
    """
    chunks: list[Chunk] = []
    start = end = 0
    pieces: list[Piece] = []
    for slab in sorted(slabs, key=lambda s: s.at):
        done = 0
        while done < slab.nbytes:
            at = slab.at + done
            if pieces and at + 4 > start + chunk_bytes:
                chunks.append(Chunk(start, end - start, tuple(pieces)))
                pieces = []
            if not pieces:
                start = at
            room = start + chunk_bytes - at
            nbytes = slab.nbytes - done
            if nbytes > room:
                nbytes = room & ~3
            pieces.append(Piece(buffers[slab.name], done, at, nbytes))
            done += nbytes
            end = at + nbytes
    if pieces:
        chunks.append(Chunk(start, end - start, tuple(pieces)))
    return chunks


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of GPU memory a loaded model takes, known before the first upload."""

    weights: int
    kv_cache: int
    activations: int
    tables: int
    staging: int
    total: int
    budget: int | None
    largest_buffer: int
    buffer_limit: int
    n_ctx: int
    n_batch: int
    slabs: int

    def as_dict(self) -> dict[str, int | None]:
        return asdict(self)


def plan_memory(
    sizes: Mapping[str, Mapping[str, int]], limits: Limits, *, n_ctx: int, n_batch: int
) -> MemoryPlan:
    """Add up the buffers of `sizes` (group -> buffer name -> bytes) and hold them against the limits.

    `sizes` has the groups weights, kv_cache, activations and tables.

    Raises: LimitError with needed and available bytes.
    """
    limit = largest_binding(limits)
    for buffers in sizes.values():
        for name, nbytes in buffers.items():
            if nbytes > limit:
                raise LimitError(
                    f"{name} needs one buffer of {exact(nbytes)}; this adapter allows {exact(limit)}"
                    + (
                        "; ask for a smaller context"
                        if "cache" in name or name in ("scores", "angles")
                        else ""
                    ),
                    needed=nbytes,
                    available=limit,
                )
    groups = {group: sum((n + 3) & ~3 for n in buffers.values()) for group, buffers in sizes.items()}
    staging = min(CHUNK_BYTES, groups["weights"])
    total = sum(groups.values()) + staging
    budget = limits.memory_budget
    if budget is not None and total > budget:
        parts = ", ".join(f"{group} {mib(n)}" for group, n in {**groups, "staging": staging}.items())
        raise LimitError(
            f"the model needs {exact(total)} of GPU memory: {parts}; the budget is {exact(budget)};"
            " raise the budget or ask for a smaller context",
            needed=total,
            available=budget,
        )
    return MemoryPlan(
        **groups,
        staging=staging,
        total=total,
        budget=budget,
        largest_buffer=max(n for buffers in sizes.values() for n in buffers.values()),
        buffer_limit=limit,
        n_ctx=n_ctx,
        n_batch=n_batch,
        slabs=len(sizes["weights"]),
    )
