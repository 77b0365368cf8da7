"""From a source of bytes to a model that is ready: header, plan, weights, kernels, in this order."""

import asyncio
import time
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from reprlib import repr as shown
from typing import Any

from .activations import Activations
from .adapt import Choice, choose
from .cancel import Cancel
from .device import CHUNK_BYTES, Gpu, Limits, Source
from .engine import Model
from .errors import LimitError, PagelmError
from .forward import (
    TOKEN_TILE,
    activation_sizes,
    angles_name,
    baseline,
    fused,
    packed,
    packed_size,
    verifying,
)
from .gguf import Gguf
from .hparams import HParams, Rope, hparams_from
from .kv_cache import cache_sizes, check_cache_support
from .metrics import Progress
from .program import Program, kv_bucket
from .repack import Repack
from .rope import angle_table, check_factors
from .split import chunks_of, read_model
from .tokenizer import tokenizer_from
from .tune import Tuner
from .verify import Verifier
from .weights import (
    STAGING,
    Matrices,
    Matrix,
    MemoryPlan,
    Read,
    Vector,
    largest_binding,
    matrices_of,
    plan_memory,
    reads_of,
    scale_bytes_of,
    vector_sizes,
)

DEFAULT_N_CTX = 2048
MAX_BATCH = 32  # prompt tokens in one submit, at most
MOST_PER_FILE_BYTE = 1.10  # bytes of GPU memory
MOST_BESIDES = 32_000_000  # bytes of GPU memory, past those for the file and the cache
ACTIVATIONS = ("f32", "int8")
Layout = tuple[dict[str, tuple[Matrix, ...]], tuple[Vector, ...], dict[str, dict[str, int]], MemoryPlan]


async def load_model(
    gpu: Gpu,
    source: Source,
    *,
    n_ctx: int | None = None,
    cache_type: str = "f32",
    on_progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
    tuner: Tuner | None = None,
    activations: str = "f32",
) -> Model:
    """Read the header, plan the memory, choose the kernels, upload the weights, compile the kernels.

    `source` is the model's file, or a `SplitSource` of its files.
    `n_ctx` is the context in tokens: the model's own, at most DEFAULT_N_CTX, unless given.
    `cache_type` is how keys and values are kept, "f32" or "f16".
    `tuner` chooses the kernels; without one they are chosen by the adapter's name.
    `activations`: "f32", or "int8" to round those of prompts to 8 bits before products with weights of 4.
    On any error, cancellation included, every GPU buffer made here is freed again.

    Raises: GgufError, ArchError, TokenizerError, LimitError, SourceError, ShaderError, DeviceError,
    Cancelled; PagelmError for an `n_ctx` that the model cannot have, and a `cache_type` or `activations` that
    there are not.
    """
    check_activations(activations)
    check_cache_support(cache_type, gpu)
    cancel = cancel or Cancel()
    report = on_progress or (lambda progress: None)
    start = time.perf_counter()
    choosing = asyncio.ensure_future(choose(gpu))  # what it compiles costs nothing while the header travels
    try:
        gguf = await read_model(source, cancel)
        named = await choosing
    finally:
        await _stopped(choosing)
    report(Progress("header", gguf.header_bytes, gguf.header_bytes))
    hp = hparams_from(gguf)
    n_ctx = context_of(hp, n_ctx)
    kept = cache_type, activations
    matrices, vectors, sizes, plan = layout_of(hp, gguf, gpu.limits, n_ctx, named.scales, *kept)
    # Before anything else runs on the GPU, or compiles beside it: that would be measured too.
    tuning = await (tuner or Tuner("off")).tune(gpu, matrices, named, report, cancel)
    if tuning.choice.scales != named.scales:
        matrices, vectors, sizes, plan = layout_of(hp, gguf, gpu.limits, n_ctx, tuning.choice.scales, *kept)
    model = Model(gpu, gguf, hp, plan)
    model.tuning = tuning
    buffers, repack = model._buffers, None
    try:
        for group in sizes.values():
            for name, nbytes in group.items():
                buffers[name] = gpu.buffer(nbytes, name)
        nbytes_of = {name: n for group in sizes.values() for name, n in group.items()}
        # Compiling takes longest where the processor computes for the GPU, one kernel after the other: it
        # starts as soon as it can, those that the weights wait for first, and everything else runs beside it.
        repacking = asyncio.ensure_future(Repack.ready(gpu, buffers, matrices))
        names = frozenset(vector.buffer for vector in vectors)
        compiling = asyncio.ensure_future(_compile(model, matrices, names, tuning.choice, nbytes_of, report))
        try:
            repack = await repacking
            model.tokenizer = tokenizer_from(gguf.metadata)
            reads = reads_of(gguf, matrices, vectors, buffers, plan.staging)
            await _upload(model, reads, repack, source, report, cancel)
            await compiling
        finally:
            await _stopped(repacking, compiling)
        for i, rope in enumerate(hp.ropes):
            factors = await _factors(rope, gguf, source, n_ctx)
            gpu.write(buffers[angles_name(i)], 0, angle_table(rope, n_ctx, hp.n_rot, factors))
        size = 1
        while size < n_ctx:  # every grid a decode will need, so that none is built while decoding
            size *= 2
            model._decode.recording(1, kv_bucket(size, n_ctx))
        await gpu.idle()
        gpu.free(buffers.pop(STAGING), *repack.pieces)
    except BaseException:
        gpu.free(*buffers.values(), *(repack.pieces if repack else ()))
        raise
    model.stats.memory_bytes = gpu.memory_used
    model.timing.load_s = time.perf_counter() - start
    return model


