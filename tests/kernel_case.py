"""One kernel against numpy, as data: the same cases run natively, in the browser and on any adapter.

A case is an `Op` (so the grid is the program's own), the contents of its buffers, and what every buffer that
it may write must hold afterwards, in float64, with a tolerance for each element.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from pagelm.device import Gpu, Kernel, Step
from pagelm.kernels import compose
from pagelm.program import Op

WORKGROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class Expect:
    """What one buffer must hold. NaN is expected where `values` is NaN."""

    values: np.ndarray  # float64, or an integer type: then exact
    tolerance: np.ndarray | float  # largest |difference| allowed, per element; inf: any number will do
    why: str  # the reason for the tolerance
    view: Callable[[np.ndarray], np.ndarray] = np.ravel  # of the buffer: the values to compare

    def check(self, id: str, got: np.ndarray) -> None:
        """On failure say where, got, expected and by how much."""
        got = self.view(got)[: self.values.size].reshape(self.values.shape)
        if np.issubdtype(self.values.dtype, np.integer):
            wrong = got != self.values
            error = wrong.astype(np.float64)
        else:
            error = np.abs(got.astype(np.float64) - self.values)
            wrong = ~(error <= self.tolerance) & ~(np.isnan(got) & np.isnan(self.values))
        if wrong.any():
            at = np.unravel_index(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1)), got.shape)
            allowed = np.broadcast_to(self.tolerance, got.shape)[at]
            raise AssertionError(
                f"{id}: {int(wrong.sum())} of {got.size} values are off; worst at {tuple(map(int, at))}:"
                f" got {got[at]}, expected {self.values[at]}, error {error[at]:.3g}, allowed {allowed:.3g}"
                f" ({self.why})"
            )


@dataclass(frozen=True)
class KernelCase:
    """`inputs`: binding name -> array, in binding order, outputs as they are before the dispatch."""

    id: str
    op: Op
    inputs: dict[str, np.ndarray]
    expect: dict[str, Expect]  # every binding that the kernel may write
    n_tokens: int = 1  # of the grid
    n_kv: int = 1
    first: tuple["KernelCase", ...] = ()  # run before, one after another: what they write replaces inputs

    @property
    def workgroup_sizes(self) -> tuple[int, ...]:
        """Sizes to try: the smallest, the usual and the largest; quads need whole ones.

        Kernels with weights or tiles take long to compile and have no barriers: one of the three a case.
        """
        variant = self.op.variant
        sizes = (4, 64, 256) if variant.share == "quad" else (1, 64, 256)
        return (sizes[crc32(self.id.encode()) % 3],) if variant.quant or variant.tile else sizes

    def kernel(self, wg: int) -> Kernel:
        return compose(self.op.variant, {**self.op.overrides, "WG": wg})

    def grid(self, wg: int, most: int = 65535) -> tuple[int, int, int]:
        return self.op.grid(self.n_tokens, self.n_kv, wg, most)

    def after(self, results: Mapping[str, bytes]) -> "KernelCase":
        """The case with what others have written as its inputs."""
        made = {k: np.frombuffer(v, self.inputs[k].dtype) for k, v in results.items() if k in self.inputs}
        return replace(self, inputs={**self.inputs, **made}, first=())

    def check(self, results: Mapping[str, bytes]) -> None:
        """Compare the bytes of all that may be written with what is expected."""
        for name, expect in self.expect.items():
            expect.check(f"{self.id} {name}", np.frombuffer(results[name], self.inputs[name].dtype))


async def run_case(gpu: Gpu, case: KernelCase, wg: int, most: int = 65535) -> dict[str, bytes]:
    """Run one case on a device and return the bytes of the buffers that it may write."""
    made: dict[str, bytes] = {}
    for first in case.first:
        made = await run_case(gpu, first.after(made), wg, most)
    case = case.after(made)
    buffers = {}
    try:
        for name, value in case.inputs.items():
            data = value.tobytes()
            data += bytes(-len(data) % 4)
            buffers[name] = gpu.buffer(len(data), name)
            gpu.write(buffers[name], 0, data)
        pipeline = await gpu.pipeline(case.kernel(wg))
        bound = gpu.bind(pipeline, list(buffers.values()))
        gpu.submit(gpu.record([Step(pipeline, bound, case.grid(wg, most))]))
        return {name: await gpu.read(buffers[name], 0, case.inputs[name].nbytes) for name in case.expect}
    finally:
        gpu.free(*buffers.values())
