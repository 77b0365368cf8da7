"""The case table: every kernel, with sizes around the workgroup and tile size, outliers, zero rows, ties."""

import os
from dataclasses import replace

import numpy as np
from kernel_case import KernelCase
from kernels.attention import baseline_cases, combine_cases, kv_store_cases, rope_cases, stretch_cases
from kernels.data import PACKED_TILE, TILES
from kernels.elementwise import elementwise_cases, embed_cases, pack_cases, rms_norm_cases, share_cases
from kernels.maxima import accept_cases, argmax_cases, logits_cases
from kernels.probes import probe_cases
from kernels.products import THOROUGH, gate_up_cases, matmul_cases, project_cases, qkv_cases
from kernels.repacking import repack_cases

from pagelm.kernels import variants


def widened(case: KernelCase) -> KernelCase:
    """The same with f32 scales: exactly the numbers that the f16 ones stand for."""
    s = case.inputs["s"].view(np.float16).astype(np.float32)
    expect = dict(case.expect)
    if "s" in expect:  # what repack writes, as bits
        s = s.view(np.uint32)
        bits = expect["s"].values.view(np.float16).astype(np.float32).view(np.uint32)
        expect["s"] = replace(expect["s"], values=bits)
    op = replace(case.op, variant=replace(case.op.variant, scales="f32"))
    return replace(case, id=case.id + "-f32", op=op, inputs={**case.inputs, "s": s}, expect=expect)


EVERY: list[KernelCase] = [
    *share_cases(),
    *repack_cases(),
    *embed_cases(),
    *matmul_cases(),
    *qkv_cases(),
    *gate_up_cases(),
    *project_cases(),
    *logits_cases(),
    *rms_norm_cases(),
    *pack_cases(),
    *rope_cases(),
    *kv_store_cases(),
    *baseline_cases(),
    *stretch_cases(),
    *combine_cases(),
    *elementwise_cases(),
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


def chosen(case: KernelCase) -> bool:
    """Whether to run it without PAGELM_ALL_KERNELS.

    How many rows an invocation has does not depend on the tensor type: one type has all, the others the most.
    """
    variant = case.op.variant
    if variant.rows is None or variant.quant in (None, THOROUGH):
        return True
    pairs, tokens = (dict(variant.tile)[name] for name in "PT")
    same = [t for t in (*TILES, PACKED_TILE) if (t.rows, t.tokens) == (variant.rows, tokens)]
    if variant.kernel == "project":
        same = [t for t in same if t.pairs <= (4 if tokens == 1 else 8)]
    return pairs == max(t.pairs for t in same)


CASES = EVERY if os.environ.get("PAGELM_ALL_KERNELS") else [case for case in EVERY if chosen(case)]
