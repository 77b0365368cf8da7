"""From rows as the file has them, in the staging buffer, into the tiles that the kernels read: on the GPU."""

import math
from array import array
from collections.abc import Mapping, Sequence

from .device import Buffer, Gpu, Pipeline, Step
from .kernels import Variant, compose
from .weights import STAGING, Rows

PIECE_WORDS = 6  # struct Piece in shaders/repack.wgsl


class Repack:
    """Records and submits one dispatch for each piece of a read; keeps what can be used again."""

    def __init__(self, gpu: Gpu, buffers: Mapping[str, Buffer]) -> None:
        self._gpu = gpu
        self._buffers = buffers
        self._pipelines: dict[str, Pipeline] = {}
        self._pieces: list[Buffer] = []

    async def __call__(self, staged: Sequence[tuple[Rows, int]]) -> None:
        """Submit the repacking of these rows, each at its byte offset in the staging buffer.

        The next upload may overwrite the staging buffer: queues keep the order.

        Raises: ShaderError.
        """
        gpu, buffers, steps = self._gpu, self._buffers, []
        wg, most = gpu.limits.workgroup_size(), gpu.limits.max_compute_workgroups_per_dimension
        for i, (rows, offset) in enumerate(staged):
            assert rows.matrix is not None and rows.slab is not None
            matrix, slab = rows.matrix, rows.slab
            pipeline = await self._pipeline(matrix.quant.name, wg)
            if i == len(self._pieces):
                self._pieces.append(gpu.buffer(4 * PIECE_WORDS, f"piece {i}"))
            row_bytes = matrix.quant.nbytes(matrix.n_in)
            words = [offset, rows.n_rows, rows.row0, rows.step, matrix.n_in, row_bytes]
            gpu.write(self._pieces[i], 0, array("I", words).tobytes())
            bound = [buffers[STAGING], self._pieces[i], buffers[slab.name], buffers[slab.scales]]
            n = math.ceil(rows.n_rows * matrix.n_blocks / wg)
            y = math.ceil(n / most)
            grid = (math.ceil(n / y), y, 1)
            steps.append(Step(pipeline, gpu.bind(pipeline, bound), grid, f"repack {rows.name}"))
        if steps:
            gpu.submit(gpu.record(steps))

    async def _pipeline(self, quant: str, wg: int) -> Pipeline:
        if quant not in self._pipelines:
            self._pipelines[quant] = await self._gpu.pipeline(compose(Variant("repack", quant), {"WG": wg}))
        return self._pipelines[quant]

    def free(self) -> None:
        """Give the small buffers back; work that is under way keeps what it needs."""
        self._gpu.free(*self._pieces)
        self._pieces.clear()
