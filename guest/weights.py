"""Tensors to GPU buffers: matrices, slabs, reads and the memory plan. Weights never pass through this module.

On the GPU a matrix lies in tiles (shaders/lib/tiles.wgsl). Tensors that are always multiplied with the same
vector make one matrix: q, k and v one after another, gate and up in alternating rows. A matrix that is
larger than a binding may be is cut into slabs of whole tiles, each with buffers of its own.

Uploads follow the file: reads of at most 16 MiB, in order, of whole rows into a staging buffer, from where
`repack` brings them into the tiles. Vectors go straight to their buffers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from .device import Buffer, Chunk, Limits, Piece
from .errors import LimitError
from .gguf import Gguf
from .hparams import HParams
from .quants import SCALES, Quant
from .tensors import Operand, operands_of

TILE_ROWS = 32
STAGING = "staging"


def padded(n: int) -> int:
    """Elements in whole groups of 32: rows of activations, columns of cells, tiles."""
    return -(-n // 32) * 32


def mib(nbytes: int) -> str:
    """Bytes for people."""
    return f"{nbytes / (1 << 20):.1f} MiB"


def exact(nbytes: int) -> str:
    """Bytes for people who compare them with others, which may differ by one."""
    return f"{nbytes:,} bytes ({mib(nbytes)})"


def largest_binding(limits: Limits) -> int:
    """The most bytes one buffer can have and still be bound whole; a multiple of 4."""
    return min(limits.max_storage_buffer_binding_size, limits.max_buffer_size) & ~3


@dataclass(frozen=True, slots=True)
class Slab:
    """Whole tiles of a matrix: its rows `row0` … `row0 + n_rows - 1`, in two buffers."""

    name: str  # of the buffer of quants: the matrix's name, "#1", "#2", … appended from the second slab on
    row0: int
    n_rows: int
    nbytes: int
    scale_bytes: int

    @property
    def scales(self) -> str:
        """Name of the buffer of scales."""
        return self.name + ".scales"


@dataclass(frozen=True, slots=True)
class Section:
    """Where an operand's rows are in a matrix: row i at `start + step * i`. Row 0 is row `row0` of its tensor."""

    operand: str
    n_rows: int
    start: int
    step: int = 1
    tensor: str = ""
    row0: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """`n` elements of a tensor from element `first` on, in a buffer from element `at` on."""

    tensor: str
    first: int
    n: int
    buffer: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Matrix:
    """Operands of one type and row length that are multiplied together."""

    name: str
    quant: Quant
    n_in: int
    sections: tuple[Section, ...]
    slabs: tuple[Slab, ...]
    row0: int = 0  # number of its first row in a group of several matrices
    scales: str | None = None  # how they are kept: "f16" or "f32"; None where the type has none

    @property
    def n_blocks(self) -> int:
        """Cells in a row."""
        return padded(self.n_in) // 32


Matrices = Mapping[str, tuple[Matrix, ...]]


def matrices_of(
    hp: HParams, gguf: Gguf, limits: Limits, scales: str = "f16"
) -> tuple[dict[str, tuple[Matrix, ...]], tuple[Vector, ...]]:
    """All matrices by group ("token_embd", "blk.0.attn_qkv", …), and the vectors.

    A group is one matrix unless its operands have different types or do not fit one binding. `scales` is how
    they are kept, "f16" or "f32". The biases of a group's operands are in one buffer, each where its rows are in
    the group.

    Raises: ArchError for a table of tensors that is not this architecture's; LimitError when 32 rows are
    past the adapter's limit.
    """
    operands = operands_of(hp, gguf)
    groups: dict[str, list[Operand]] = {}
    for operand in operands.values():
        if operand.n_in:
            groups.setdefault(_group(operand.name), []).append(operand)
    matrices = {group: _matrices(gguf, group, members, limits, scales) for group, members in groups.items()}
    starts = {
        section.operand.removesuffix(".weight"): (f"{group}.bias", matrix.row0 + section.start)
        for group, members in matrices.items()
        if not group.endswith((".ffn_gate_up", "_exps"))
        for matrix in members
        for section in matrix.sections
    }
    vectors = []
    for operand in operands.values():
        if not operand.n_in:
            name, kind = operand.name.rsplit(".", 1)
            buffer, at = starts.get(name, (operand.name, 0)) if kind == "bias" else (operand.name, 0)
            vectors.append(Vector(operand.tensor, operand.row0, operand.n_rows, buffer, at))
    return matrices, tuple(vectors)