async def _factors(rope: Rope, gguf: Gguf, source: Source, n_ctx: int) -> "array[float] | None":
    """What a rope's frequencies are divided by in a context of `n_ctx`, if anything."""
    if rope.factors is None:
        return None
    tensor = gguf.tensors[rope.factors[n_ctx > rope.n_ctx_orig]]
    factors = array("f", bytes(await source.read(gguf.at(tensor), tensor.nbytes)))
    check_factors(gguf.name, tensor.name, factors)
    return factors


async def _stopped(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait for its end; whoever stops it has an error of its own to tell."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def check_activations(activations: str) -> None:
    """Raises: PagelmError for none of ACTIVATIONS."""
    if activations not in ACTIVATIONS:
        raise PagelmError(f"activations is {shown(activations)}; allowed: {', '.join(ACTIVATIONS)}")


def context_of(hp: HParams, n_ctx: int | None) -> int:
    """Tokens of context: the model's own, at most DEFAULT_N_CTX, unless given. Raises: PagelmError."""
    if n_ctx is None:
        return min(hp.n_ctx_train, DEFAULT_N_CTX)
    if not isinstance(n_ctx, int) or isinstance(n_ctx, bool) or not 1 <= n_ctx <= hp.n_ctx_train:
        raise PagelmError(
            f"n_ctx is {shown(n_ctx)}; allowed: an integer from 1 to {hp.n_ctx_train},"
            " the context the model was trained for"
        )
    return n_ctx


def layout_of(
    hp: HParams,
    gguf: Gguf,
    limits: Limits,
    n_ctx: int,
    scales: str = "f16",
    cache_type: str = "f32",
    activations: str = "f32",
) -> Layout:
    """Matrices, names of vectors, every buffer by group and name in bytes, and the plan that says they fit.

    `scales` is how they are kept where that fits the adapter and takes no more memory than `most_memory`;
    otherwise they are f16. Raises: ArchError, LimitError.
    """
    if scales != "f16":
        with suppress(LimitError):
            layout = _layout(hp, gguf, limits, n_ctx, scales, cache_type, activations)
            if (plan := layout[-1]).total - plan.staging <= most_memory(gguf.size, plan):
                return layout
    return _layout(hp, gguf, limits, n_ctx, "f16", cache_type, activations)


def most_memory(file_bytes: int, plan: MemoryPlan) -> float:
    """Bytes of GPU memory that a loaded model should take at most, for the sake of speed too."""
    return MOST_PER_FILE_BYTE * file_bytes + plan.kv_cache + MOST_BESIDES


def _layout(
    hp: HParams, gguf: Gguf, limits: Limits, n_ctx: int, scales: str, cache_type: str, activations: str
) -> Layout:
    matrices, vectors = matrices_of(hp, gguf, limits, scales)
    n_batch = MAX_BATCH
    while n_batch > TOKEN_TILE and max(activation_sizes(hp, n_ctx, n_batch).values()) > largest_binding(
        limits
    ):
        n_batch //= 2
    working = activation_sizes(hp, n_ctx, n_batch)
    if activations == "int8":
        working["packed"] = packed_size(hp, n_batch)
    slabs = [slab for group in matrices.values() for matrix in group for slab in matrix.slabs]
    weights = vector_sizes(matrices, vectors)
    for slab in slabs:
        weights |= {slab.name: slab.nbytes, slab.scales: slab.scale_bytes}
    sizes = {
        "weights": weights,
        "kv_cache": cache_sizes(hp, n_ctx, cache_type),
        "activations": working,
        "tables": {angles_name(i): 4 * n_ctx * hp.n_rot for i in range(len(hp.ropes))},
        "staging": {STAGING: min(CHUNK_BYTES, largest_binding(limits), sum(weights.values()))},
    }
    plan = plan_memory(
        sizes,
        limits,
        n_ctx=n_ctx,
        n_batch=n_batch,
        slabs=len(slabs),
        cache_type=cache_type,
        scales=scales,
        scale_bytes=scale_bytes_of(matrices),
    )
    return matrices, vectors, sizes, plan


async def _compile(
    model: Model,
    matrices: Matrices,
    vectors: Collection[str],
    choice: Choice,
    nbytes_of: Mapping[str, int],
    report: Callable[[Progress], None],
) -> None:
    hp, gpu, n_ctx, cache_type = model.hparams, model._gpu, model.n_ctx, model.plan.cache_type
    prompt = (
        packed(hp, matrices, vectors, n_ctx=n_ctx, choice=choice, cache_type=cache_type)
        if "packed" in nbytes_of
        else fused(hp, matrices, vectors, n_ctx=n_ctx, choice=choice, prompt=True, cache_type=cache_type)
    )
    decode = fused(hp, matrices, vectors, n_ctx=n_ctx, choice=choice, prompt=False, cache_type=cache_type)
    model._prompt, model._decode = programs = [
        Program(gpu, ops, choice.workgroup_size, nbytes_of) for ops in (prompt, decode)
    ]
    ops = verifying(hp, matrices, vectors, n_ctx=n_ctx, choice=choice, cache_type=cache_type)
    model._verifier = Verifier(gpu, Program(gpu, ops, choice.workgroup_size, nbytes_of), n_ctx)
    ops = baseline(hp, matrices, vectors, n_ctx=n_ctx, cache_type=cache_type)
    model._baseline = Program(gpu, ops, gpu.limits.workgroup_size(), nbytes_of)
    looking = [op for op in ops if op.variant.kernel != "kv_store"]
    model._activations = Activations(
        gpu,
        hp,
        n_ctx,
        Program(gpu, looking, gpu.limits.workgroup_size(), nbytes_of),
        model._buffers,
        model._pipelines,
    )
    total = len({key for program in programs for key in program.keys})
    done = 0

    def compiled() -> None:
        nonlocal done
        done += 1
        report(Progress("kernels", done, total))

    start = time.perf_counter()
    await asyncio.gather(*(p.compile(model._buffers, model._pipelines, compiled) for p in programs))
    model.timing.compile_s = time.perf_counter() - start


async def _upload(
    model: Model,
    reads: Sequence[Read],
    repack: Repack,
    source: Source,
    report: Callable[[Progress], None],
    cancel: Cancel,
) -> None:
    start = time.perf_counter()
    total, done = sum(piece.nbytes for read in reads for piece in read.chunk.pieces), 0
    report(Progress("weights", 0, total))
    for read in reads:
        for part, chunk in chunks_of(source, read.chunk):
            cancel.check("loading the weights")
            await model._gpu.upload(part, chunk)
        repack(read.staged)
        done += sum(piece.nbytes for piece in read.chunk.pieces)
        report(Progress("weights", done, total))
    cancel.check("loading the weights")
    await model._gpu.idle()
    model.timing.weights_s = time.perf_counter() - start
