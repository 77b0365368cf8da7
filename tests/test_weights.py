"""Matrices, slabs, reads and grids: the arithmetic between a file and buffers."""

import asyncio
import itertools
from dataclasses import replace

import gguf as gguf_py
import numpy as np
import pytest
import raw_gguf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiles import places, tiled
from tiny_gguf import tiny_model

from pagelm.device import Limits
from pagelm.errors import LimitError
from pagelm.gguf import Gguf, read_gguf
from pagelm.hparams import HParams, hparams_from
from pagelm.kernels import Variant
from pagelm.program import Op, kv_bucket
from pagelm.repack import Repack
from pagelm.sources import MemorySource
from pagelm.weights import STAGING, Vector, matrices_of, padded, reads_of, vector_sizes

PLAIN = (raw_gguf.T_F32, raw_gguf.T_F16)
BLOCKS = (raw_gguf.T_Q4_0, raw_gguf.T_Q4_1, raw_gguf.T_Q8_0)
SUPERS = (raw_gguf.T_Q2_K, raw_gguf.T_Q6_K)


def parse(data: bytes) -> Gguf:
    return asyncio.run(read_gguf(MemorySource(data)))


@st.composite
def models(draw: st.DrawFn) -> bytes:
    """A model of any shape, with matrices of any types, biases, perhaps q, k and v in one, in any order."""
    size = draw(st.sampled_from((1, 32, 256)))  # of the largest blocks
    kinds = st.sampled_from({1: PLAIN, 32: (*PLAIN, *BLOCKS), 256: (*PLAIN, *BLOCKS, *SUPERS)}[size])
    n_head_kv, n_group = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    n_rot = draw(st.sampled_from({1: (4, 20, 44), 32: (32, 64), 256: (256,)}[size]))
    n_embd, n_ff = (draw(st.integers(1, 100)) if size == 1 else size * draw(st.integers(1, 3)) for _ in "ef")
    q, kv = n_head_kv * n_group * n_rot, n_head_kv * n_rot
    n_vocab, n_layer = draw(st.integers(1, 200)), draw(st.integers(1, 2))
    f = raw_gguf.llama().drop("tokenizer.ggml.tokens")
    for key, value in {
        "block_count": n_layer,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": n_head_kv * n_group,
        "attention.head_count_kv": n_head_kv,
        "attention.key_length": n_rot,
        "attention.value_length": n_rot,
        "rope.dimension_count": n_rot,
        "vocab_size": n_vocab,
    }.items():
        f.set("llama." + key, raw_gguf.U32, value)
    dims: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_embd, n_vocab),
        "output_norm.weight": (n_embd,),
    }
    fused = draw(st.booleans())
    for i in range(n_layer):
        layer = {
            name: shape
            for name, shape in {
                "attn_norm": (n_embd,),
                **(
                    {"attn_qkv": (n_embd, q + 2 * kv)}
                    if fused
                    else {"attn_q": (n_embd, q), "attn_k": (n_embd, kv), "attn_v": (n_embd, kv)}
                ),
                "attn_output": (q, n_embd),
                "ffn_norm": (n_embd,),
                "ffn_gate": (n_embd, n_ff),
                "ffn_up": (n_embd, n_ff),
                "ffn_down": (n_ff, n_embd),
            }.items()
        }
        matrices = sorted(name for name, shape in layer.items() if len(shape) == 2)
        dims |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
        biased = draw(st.sets(st.sampled_from(matrices), max_size=draw(st.sampled_from((0, 9)))))
        dims |= {f"blk.{i}.{name}.bias": layer[name][1:] for name in sorted(biased)}
    if draw(st.booleans()):
        dims["output.weight"] = (n_embd, n_vocab)
    f.tensors = [
        raw_gguf.Tensor(name, dims[name], draw(kinds) if len(dims[name]) == 2 else 0)
        for name in draw(st.permutations(list(dims)))
    ]
    return f.data()


