"""The case table: every kernel, with sizes around the workgroup and tile size, outliers, zero rows, ties."""

import os
from dataclasses import replace

import numpy as np
from kernel_case import KernelCase
from kernels.activation import activation_cases, bias_cases
from kernels.attention import (
    baseline_cases,
    combine_cases,
    half_cases,
    kv_store_cases,
    rope_cases,
    stretch_cases,
)
from kernels.data import MORE, PACKED_TILE, TILES, Tile
from kernels.elementwise import (
    elementwise_cases,
    embed_cases,
    more_embed_cases,
    pack_cases,
    scaled_embed_cases,
    share_cases,
)
from kernels.experts import expert_sum_cases, experts_cases, route_cases
from kernels.linear import linear_cases
from kernels.maxima import accept_cases, argmax_cases, logits_cases
from kernels.norms import add_norm_cases, heads_cases, norm_cases
from kernels.probes import probe_cases
from kernels.products import THOROUGH, gate_up_cases, matmul_cases, project_cases, qkv_cases
from kernels.repacking import repack_cases

from pagelm.kernels import variants
from pagelm.quants import QUANTS as TABLE


def widened(case: KernelCase) -> KernelCase:
    """The same with f32 scales: exactly the numbers that those of the file stand for."""
    s, quant, expect = case.inputs["s"], case.op.variant.quant, dict(case.expect)
    if quant in MORE:  # written by repack, in a buffer of another size
        s = np.zeros(s.size * TABLE[quant].wide // TABLE[quant].beside, s.dtype)
        if "s" in expect:
            expect["s"] = replace(expect["s"], values=np.zeros(s.size))
    else:
        s = s.view(np.float16).astype(np.float32)
        if "s" in expect:  # what repack writes, as bits
            s = s.view(np.uint32)
            bits = expect["s"].values.view(np.float16).astype(np.float32).view(np.uint32)
            expect["s"] = replace(expect["s"], values=bits)
    op = replace(case.op, variant=replace(case.op.variant, scales="f32"))
    first = tuple(widened(of) for of in case.first)
    return replace(
        case, id=case.id + "-f32", op=op, inputs={**case.inputs, "s": s}, expect=expect, first=first
    )


def halved(case: KernelCase) -> KernelCase:
    """A case of qkv or heads with an f16 cache; what is already there is rounded first."""
    inputs, expect = dict(case.inputs), dict(case.expect)
    for name in ("k_cache", "v_cache"):
        values, allowed = expect[name].values, np.asarray(expect[name].tolerance)
        stored = values != inputs[name]
        inputs[name] = inputs[name].astype(np.float16)
        rounding = 2.0**-10 * (np.abs(values) + allowed) + 2.0**-14
        expect[name] = replace(
            expect[name],
            values=np.where(stored, np.clip(values, -65504, 65504), inputs[name]),
            tolerance=np.where(stored, allowed + rounding, 0),
            why=expect[name].why + ", + 2^-10 |v|",
        )
    op = replace(case.op, variant=replace(case.op.variant, cache="f16"))
    return replace(case, id=case.id + "-f16", op=op, inputs=inputs, expect=expect)


EVERY: list[KernelCase] = [
    *share_cases(),
    *repack_cases(),
    *embed_cases(),
    *more_embed_cases(),
    *scaled_embed_cases(),
    *matmul_cases(),
    *qkv_cases(),
    *gate_up_cases(),
    *linear_cases(),
    *project_cases(),
    *logits_cases(),
    *experts_cases(),
    *route_cases(),
    *expert_sum_cases(),
    *norm_cases(),
    *add_norm_cases(),
    *heads_cases(),
    *pack_cases(),
    *rope_cases(),
    *kv_store_cases(),
    *baseline_cases(),
    *stretch_cases(),
    *half_cases(),
    *combine_cases(),
    *elementwise_cases(),
    *activation_cases(),
    *bias_cases(),
    *argmax_cases(),
    *probe_cases(),
    *accept_cases(),
]

WIDE = {variant for variant in variants() if variant.scales == "f32"}
EVERY += [
    widened(case)
    for case in EVERY
    if case.op.variant.scales and replace(case.op.variant, scales="f32") in WIDE
]
HALF = {variant for variant in variants() if variant.cache == "f16"}
EVERY += [
    halved(case)
    for case in EVERY
    if (case.op.variant.kernel == "heads" or (case.id.startswith("qkv-") and case.id.endswith("-9/3x64")))
    and replace(case.op.variant, cache="f16") in HALF
]


MORE_CHOSEN = (
    ("alone", Tile(4, 1)),
    ("quad", Tile(4, 8)),
    ("quad", Tile(4, 1, "loop", 2)),
    ("alone", Tile(8, 4, "loop_tokens", 1)),
)


def chosen(case: KernelCase) -> bool:
    """Whether to run it without PAGELM_ALL_KERNELS.

    How many rows an invocation has does not depend on the tensor type: one type has all, of plain products
    the others the most, and what comes after a product is met in each type with a few.
    Products of experts differ from others in where their rows are: one type has few of them, gpt-oss's fewer.
    Of MORE types each way to load and each way over rows is met with, but not all ways with each other.
    """
    variant = case.op.variant
    if variant.kernel == "experts" and (
        variant.quant not in (THOROUGH, "MXFP4") or dict(variant.tile)["P"] > 8
    ):
        return False
    others = variant.kernel != "matmul" and variant.quant != THOROUGH and variant.rows != "packed"
    if variant.rows and (variant.quant in MORE or others):
        return (variant.share, variant.rows, variant.tile) in {
            (share, tile.rows, tile.sizes) for share, tile in MORE_CHOSEN
        }
    if variant.rows is None or variant.quant in (None, THOROUGH):
        return True
    pairs, tokens = (dict(variant.tile)[name] for name in "PT")
    same = [t for t in (*TILES, PACKED_TILE) if (t.rows, t.tokens) == (variant.rows, tokens)]
    if variant.kernel == "project":
        same = [t for t in same if t.pairs <= (4 if tokens == 1 else 8)]
    return pairs == max(t.pairs for t in same)


CASES = EVERY if os.environ.get("PAGELM_ALL_KERNELS") else [case for case in EVERY if chosen(case)]