def vector_sizes(matrices: Matrices, vectors: Sequence[Vector]) -> dict[str, int]:
    """Buffer name -> bytes; a group's biases have room for all its rows."""
    sizes: dict[str, int] = {}
    for vector in vectors:
        group = matrices.get(vector.buffer.removesuffix(".bias")) if vector.buffer.endswith(".bias") else None
        rows = max((m.row0 + slab.row0 + slab.n_rows for m in group or () for slab in m.slabs), default=0)
        end = max(vector.at + vector.n, rows)
        sizes[vector.buffer] = max(sizes.get(vector.buffer, 0), 4 * end)
    return sizes


_STACKED = {"attn_q": "attn_qkv", "attn_k": "attn_qkv", "attn_v": "attn_qkv"}
_ALTERNATING = {"ffn_gate": "ffn_gate_up", "ffn_up": "ffn_gate_up"}


def _group(operand: str) -> str:
    *layer, kind = operand.removesuffix(".weight").split(".")
    return ".".join([*layer, (_STACKED | _ALTERNATING).get(kind, kind)])


def _matrices(
    gguf: Gguf, group: str, operands: Sequence[Operand], limits: Limits, scales: str
) -> tuple[Matrix, ...]:
    def section(o: Operand, start: int, step: int = 1) -> Section:
        return Section(o.name, o.n_rows, start, step, o.tensor, o.row0)

    def quant(o: Operand) -> str:
        return gguf.tensors[o.tensor].quant.name

    if group.endswith(".ffn_gate_up"):
        biased = any(f"{o.name.removesuffix('.weight')}.bias" in gguf.tensors for o in operands)
        if len({quant(o) for o in operands}) == 1 and not biased and len(operands) > 1:
            sections = [section(o, i, len(operands)) for i, o in enumerate(operands)]
            return (_matrix(gguf, group, sections, limits, scales),)
        return tuple(_matrix(gguf, o.name, [section(o, 0)], limits, scales) for o in operands)
    matrices: list[Matrix] = []
    at = first = 0
    run: list[Section] = []
    for i, o in enumerate(operands):
        if run and quant(o) != quant(operands[i - 1]):
            matrices.append(_matrix(gguf, run[0].operand, run, limits, scales, first))
            first, run = at, []
        run.append(section(o, at - first))
        at += padded(o.n_rows)
    matrices.append(_matrix(gguf, run[0].operand if matrices else group, run, limits, scales, first))
    return tuple(matrices)


def _matrix(
    gguf: Gguf, name: str, sections: Sequence[Section], limits: Limits, scales: str, row0: int = 0
) -> Matrix:
    tensor = gguf.tensors[sections[0].tensor]
    quant, n_in = tensor.quant, tensor.shape[-1]
    cells = padded(n_in)  # of a tile: 32 rows of n_in / 32 blocks
    tile_bytes, tile_scales = quant.cell_bytes * cells, quant.scale_bytes(scales, cells)
    limit = largest_binding(limits)
    whole = tensor.shape[1] if len(tensor.shape) == 3 else TILE_ROWS  # rows that stay together: an expert's
    least = whole // TILE_ROWS * tile_bytes
    per_slab = limit // least * whole
    if per_slab == 0:
        raise LimitError(
            f"{name}: {whole} rows have {exact(least)}; this adapter binds at most {exact(limit)}",
            needed=least,
            available=limit,
        )
    n_rows = max(s.start + s.step * (s.n_rows - 1) for s in sections) + 1
    slabs = []
    for i, start in enumerate(range(0, n_rows, per_slab)):
        rows = min(per_slab, n_rows - start)
        tiles = padded(rows) // TILE_ROWS
        scale_bytes = max(4, tiles * tile_scales)
        slabs.append(Slab(name if i == 0 else f"{name}#{i}", start, rows, tiles * tile_bytes, scale_bytes))
    return Matrix(name, quant, n_in, tuple(sections), tuple(slabs), row0, scales if quant.wide else None)


def scale_bytes_of(matrices: Matrices) -> dict[str, int]:
    """Bytes of all scales, if they were kept as f16 and as f32."""
    found = [(matrix, slab) for group in matrices.values() for matrix in group for slab in matrix.slabs]
    return {
        kept: sum(m.quant.scale_bytes(kept, padded(slab.n_rows) * m.n_blocks) for m, slab in found)
        for kept in SCALES
    }


@dataclass(frozen=True, slots=True)
class Rows:
    """Whole rows of a tensor on their way: `nbytes` bytes of the file from `at` on, to one slab or vector."""

    name: str  # of the tensor
    at: int
    nbytes: int
    vector: Vector | None = None
    matrix: Matrix | None = None
    slab: Slab | None = None
    n_rows: int = 0
    row0: int = 0  # place of the first one in the slab
    step: int = 1


@dataclass(frozen=True, slots=True)
class Read:
    """One read of the file: the chunk, and those of its rows that have to be repacked, with their offsets."""

    chunk: Chunk
    staged: tuple[tuple[Rows, int], ...]