def places_in_file(gguf: Gguf, hp: HParams) -> dict[str, tuple[str, int, int]]:
    """Operand -> the tensor that has it, its first row (or element) there, how many there are."""
    heads = {"attn_q": hp.n_embd_q, "attn_k": hp.n_embd_kv, "attn_v": hp.n_embd_kv}
    found = {}
    for name, tensor in gguf.tensors.items():
        if ".attn_qkv." in name:
            at = 0
            for part, n in heads.items():
                found[name.replace("attn_qkv", part)] = (name, at, n)
                at += n
        else:
            found[name] = (name, 0, tensor.shape[0])
    return found


def planned(gguf: Gguf, times: float, scales: str = "f16") -> tuple[dict, tuple[Vector, ...], int]:
    """Matrices and vectors for an adapter that binds `times` the largest tile, and its limit."""
    tiles = [t.quant.cell_bytes * padded(t.shape[1]) for t in gguf.tensors.values() if len(t.shape) == 2]
    limit = int(times * max(tiles))
    limits = Limits(max_storage_buffer_binding_size=limit)
    return *matrices_of(hparams_from(gguf), gguf, limits, scales), limit


TIMES = st.floats(1, 5)


@settings(deadline=None, max_examples=300)
@given(data=models(), times=TIMES, scales=st.sampled_from(["f16", "f32"]))
def test_matrices_hold_every_row_in_whole_tiles(data, times, scales):
    """Rows of a group are numbered through: q, k and v one after another, gate and up by turns."""
    gguf = parse(data)
    hp = hparams_from(gguf)
    matrices, _, limit = planned(gguf, times, scales)
    there = places_in_file(gguf, hp)
    sections = [s for m in itertools.chain(*matrices.values()) for s in m.sections]
    assert {s.operand: (s.tensor, s.row0, s.n_rows) for s in sections} == {
        name: where for name, where in there.items() if len(gguf.tensors[where[0]].shape) == 2
    }
    slabs = [slab for m in itertools.chain(*matrices.values()) for slab in m.slabs]
    buffers = [name for slab in slabs for name in (slab.name, slab.scales)]
    assert len(set(buffers)) == len(buffers)
    for group, parts in matrices.items():
        taken: list[int] = []
        for m in parts:
            n_rows = 0
            for section in m.sections:
                tensor = gguf.tensors[section.tensor]
                assert (m.n_in, m.quant) == (tensor.shape[1], tensor.quant)
                rows = [section.start + section.step * i for i in range(section.n_rows)]
                taken += [m.row0 + row for row in rows]
                n_rows = max(n_rows, rows[-1] + 1)
            ends = [slab.row0 + slab.n_rows for slab in m.slabs]
            assert [slab.row0 for slab in m.slabs] == [0, *ends[:-1]] and ends[-1] == n_rows
            for slab in m.slabs:
                assert slab.row0 % 32 == 0 and (slab.n_rows % 32 == 0 or slab is m.slabs[-1])
                cells = padded(slab.n_rows) * m.n_blocks
                assert slab.nbytes == m.quant.cell_bytes * cells <= limit
                each = m.quant.wide if m.scales == "f32" else m.quant.beside
                assert slab.scale_bytes == max(4, each * cells // 8) <= limit
            assert m.scales == (scales if m.quant.wide else None)
        if not group.endswith("ffn_gate_up"):
            assert len(set(taken)) == len(taken)
        by_operand = {s.operand: (m.row0 + s.start, s.step) for m in parts for s in m.sections}
        if group.endswith("attn_qkv"):
            q, k = hp.n_embd_q, hp.n_embd_kv
            assert [*by_operand.values()] == [(0, 1), (padded(q), 1), (padded(q) + padded(k), 1)]
        elif group.endswith("ffn_gate_up"):
            pair = [group.replace("gate_up", x) for x in ("gate", "up")]
            biased = any(f"{name}.bias" in gguf.tensors for name in pair)
            one_type = len({gguf.tensors[f"{name}.weight"].quant for name in pair}) == 1
            assert len(parts) == (1 if one_type and not biased else 2)
            assert [*by_operand.values()] == ([(0, 2), (1, 2)] if len(parts) == 1 else [(0, 1), (0, 1)])
        else:
            assert [*by_operand.values()] == [(0, 1)]


@settings(deadline=None, max_examples=100)
@given(data=models(), times=st.floats(1, 5))
def test_vectors_have_buffers_and_biases_lie_where_the_rows_of_their_group_do(data, times):
    gguf = parse(data)
    matrices, vectors, _ = planned(gguf, times)
    there = places_in_file(gguf, hparams_from(gguf))
    starts = {
        s.operand.replace(".weight", ".bias"): (group, m.row0 + s.start)
        for group, parts in matrices.items()
        for m in parts
        for s in m.sections
    }
    expected = {}
    for name, (tensor, first, n) in there.items():
        if len(gguf.tensors[tensor].shape) == 1:
            group, at = starts.get(name, ("", 0))
            own = name.endswith(".weight") or group.endswith("ffn_gate_up")
            expected[name] = Vector(tensor, first, n, *((name, 0) if own else (f"{group}.bias", at)))
    assert sorted(vectors, key=repr) == sorted(expected.values(), key=repr)
    sizes = vector_sizes(matrices, vectors)
    assert set(sizes) == {v.buffer for v in vectors}
    for vector in vectors:
        rows = [m.row0 + s.row0 + s.n_rows for m in matrices.get(vector.buffer[:-5], ()) for s in m.slabs]
        assert sizes[vector.buffer] >= 4 * max(
            vector.at + vector.n, *rows, 0
        )  # a kernel adds one to each row


@settings(deadline=None, max_examples=300)
@given(data=models(), times=TIMES, staging=st.floats(1, 60))
def test_reads_bring_every_byte_once_to_its_place(data, times, staging):
    gguf = parse(data)
    matrices, vectors, _ = planned(gguf, times)
    longest = max(t.quant.nbytes(t.shape[1]) for t in gguf.tensors.values() if len(t.shape) == 2)
    staging = (int(staging * longest) + 3) // 4 * 4
    names = [STAGING, *(v.buffer for v in vectors)]
    reads = reads_of(gguf, matrices, vectors, {name: name for name in names}, staging)
    assert all(a.chunk.at + a.chunk.nbytes <= b.chunk.at for a, b in itertools.pairwise(reads))
    times_read = np.zeros(len(data), int)
    vector_bytes = dict.fromkeys(vectors, 0)
    starts = {v: gguf.at(gguf.tensors[v.tensor]) + 4 * v.first for v in vectors}  # in the file
    landed: dict[str, list[tuple[str, int]]] = {}
    for read in reads:
        chunk, staged, used = read.chunk, list(read.staged), 0
        assert 0 < chunk.nbytes <= staging
        for piece in chunk.pieces:
            assert chunk.at <= piece.at and piece.at + piece.nbytes <= chunk.at + chunk.nbytes
            assert piece.offset % 4 == 0
            times_read[piece.at : piece.at + piece.nbytes] += 1
            if piece.buffer == STAGING:
                rows, offset = staged.pop(0)
                assert (rows.at, rows.nbytes, offset) == (piece.at, piece.nbytes, piece.offset)
                assert used <= piece.offset
                used = piece.offset + (piece.nbytes + 3) // 4 * 4
                land(landed, gguf, rows)
            else:
                vector = next(v for v, at in starts.items() if at <= piece.at < at + 4 * v.n)
                assert piece.buffer == vector.buffer
                assert piece.offset - 4 * vector.at == vector_bytes[vector] == piece.at - starts[vector]
                vector_bytes[vector] += piece.nbytes
        assert not staged and used <= staging
    expected = np.zeros(len(data), int)
    for tensor in gguf.tensors.values():
        expected[gguf.at(tensor) : gguf.at(tensor) + tensor.nbytes] = 1
    assert (times_read == expected).all()
    assert vector_bytes == {v: 4 * v.n for v in vectors}
    for m in itertools.chain(*matrices.values()):
        for section in m.sections:
            assert landed[section.tensor][section.row0 : section.row0 + section.n_rows] == [
                (slab.name, row - slab.row0)
                for row in range(section.start, section.start + section.step * section.n_rows, section.step)
                for slab in m.slabs
                if slab.row0 <= row < slab.row0 + slab.n_rows
            ]
    assert all(len(rows) == gguf.tensors[tensor].shape[0] for tensor, rows in landed.items())


def land(landed, gguf: Gguf, rows) -> None:
    """Note where `rows` go, after those of the same tensor that went before."""
    tensor, before = gguf.tensors[rows.name], landed.setdefault(rows.name, [])
    row_bytes = tensor.quant.nbytes(tensor.shape[1])
    assert (rows.at - gguf.at(tensor), rows.nbytes) == (len(before) * row_bytes, rows.n_rows * row_bytes)
    before += [(rows.slab.name, rows.row0 + rows.step * i) for i in range(rows.n_rows)]


def test_a_vector_may_be_longer_than_a_read():
    gguf = parse(tiny_model(quant="Q4_0", n_embd=64, n_ff=96))
    matrices, vectors = matrices_of(hparams_from(gguf), gguf, Limits())
    names = [STAGING, *(v.buffer for v in vectors)]
    reads = reads_of(gguf, matrices, vectors, {name: name for name in names}, 100)
    pieces = [piece for read in reads for piece in read.chunk.pieces if piece.buffer == "output_norm.weight"]
    at = gguf.at(gguf.tensors["output_norm.weight"])
    assert [(p.offset, p.at - at, p.nbytes) for p in pieces] == [(0, 0, 100), (100, 100, 100), (200, 200, 56)]


def test_what_does_not_fit_is_refused_by_name():
    gguf = parse(tiny_model(quant="F32", n_embd=64, n_ff=96))
    hp = hparams_from(gguf)
    with pytest.raises(LimitError, match="token_embd: 32 rows have .* bytes .*; this adapter binds") as e:
        matrices_of(hp, gguf, Limits(max_storage_buffer_binding_size=32 * 256 - 1))
    assert (e.value.needed, e.value.available) == (32 * 256, 32 * 256 - 4)
    matrices, vectors = matrices_of(hp, gguf, Limits())
    with pytest.raises(LimitError, match="ffn_down: one row has .* bytes .*; this adapter takes") as e:
        reads_of(gguf, matrices, vectors, {}, 4 * 96 - 4)
    assert (e.value.needed, e.value.available) == (4 * 96, 4 * 96 - 4)


MIXED = {"attn_v": "F16", "attn_q": "Q8_0", "ffn_up": "Q4_0", "token_embd": "F32", "": "Q4_1"}
SCALE = {"f16": np.float16, "f32": np.float32}
BIASES = {
    f"blk.0.{name}.bias": np.arange(1, n + 1, dtype=np.float32)
    for name, n in {"attn_q": 64, "attn_v": 32, "ffn_up": 96, "ffn_down": 64}.items()
}
FUSED = {f"blk.0.attn_{x}.weight": None for x in "qkv"} | {
    "blk.0.attn_qkv.weight": np.random.default_rng(5).standard_normal((128, 64), np.float32),
    "blk.0.attn_qkv.bias": np.arange(1, 129, dtype=np.float32),
}


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("quant", "scales", "more"),
    [
        ("F16", "f16", {}),
        ("Q8_0", "f16", {}),
        (MIXED, "f16", {}),
        (MIXED, "f32", {}),
        (MIXED, "f16", BIASES),
        ("Q8_0", "f16", FUSED),
    ],
    ids=["f16", "q8_0", "mixed", "mixed with f32 scales", "mixed with biases", "fused"],
)
def test_all_weights_arrive_in_their_tiles(tmp_path, quant, scales, more):
    """Uploaded and repacked on the GPU in many small reads, into small slabs: as numpy tiles them."""
    from pagelm.device.native import NativeGpu

    path = tmp_path / "tiny.gguf"
    data = tiny_model(path, quant=quant, n_layer=1, n_vocab=333, tensors=more)
    gguf, staging = parse(data), 4000
    tensors = {t.name: t for t in gguf_py.GGUFReader(path).tensors}

    async def upload():
        gpu = await NativeGpu.open()
        try:
            matrices, vectors = matrices_of(
                hparams_from(gguf),
                gguf,
                replace(gpu.limits, max_storage_buffer_binding_size=20000),
                scales,
            )
            sizes = vector_sizes(matrices, vectors) | {STAGING: staging}
            for m in itertools.chain(*matrices.values()):
                for slab in m.slabs:
                    sizes |= {slab.name: slab.nbytes, slab.scales: slab.scale_bytes}
            buffers = {name: gpu.buffer(nbytes, name) for name, nbytes in sizes.items()}
            repack = await Repack.ready(gpu, buffers, matrices)
            for read in reads_of(gguf, matrices, vectors, buffers, staging):
                await gpu.upload(MemorySource(data), read.chunk)
                repack(read.staged)
            return matrices, vectors, {name: await gpu.read(buffers[name], 0, n) for name, n in sizes.items()}
        finally:
            gpu.close()

    matrices, vectors, got = asyncio.run(upload())
    assert any(len(m.slabs) > 1 for m in itertools.chain(*matrices.values()))
    expected = {v.buffer: np.zeros(len(got[v.buffer]) // 4, np.float32) for v in vectors}
    for v in vectors:
        expected[v.buffer][v.at : v.at + v.n] = tensors[v.tensor].data[v.first : v.first + v.n]
    assert {name: got[name] for name in expected} == {name: x.tobytes() for name, x in expected.items()}
    for m in itertools.chain(*matrices.values()):
        n_rows = padded(m.slabs[-1].row0 + m.slabs[-1].n_rows)
        raw = np.zeros((n_rows, m.quant.nbytes(m.n_in)), np.uint8)
        given = np.zeros(n_rows, bool)
        for section in m.sections:
            rows = slice(section.start, section.start + section.step * section.n_rows, section.step)
            whole = tensors[section.tensor].data.view(np.uint8).reshape(-1, raw.shape[1])
            raw[rows] = whole[section.row0 : section.row0 + section.n_rows]
            given[rows] = True
        tile, place, _ = places(np.flatnonzero(~given))
        for name, expected in zip(
            ("name", "scales"), tiled(m.quant.name, raw.ravel(), n_rows, m.n_in, SCALE[scales]), strict=True
        ):
            bits = expected.view(f"u{expected.itemsize}")
            if bits.size > 1:
                bits = bits.reshape(n_rows // 32, m.n_blocks, 32, -1)
                bits[tile, :, place] = 0  # rows that are not in the file are never written
            assert b"".join(got[getattr(slab, name)] for slab in m.slabs)[: bits.nbytes] == bits.tobytes()


TILE = Variant("", tile=(("P", 4), ("T", 4)))


@pytest.mark.parametrize(
    ("op", "n_tokens", "n_kv", "grid"),
    [
        (Op("", Variant(""), (), workgroups=1), 5, 9, (1, 1, 5)),
        (Op("", Variant(""), (), workgroups=1, per_token=0), 5, 9, (1, 1, 1)),
        (Op("", Variant(""), (), invocations=64), 3, 9, (1, 1, 3)),
        (Op("", Variant(""), (), invocations=65), 3, 9, (2, 1, 3)),
        (Op("", TILE, (), invocations=65), 9, 9, (2, 1, 3)),
        (Op("", TILE, (), invocations=65, per_token=0), 9, 9, (2, 1, 1)),
        (Op("", Variant(""), (), invocations=1, per_position=1, per_token=6), 2, 129, (3, 1, 12)),
        (Op("", TILE, (), invocations=12, per_position=64), 5, 129, (1, 1, 2)),
        (Op("", TILE, (), invocations=12, per_position=64), 5, 64 * 6, (2, 1, 2)),
        (Op("", Variant(""), (), invocations=64 * 65535), 1, 9, (65535, 1, 1)),
        (Op("", Variant(""), (), invocations=64 * 65536), 1, 9, (32768, 2, 1)),
    ],
)
def test_grid(op, n_tokens, n_kv, grid):
    assert op.grid(n_tokens, n_kv, 64, 65535) == grid


@given(n=st.integers(1, 10**7), most=st.integers(1, 65535))
def test_folded_grids_cover_and_waste_little(n, most):
    x, y, _ = Op("", Variant(""), (), invocations=n).grid(1, 1, 1, most)
    assert n <= x * y < n + y
    assert x <= most


def test_kv_buckets_are_powers_of_two_up_to_the_context():
    assert [kv_bucket(n, 2000) for n in (1, 256, 257, 1024, 1025, 2000)] == [256, 256, 512, 1024, 2000, 2000]
    assert kv_bucket(3, 100) == 100
