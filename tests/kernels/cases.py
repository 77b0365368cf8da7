"""The case table: every kernel, with sizes around the workgroup and tile size, outliers, zero rows, ties."""

from kernel_case import KernelCase
from kernels.attention import baseline_cases, combine_cases, kv_store_cases, rope_cases, stretch_cases
from kernels.elementwise import elementwise_cases, embed_cases, rms_norm_cases, share_cases
from kernels.maxima import accept_cases, argmax_cases, logits_cases
from kernels.probes import probe_cases
from kernels.products import gate_up_cases, matmul_cases, project_cases, qkv_cases
from kernels.repacking import repack_cases

CASES: list[KernelCase] = [
    *share_cases(),
    *repack_cases(),
    *embed_cases(),
    *matmul_cases(),
    *qkv_cases(),
    *gate_up_cases(),
    *project_cases(),
    *logits_cases(),
    *rms_norm_cases(),
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
