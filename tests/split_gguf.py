"""Split GGUF files, and sparse ones past 4 GiB, packed by hand from a whole one's pieces.

As llama.cpp's gguf-split writes them: all metadata in the first part, in every part split.no and split.count
(uint16) and split.tensors.count (int32), and the table and the data of its own tensors. The whole file is
taken apart by the `gguf` package, not by pagelm.
"""

import itertools
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf
from raw_gguf import I32, U16, U32, scalar, text


@dataclass(frozen=True)
class Piece:
    """A tensor: its entry in the table as bytes up to the offset, and its data."""

    name: str
    entry: bytes
    data: bytes


def taken_apart(data: bytes) -> tuple[dict[str, bytes], list[Piece]]:
    """Key -> its bytes in the file, without GGUF's own fields; the tensors in order."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "whole.gguf"
        path.write_bytes(data)
        reader = gguf.GGUFReader(path)
        keys = {
            name: b"".join(part.tobytes() for part in field.parts)
            for name, field in reader.fields.items()
            if not name.startswith("GGUF.")
        }
        pieces = []
        for t in reader.tensors:
            dims = [int(n) for n in t.shape]
            entry = text(t.name) + struct.pack(f"<I{len(dims)}QI", len(dims), *dims, int(t.tensor_type))
            pieces.append(Piece(t.name, entry, t.data.tobytes()))
        del reader
    return keys, pieces


def key(name: str, kind: int, value: int) -> bytes:
    return text(name) + struct.pack("<I", kind) + scalar(kind, value)


def header(keys: Sequence[bytes], pieces: Sequence[Piece], alignment: int) -> tuple[bytes, list[int]]:
    """The bytes up to the end of the table, and the position of each tensor in the file."""
    out, end, offsets = b"", 0, []
    for piece in pieces:
        offsets.append(-(-end // alignment) * alignment)
        out += piece.entry + struct.pack("<Q", offsets[-1])
        end = offsets[-1] + len(piece.data)
    out = b"GGUF" + struct.pack("<IQQ", 3, len(pieces), len(keys)) + b"".join(keys) + out
    start = -(-len(out) // alignment) * alignment
    return out, [start + offset for offset in offsets]


def split(
    data: bytes, sizes: Sequence[int], *, changes: Mapping[int, Mapping[str, tuple[int, int]]] | None = None
) -> list[bytes]:
    """The parts of a model, of `sizes` tensors each (0 is allowed; the rest goes to one more part).

    changes: number of a part from 0 -> {key: (kind, value)} that its header has instead or besides.
    """
    keys, pieces = taken_apart(data)
    cuts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    groups = [pieces[a:b] for a, b in itertools.pairwise(cuts)]
    if cuts[-1] < len(pieces):
        groups.append(pieces[cuts[-1] :])
    parts = []
    for no, group in enumerate(groups):
        own = {
            "split.no": (U16, no),
            "split.count": (U16, len(groups)),
            "split.tensors.count": (I32, len(pieces)),
        } | dict((changes or {}).get(no, {}))
        both = [*(keys.values() if no == 0 else ()), *(key(name, *value) for name, value in own.items())]
        out, places = header(both, group, 32)
        for piece, at in zip(group, places, strict=True):
            out = out.ljust(at, b"\0") + piece.data
        parts.append(out)
    return parts


def write_parts(folder: Path, data: bytes, sizes: Sequence[int], stem: str = "tiny") -> list[Path]:
    """The parts of a model as files NAME-00001-of-0000N.gguf."""
    parts = split(data, sizes)
    paths = [folder / f"{stem}-{no:05}-of-{len(parts):05}.gguf" for no in range(1, len(parts) + 1)]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return paths


def write_spread(path: Path, data: bytes, alignment: int) -> list[int]:
    """A whole model as a sparse file whose tensors begin at multiples of `alignment`; their positions.

    The file takes as much of the disk as the tensors do.
    """
    keys, pieces = taken_apart(data)
    keys["general.alignment"] = key("general.alignment", U32, alignment)
    out, places = header([*keys.values()], pieces, alignment)
    with path.open("wb") as file:
        file.write(out)
        for piece, at in zip(pieces, places, strict=True):
            file.seek(at)
            file.write(piece.data)
    taken = os.stat(path).st_blocks * 512
    assert taken < len(data) + (8 << 20), f"{path} takes {taken} bytes of the disk: no sparse files here"
    return places
