"""The tiles that kernels read (shaders/lib/tiles.wgsl), made with numpy from the bytes of a file."""

import gguf
import numpy as np

TILED = ("F32", "F16", "Q4_0", "Q4_1", "Q8_0")  # the types that `tiled` knows
WORDS = {"F32": 8, "F16": 4, "Q4_0": 1, "Q4_1": 1, "Q8_0": 2}  # per quarter of a cell


def places(row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tile, place in it and lane of rows."""
    lane = row % 8 // 2
    return row // 32, row % 32 // 8 * 8 + row % 2 * 4 + lane, lane


def tiled(
    quant: str, raw: np.ndarray, n_rows: int, n_in: int, scale: type[np.floating] = np.float16
) -> tuple[np.ndarray, np.ndarray]:
    """(q, s) of `n_rows` rows of `n_in` elements; `raw` holds their bytes, row after row.

    s has the scales of the cells in order, of type `scale`.
    """
    n_blocks, n_tiles = -(-n_in // 32), -(-n_rows // 32)
    kind = gguf.GGMLQuantizationType[quant]
    size, nbytes = gguf.GGML_QUANT_SIZES[kind]
    rows = raw.view(np.uint8)[: n_rows * n_in // size * nbytes].reshape(n_rows, -1)
    if size == 1:  # pad to whole blocks of 32
        rows = np.pad(rows, ((0, 0), (0, (n_blocks * 32 - n_in) * nbytes)))
    blocks = rows.reshape(n_rows, n_blocks, -1)
    quarters, scales = _parts(quant, blocks)  # (rows, blocks, 4, words), (rows, blocks, n)
    q = np.zeros((n_tiles, n_blocks, 32, WORDS[quant], 4), np.uint32)
    s = np.zeros((n_tiles, n_blocks, 32, scales.shape[-1]), scale)
    tile, place, lane = places(np.arange(n_rows))
    for slot in range(4):
        q[tile, :, place, :, slot] = quarters[np.arange(n_rows), :, slot ^ lane]
    s[tile, :, place] = scales
    return q.reshape(-1), s.reshape(-1) if s.size else np.zeros(1, np.float32)


def _parts(quant: str, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n_rows, n_blocks, _ = blocks.shape
    header = {"Q4_0": 2, "Q4_1": 4, "Q8_0": 2}.get(quant, 0)
    scales = blocks[:, :, :header].copy().view(np.float16)
    words = blocks[:, :, header:].copy().view(np.uint32)
    if quant == "Q8_0":  # 8 words: elements 4 w … 4 w + 3; quarter i has words i and i + 4
        words = words ^ np.uint32(0x00808080)
        return np.stack([words[:, :, :4], words[:, :, 4:]], -1), scales
    if quant in ("Q4_0", "Q4_1"):  # 4 words: word i is quarter i
        return (words ^ np.uint32(0x80000000)).reshape(n_rows, n_blocks, 4, 1), scales
    halves = words.reshape(n_rows, n_blocks, 2, 4, -1)  # first and second half, quarter, words
    return np.concatenate([halves[:, :, 0], halves[:, :, 1]], -1), scales
