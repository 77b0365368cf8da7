"""From rows as the file has them, in the staging buffer, into the tiles that the kernels read: on the GPU."""

import asyncio
import math
from array import array
from collections.abc import Mapping, Sequence

from .device import Buffer, Gpu, Pipeline, Step
from .kernels import Variant, compose
from .weights import STAGING, Matrices, Matrix, Rows

PIECE_WORDS = 6  # struct Piece in shaders/repack.wgsl


def _variant(matrix: Matrix) -> Variant:
    return Variant("repack", matrix.quant.name, scales=matrix.scales)


class Repack:
    """Records and submits one dispatch for each piece of a read. `pieces` are small buffers to be freed."""

    def __init__(
        self, gpu: Gpu, buffers: Mapping[str, Buffer], pipelines: Mapping[Variant, Pipeline]
    ) -> None:
        self._gpu = gpu
        self._buffers = buffers
        self._pipelines = pipelines
        self._wg = gpu.limits.workgroup_size()
        self.pieces: list[Buffer] = []

    @classmethod
    async def ready(cls, gpu: Gpu, buffers: Mapping[str, Buffer], matrices: Matrices) -> "Repack":
        """Compile the kernels for the types of these matrices. Raises: ShaderError."""
        size = {"WG": gpu.limits.workgroup_size()}
        variants = {_variant(matrix) for group in matrices.values() for matrix in group}
        pipelines = await asyncio.gather(*(gpu.pipeline(compose(variant, size)) for variant in variants))
        return cls(gpu, buffers, dict(zip(variants, pipelines, strict=True)))

    def __call__(self, staged: Sequence[tuple[Rows, int]]) -> None:
        """Submit the repacking of these rows, each at its byte offset in the staging buffer.

        The next upload may overwrite the staging buffer: queues keep the order.
        """
        gpu, buffers, steps = self._gpu, self._buffers, []
        most = gpu.limits.max_compute_workgroups_per_dimension
        for i, (rows, offset) in enumerate(staged):
            assert rows.matrix is not None and rows.slab is not None
            matrix, slab = rows.matrix, rows.slab
            if i == len(self.pieces):
                self.pieces.append(gpu.buffer(4 * PIECE_WORDS, f"piece {i}"))
            row_bytes = matrix.quant.nbytes(matrix.n_in)
            words = [offset, rows.n_rows, rows.row0, rows.step, matrix.n_in, row_bytes]
            gpu.write(self.pieces[i], 0, array("I", words).tobytes())
            pipeline = self._pipelines[_variant(matrix)]
            bound = [buffers[STAGING], self.pieces[i], buffers[slab.name], buffers[slab.scales]]
            n = math.ceil(rows.n_rows * matrix.n_blocks / self._wg)
            y = math.ceil(n / most)
            grid = (math.ceil(n / y), y, 1)
            steps.append(Step(pipeline, gpu.bind(pipeline, bound), grid, f"repack {rows.name}"))
        if steps:
            gpu.submit(gpu.record(steps))
