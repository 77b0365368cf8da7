"""One kernel against numpy, as data: the same cases run natively, in the browser and on any adapter.

A case is an `Op` (so the grid is the program's own), the contents of its buffers, and what one buffer must
hold afterwards, in float64, with a tolerance for each element.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pagelm.device import Gpu, Kernel, Step
from pagelm.kernels import compose
from pagelm.program import Op

WORKGROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class KernelCase:
    """`inputs`: binding name -> array, in binding order, outputs as they are before the dispatch."""

    id: str
    op: Op
    inputs: dict[str, np.ndarray]
    output: str
    expect: np.ndarray  # float64, or the output's own integer type for exact kernels
    tolerance: np.ndarray | float  # largest |difference| allowed, per element
    why: str  # the reason for the tolerance
    n_tokens: int = 1
    n_kv: int = 1

    @property
    def workgroup_sizes(self) -> tuple[int, ...]:
        """Sizes to try: the smallest, the usual and the largest; quads need whole ones."""
        return (8, 64, 256) if self.op.variant.share == "quad" else (1, 64, 256)

    def kernel(self, wg: int) -> Kernel:
        return compose(self.op.variant, {**self.op.overrides, "WG": wg})

    def grid(self, wg: int, most: int = 65535) -> tuple[int, int, int]:
        return self.op.grid(self.n_tokens, self.n_kv, wg, most)

    def check(self, data: bytes) -> None:
        """Compare the output buffer's bytes; on failure say where, got, expected and by how much."""
        got = np.frombuffer(data, self.inputs[self.output].dtype)[: self.expect.size].reshape(
            self.expect.shape
        )
        if np.issubdtype(got.dtype, np.integer):
            wrong = got != self.expect
            error = wrong.astype(np.float64)
        else:
            error = np.abs(got.astype(np.float64) - self.expect)
            wrong = ~(error <= self.tolerance)
        if wrong.any():
            at = np.unravel_index(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1)), got.shape)
            allowed = np.broadcast_to(self.tolerance, got.shape)[at]
            raise AssertionError(
                f"{self.id}: {int(wrong.sum())} of {got.size} values are off; worst at {tuple(map(int, at))}:"
                f" got {got[at]}, expected {self.expect[at]}, error {error[at]:.3g}, allowed {allowed:.3g}"
                f" ({self.why})"
            )


async def run_case(gpu: Gpu, case: KernelCase, wg: int, most: int = 65535) -> bytes:
    """Run one case on a device and return the bytes of its output buffer."""
    buffers = []
    try:
        for name, value in case.inputs.items():
            data = value.tobytes()
            data += bytes(-len(data) % 4)
            buffers.append(gpu.buffer(len(data), name))
            gpu.write(buffers[-1], 0, data)
        pipeline = await gpu.pipeline(case.kernel(wg))
        gpu.submit(gpu.record([Step(pipeline, gpu.bind(pipeline, buffers), case.grid(wg, most))]))
        index = list(case.inputs).index(case.output)
        return await gpu.read(
            buffers[index], 0, case.inputs[case.output].nbytes + -case.inputs[case.output].nbytes % 4
        )
    finally:
        gpu.free(*buffers)


Maker = Callable[[np.random.Generator], list[KernelCase]]
