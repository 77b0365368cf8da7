"""A pass as plain data, compiled and recorded: `Op` is one dispatch, `Program` a list of them.

What a pass consists of is in forward/; nothing here knows what is computed.
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .device import Bindings, Buffer, Gpu, Pipeline, Recording, Step
from .kernels import Variant, compose

KV_STEP = 256  # grids over the context grow in powers of two from here


class Pipelines:
    """Compiled pipelines by what tells them apart; programs that want the same one share one compilation."""

    def __init__(self) -> None:
        self._made: dict[object, Pipeline] = {}
        self._coming: dict[object, asyncio.Future[Pipeline]] = {}

    async def get(self, key: object, make: Callable[[], Coroutine[Any, Any, Pipeline]]) -> Pipeline:
        """The pipeline of this key, made with `make` when it is the first time."""
        if key not in self._made:
            if key not in self._coming:
                self._coming[key] = asyncio.ensure_future(make())
            try:
                self._made[key] = await self._coming[key]
            finally:
                self._coming.pop(key, None)
        return self._made[key]


@dataclass(frozen=True, slots=True)
class Op:
    """One dispatch: a kernel, its buffers by name in binding order (the last is the output), its grid.

    The grid has `workgroups` in x, or else enough of them for `invocations` (times the positions in use in
    units of `per_position`, when that is given), and in z `per_token` for each token (or tile of tokens), or
    1 when `per_token` is 0.
    """

    label: str
    variant: Variant
    buffers: tuple[str, ...]
    overrides: Mapping[str, float] = field(default_factory=dict)
    workgroups: int = 0
    invocations: int = 0
    per_position: int = 0
    per_token: int = 1
    scratch: tuple[str, ...] = ()  # buffers that it overwrites for the ops after it, not for people

    def grid(self, n_tokens: int, n_kv: int, wg: int, most: int) -> tuple[int, int, int]:
        """Workgroups in x, y, z for workgroups of `wg` and at most `most` in a dimension."""
        stretches = math.ceil(n_kv / self.per_position) if self.per_position else 1
        n = self.workgroups or math.ceil(self.invocations * stretches / wg)
        y = math.ceil(n / most)
        z = math.ceil(n_tokens / dict(self.variant.tile).get("T", 1)) * self.per_token or 1
        return math.ceil(n / y), y, z


class Program:
    """The ops of one kind of pass, compiled and bound; recordings are made once per shape and kept."""

    def __init__(self, gpu: Gpu, ops: Sequence[Op], workgroup_size: int, sizes: Mapping[str, int]) -> None:
        """`sizes` are the bytes of all buffers, by name."""
        self.ops = tuple(ops)
        self.sizes = sizes
        self._gpu = gpu
        self._wg = workgroup_size
        self._bound: list[tuple[Pipeline, Bindings]] = []
        self._recordings: dict[tuple[int, int, str | None], Recording] = {}

    @property
    def keys(self) -> list[object]:
        """What tells the pipelines of the ops apart, an entry for each op."""
        return [
            (op.variant, self._wg, tuple(op.overrides.items()), tuple(self.sizes[b] for b in op.buffers))
            for op in self.ops
        ]

    async def compile(
        self,
        buffers: Mapping[str, Buffer],
        pipelines: Pipelines,
        compiled: Callable[[], None] = lambda: None,
    ) -> None:
        """Compile what is not yet in `pipelines`, calling `compiled` after each; bind all buffers.

        Does nothing the second time. Raises: ShaderError.
        """
        if self._bound:
            return

        async def make(op: Op) -> Pipeline:
            overrides = {**op.overrides, "WG": self._wg}
            names = [binding.name for binding in compose(op.variant, overrides).bindings]
            nbytes = {name: self.sizes[b] for name, b in zip(names, op.buffers, strict=True)}
            pipeline = await self._gpu.pipeline(compose(op.variant, overrides, nbytes))
            compiled()
            return pipeline

        keys = self.keys
        wanted = dict(zip(keys, self.ops, strict=True))
        coming = [asyncio.ensure_future(pipelines.get(k, partial(make, op))) for k, op in wanted.items()]
        try:
            made = dict(zip(wanted, await asyncio.gather(*coming), strict=True))
        except BaseException:
            for task in coming:  # nobody waits for the others any more
                task.cancel()
            raise
        for key, op in zip(keys, self.ops, strict=True):
            bound = self._gpu.bind(made[key], [buffers[name] for name in op.buffers])
            self._bound.append((made[key], bound))

    def has(self, label: str) -> bool:
        """Whether a step of this label leaves its result behind."""
        return any(op.label == label for op in self.ops)

    def until(self, stop: str | None) -> tuple[Op, ...]:
        """The ops up to the last one labelled `stop`, or all."""
        if stop is None:
            return self.ops
        last = max(i for i, op in enumerate(self.ops) if op.label == stop)
        return self.ops[: last + 1]

    def recording(self, n_tokens: int, n_kv: int, stop: str | None = None) -> Recording:
        """The pass for up to `n_tokens` tokens with up to `n_kv` positions in use after it."""
        key = (n_tokens, n_kv, stop)
        if key not in self._recordings:
            most = self._gpu.limits.max_compute_workgroups_per_dimension
            steps = [
                Step(pipeline, bindings, op.grid(n_tokens, n_kv, self._wg, most), op.label)
                for op, (pipeline, bindings) in zip(self.until(stop), self._bound, strict=False)
            ]
            self._recordings[key] = self._gpu.record(steps)
        return self._recordings[key]


def kv_bucket(n_kv: int, n_ctx: int) -> int:
    """The grid size that covers `n_kv` positions: a power of two times KV_STEP, at most `n_ctx`."""
    size = KV_STEP
    while size < n_kv:
        size *= 2
    return min(size, n_ctx)
