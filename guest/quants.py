"""The table of tensor types: ggml id, block size, bytes per block, and whether pagelm can run them.

The only place code looks. Names derive the rest: type `Q8_0` has `shaders/quant/q8_0.wgsl` and
`host/oracle/dequant.py: q8_0`. Facts: ggml/src/ggml-common.h and ggml.h of llama.cpp, the `gguf` package.
"""

from dataclasses import dataclass

SCALES = ("f16", "f32")  # how they are kept: as the file has them; ready to be used, which takes more memory


@dataclass(frozen=True, slots=True)
class Quant:
    """One ggml tensor type. `block_size` is in elements, `block_bytes` in bytes.

    On the GPU 32 weights of a row are a cell (shaders/lib/tiles.wgsl): `cell_bytes` in the buffer `q`, 0 for
    types without kernels, and for 256 weights `beside` bytes in the buffer `s`: scales, and bits that have no
    room in `q`. Where that is worth it scales may instead be kept as f32, ready to be used: `wide` bytes.
    """

    name: str
    ggml_type: int
    block_size: int
    block_bytes: int
    cell_bytes: int = 0
    beside: int = 0
    wide: int = 0

    @property
    def runs(self) -> bool:
        """Whether kernels and oracle exist."""
        return self.cell_bytes > 0

    def nbytes(self, n_elements: int) -> int:
        """Bytes of `n_elements` elements, which must be whole blocks."""
        blocks, rest = divmod(n_elements, self.block_size)
        if rest:
            raise ValueError(f"{n_elements} elements are not whole blocks of {self.block_size} ({self.name})")
        return blocks * self.block_bytes

    def scale_bytes(self, kept: str, cells: int) -> int:
        """Bytes in `s` of so many cells, scales being `kept` as "f16" or "f32" where that is a choice."""
        return (self.wide if kept == "f32" and self.wide else self.beside) * cells // 8


_TABLE = (
    Quant("F32", 0, 1, 4, cell_bytes=128),
    Quant("F16", 1, 1, 2, cell_bytes=64),
    Quant("Q4_0", 2, 32, 18, cell_bytes=16, beside=16, wide=32),
    Quant("Q4_1", 3, 32, 20, cell_bytes=16, beside=32, wide=64),
    Quant("Q5_0", 6, 32, 22, cell_bytes=16, beside=64),
    Quant("Q5_1", 7, 32, 24, cell_bytes=16, beside=64),
    Quant("Q8_0", 8, 32, 34, cell_bytes=32, beside=16, wide=32),
    Quant("Q8_1", 9, 32, 36),
    Quant("Q2_K", 10, 256, 84, cell_bytes=8, beside=20),
    Quant("Q3_K", 11, 256, 110, cell_bytes=8, beside=52),
    Quant("Q4_K", 12, 256, 144, cell_bytes=16, beside=20, wide=64),
    Quant("Q5_K", 13, 256, 176, cell_bytes=16, beside=52, wide=96),
    Quant("Q6_K", 14, 256, 210, cell_bytes=16, beside=84, wide=128),
    Quant("Q8_K", 15, 256, 292),
    Quant("IQ2_XXS", 16, 256, 66),
    Quant("IQ2_XS", 17, 256, 74),
    Quant("IQ3_XXS", 18, 256, 98),
    Quant("IQ1_S", 19, 256, 50),
    Quant("IQ4_NL", 20, 32, 18, cell_bytes=16, beside=16, wide=32),
    Quant("IQ3_S", 21, 256, 110),
    Quant("IQ2_S", 22, 256, 82),
    Quant("IQ4_XS", 23, 256, 136, cell_bytes=16, beside=20),
    Quant("I8", 24, 1, 1),
    Quant("I16", 25, 1, 2),
    Quant("I32", 26, 1, 4),
    Quant("I64", 27, 1, 8),
    Quant("F64", 28, 1, 8),
    Quant("IQ1_M", 29, 256, 56),
    Quant("BF16", 30, 1, 2, cell_bytes=64),
    Quant("TQ1_0", 34, 256, 54),
    Quant("TQ2_0", 35, 256, 66),
    Quant("MXFP4", 39, 32, 17, cell_bytes=16, beside=16),
)

QUANTS: dict[str, Quant] = {q.name: q for q in _TABLE}
BY_GGML_TYPE: dict[int, Quant] = {q.ggml_type: q for q in _TABLE}
SUPPORTED: tuple[str, ...] = tuple(q.name for q in _TABLE if q.runs)
