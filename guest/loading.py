"""From a source of bytes to a model that is ready: header, plan, weights, kernels, in this order."""

import asyncio
import time
from collections.abc import Callable
from reprlib import repr as shown
from typing import Any

from .cancel import Cancel
from .device import Gpu, Limits, Source
from .engine import Model
from .errors import PagelmError
from .gguf import read_gguf
from .hparams import HParams, expected_tensors, hparams_from
from .kv_cache import cache_sizes
from .metrics import Progress
from .program import TOKEN_TILE, Program, activation_sizes, forward, kv_bucket, padded
from .rope import angle_table
from .tokenizer import tokenizer_from
from .weights import MemoryPlan, Slab, chunks_of, largest_binding, plan_memory, slabs_of

DEFAULT_N_CTX = 2048
MAX_BATCH = 32  # prompt tokens in one submit, at most


async def load_model(
    gpu: Gpu,
    source: Source,
    *,
    n_ctx: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancel: Cancel | None = None,
) -> Model:
    """Read the header, plan the memory, upload the weights, compile the kernels.

    `n_ctx` is the context in tokens: the model's own, at most DEFAULT_N_CTX, unless given.
    On any error, cancellation included, every GPU buffer made here is freed again.

    Raises: GgufError, ArchError, TokenizerError, LimitError, SourceError, ShaderError, DeviceError,
    Cancelled; PagelmError for an `n_ctx` that the model cannot have.
    """
    cancel = cancel or Cancel()
    report = on_progress or (lambda progress: None)
    start = time.perf_counter()
    gguf = await read_gguf(source)
    report(Progress("header", gguf.data_offset, gguf.data_offset))
    hp = hparams_from(gguf)
    n_ctx = min(hp.n_ctx_train, DEFAULT_N_CTX) if n_ctx is None else n_ctx
    if not isinstance(n_ctx, int) or isinstance(n_ctx, bool) or not 1 <= n_ctx <= hp.n_ctx_train:
        raise PagelmError(
            f"n_ctx is {shown(n_ctx)}; allowed: an integer from 1 to {hp.n_ctx_train},"
            " the context the model was trained for"
        )
    tensors = expected_tensors(hp, gguf)
    slabs = {name: slabs_of(gguf, gguf.tensors[name], gpu.limits) for name in tensors}
    sizes, plan = plan_for(hp, slabs, gpu.limits, n_ctx)
    tokenizer = tokenizer_from(gguf.metadata)
    model = Model(gpu, gguf, hp, tokenizer, plan)
    try:
        for buffers in sizes.values():
            for name, nbytes in buffers.items():
                model._buffers[name] = gpu.buffer(nbytes, name)
        # compiling occupies the GPU process while the weights occupy the network: together they cost less
        compiling = asyncio.ensure_future(_compile(model, slabs, report))
        try:
            await _upload(model, [s for group in slabs.values() for s in group], source, report, cancel)
            await compiling
        finally:
            if not compiling.done():
                compiling.cancel()
                await asyncio.wait([compiling])
        gpu.write(model._buffers["angles"], 0, angle_table(n_ctx, hp.n_rot, hp.rope_freq_base))
        size = 1
        while size < n_ctx:  # every grid a decode will need, so that none is built while decoding
            size *= 2
            model._decode.recording(1, kv_bucket(size, n_ctx))
        await gpu.idle()
    except BaseException:
        gpu.free(*model._buffers.values())
        raise
    model.stats.memory_bytes = gpu.memory_used
    model.timing.load_s = time.perf_counter() - start
    return model


def plan_for(
    hp: HParams, slabs: dict[str, tuple[Slab, ...]], limits: Limits, n_ctx: int
) -> tuple[dict[str, dict[str, int]], MemoryPlan]:
    """Every buffer by group and name, in bytes, and the plan that says they fit. Raises LimitError."""
    n_batch = MAX_BATCH
    per_token = 4 * max(hp.n_head * n_ctx, padded(hp.n_ff))
    while n_batch > TOKEN_TILE and n_batch * per_token > largest_binding(limits):
        n_batch //= 2
    sizes = {
        "weights": {s.name: s.nbytes for group in slabs.values() for s in group},
        "kv_cache": cache_sizes(hp, n_ctx),
        "activations": activation_sizes(hp, n_ctx, n_batch),
        "tables": {"angles": 4 * n_ctx * hp.n_rot},
    }
    return sizes, plan_memory(sizes, limits, n_ctx=n_ctx, n_batch=n_batch)


async def _compile(
    model: Model, slabs: dict[str, tuple[Slab, ...]], report: Callable[[Progress], None]
) -> None:
    programs = {
        name: Program(model._gpu, forward(model.hparams, slabs, n_ctx=model.n_ctx, prompt=prompt))
        for name, prompt in (("_prompt", True), ("_decode", False))
    }
    pipelines: dict[object, Any] = {}
    total = len({key for program in programs.values() for key in program.keys})
    for name, program in programs.items():
        await program.compile(
            model._buffers, pipelines, lambda: report(Progress("kernels", len(pipelines), total))
        )
        setattr(model, name, program)


async def _upload(
    model: Model, slabs: list[Slab], source: Source, report: Callable[[Progress], None], cancel: Cancel
) -> None:
    total, done = sum(s.nbytes for s in slabs), 0
    report(Progress("weights", 0, total))
    for chunk in chunks_of(slabs, model._buffers):
        cancel.check("loading the weights")
        await model._gpu.upload(source, chunk)
        done += sum(piece.nbytes for piece in chunk.pieces)
        report(Progress("weights", done, total))
    cancel.check("loading the weights")
