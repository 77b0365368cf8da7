"""Slabs, chunks and grids: the arithmetic between a file and buffers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelm.program import Op, kv_bucket
from pagelm.weights import Slab, chunks_of


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    gaps=st.lists(st.integers(0, 90), min_size=8, max_size=8),
    chunk_bytes=st.integers(8, 200),
)
def test_chunks_cover_every_slab_once_and_in_order(sizes, gaps, chunk_bytes):
    slabs, at = [], 5
    for i, (size, gap) in enumerate(zip(sizes, gaps, strict=False)):
        slabs.append(Slab(f"t{i}", "F32", size, 0, 1, at, size))
        at += size + gap
    chunks = chunks_of(slabs[::-1], {s.name: s.name for s in slabs}, chunk_bytes)
    assert all(0 < c.nbytes <= chunk_bytes for c in chunks)
    assert all(a.at + a.nbytes <= b.at for a, b in itertools.pairwise(chunks))
    covered = {s.name: 0 for s in slabs}
    for chunk in chunks:
        for piece in chunk.pieces:
            slab = next(s for s in slabs if s.name == piece.buffer)
            assert chunk.at <= piece.at and piece.at + piece.nbytes <= chunk.at + chunk.nbytes
            assert piece.offset == covered[piece.buffer] == piece.at - slab.at
            assert piece.offset % 4 == 0
            covered[piece.buffer] += piece.nbytes
    assert covered == {s.name: s.nbytes for s in slabs}


@pytest.mark.parametrize(
    ("op", "n_tokens", "n_kv", "grid"),
    [
        (Op("", "", (), workgroups=1), 5, 9, (1, 1, 5)),
        (Op("", "", (), workgroups=1, per_token=0), 5, 9, (1, 1, 1)),
        (Op("", "", (), invocations=64), 3, 9, (1, 1, 3)),
        (Op("", "", (), invocations=65), 3, 9, (2, 1, 3)),
        (Op("", "", (), invocations=65, tile=(4, 4)), 9, 9, (2, 1, 3)),
        (Op("", "", (), invocations=1, each_position=True, per_token=6), 2, 129, (3, 1, 12)),
        (Op("", "", (), invocations=64 * 65535), 1, 9, (65535, 1, 1)),
        (Op("", "", (), invocations=64 * 65536), 1, 9, (32768, 2, 1)),
    ],
)
def test_grid(op, n_tokens, n_kv, grid):
    assert op.grid(n_tokens, n_kv, 64, 65535) == grid


@given(n=st.integers(1, 10**7), most=st.integers(1, 65535))
def test_folded_grids_cover_and_waste_little(n, most):
    x, y, _ = Op("", "", (), invocations=n).grid(1, 1, 1, most)
    assert n <= x * y < n + y
    assert x <= most


def test_kv_buckets_are_powers_of_two_up_to_the_context():
    assert [kv_bucket(n, 2000) for n in (1, 256, 257, 1024, 1025, 2000)] == [256, 256, 512, 1024, 2000, 2000]
    assert kv_bucket(3, 100) == 100