def _rows_of(gguf: Gguf, matrix: Matrix, most: int) -> Iterator[Rows]:
    row_bytes = matrix.quant.nbytes(matrix.n_in)
    if row_bytes > most:
        raise LimitError(
            f"{matrix.name}: one row has {exact(row_bytes)}; this adapter takes {exact(most)} at a time",
            needed=row_bytes,
            available=most,
        )
    for section in matrix.sections:
        at = gguf.at(gguf.tensors[section.tensor]) + section.row0 * row_bytes
        for slab in matrix.slabs:
            i = max(0, -((section.start - slab.row0) // section.step))
            end = min(section.n_rows, -((section.start - slab.row0 - slab.n_rows) // section.step))
            while i < end:
                n = min(end - i, most // row_bytes)
                start = section.start + section.step * i - slab.row0
                where = at + i * row_bytes
                yield Rows(section.tensor, where, n * row_bytes, None, matrix, slab, n, start, section.step)
                i += n


def reads_of(
    gguf: Gguf, matrices: Matrices, vectors: Sequence[Vector], buffers: Mapping[str, Buffer], staging: int
) -> list[Read]:
    """The reads that bring all tensors in, in file order, each spanning at most `staging` bytes.

    Raises: LimitError when a row does not fit the staging buffer.
    """
    wanted = [
        Rows(v.tensor, gguf.at(gguf.tensors[v.tensor]) + 4 * v.first, 4 * v.n, vector=v) for v in vectors
    ] + [rows for group in matrices.values() for matrix in group for rows in _rows_of(gguf, matrix, staging)]
    reads: list[Read] = []
    pieces: list[Piece] = []
    staged: list[tuple[Rows, int]] = []
    start = end = used = 0

    def done() -> None:
        if pieces:
            reads.append(Read(Chunk(start, end - start, tuple(pieces)), tuple(staged)))
            pieces.clear()
            staged.clear()

    for rows in sorted(wanted, key=lambda r: r.at):
        at = 0
        while at < rows.nbytes:  # a vector may be longer than a chunk; rows come in pieces that fit
            nbytes = min(rows.nbytes - at, staging)
            if pieces and (rows.at + at + nbytes > start + staging or used + nbytes > staging):
                done()
            if not pieces:
                start, used = rows.at + at, 0
            if (vector := rows.vector) is not None:
                pieces.append(Piece(buffers[vector.buffer], 4 * vector.at + at, rows.at + at, nbytes))
            else:
                pieces.append(Piece(buffers[STAGING], used, rows.at, nbytes))
                staged.append((rows, used))
                used += (nbytes + 3) & ~3
            at += nbytes
            end = rows.at + at
    done()
    return reads


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of GPU memory a loaded model takes, known before the first upload.

    `cache_type` is how keys and values are kept, `scales` how scales are: "f16" or "f32".
    `weights_f16_scales` and `weights_f32_scales` say what the weights take with either.
    """

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
    cache_type: str
    scales: str
    weights_f16_scales: int
    weights_f32_scales: int

    def as_dict(self) -> dict[str, int | str | None]:
        return asdict(self)


def plan_memory(
    sizes: Mapping[str, Mapping[str, int]],
    limits: Limits,
    *,
    n_ctx: int,
    n_batch: int,
    slabs: int,
    cache_type: str,
    scales: str,
    scale_bytes: Mapping[str, int],
) -> MemoryPlan:
    """Add up the buffers of `sizes` (group -> buffer name -> bytes) and hold them against the limits.

    `sizes` has the groups weights, kv_cache, activations, tables and staging; among the weights are scales,
    kept as `scales`; `scale_bytes` says what they take, or would, as f16 and as f32.

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
                        if "cache" in name or name.startswith(("scores", "angles"))
                        else ""
                    ),
                    needed=nbytes,
                    available=limit,
                )
    groups = {group: sum((n + 3) & ~3 for n in buffers.values()) for group, buffers in sizes.items()}
    total = sum(groups.values())
    budget = limits.memory_budget
    if budget is not None and total > budget:
        parts = ", ".join(f"{group} {mib(n)}" for group, n in groups.items())
        raise LimitError(
            f"the model needs {exact(total)} of GPU memory: {parts}; the budget is {exact(budget)};"
            " raise the budget or ask for a smaller context",
            needed=total,
            available=budget,
        )
    return MemoryPlan(
        **groups,
        total=total,
        budget=budget,
        largest_buffer=max(n for buffers in sizes.values() for n in buffers.values()),
        buffer_limit=limit,
        n_ctx=n_ctx,
        n_batch=n_batch,
        slabs=slabs,
        cache_type=cache_type,
        scales=scales,
        **{
            f"weights_{kept}_scales": groups["weights"] + n - scale_bytes[scales]
            for kept, n in scale_bytes.items()
        },
    )
