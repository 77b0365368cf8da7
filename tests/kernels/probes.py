"""Cases of the two kernels that measure what an adapter can do."""

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.data import EPS32, f64, filled, rng

from pagelm.kernels import Variant
from pagelm.program import Op


def probe_cases() -> list[KernelCase]:
    cases = []
    for n, each in ((1, 1), (64, 1), (1000, 1), (1000, 3), (4096, 64)):
        name = f"probe_copy-{n}-{each}"
        x = rng(name).standard_normal((n, 4)).astype(np.float32)
        inputs = {"x": x, "y": filled(-9, n, 4)}
        op = Op("probe_copy", Variant("probe_copy"), tuple(inputs), {"EACH": each}, invocations=-(-n // each))
        cases.append(KernelCase(name, op, inputs, {"y": Expect(f64(x), 0.0, "a copy")}))
    for n, m, b, rounds in ((1, 0.5, 1.0, 1), (257, 0.5, 1.0, 3), (300, -0.97, 0.3, 2), (64, 1.0, 1.0, 100)):
        name = f"probe_fma-{n}-{m}-{rounds}"
        links = 16 * rounds
        m, b = np.float32(m), np.float32(b)
        a = np.arange(n)[:, None] + np.arange(8.0)
        largest = np.abs(a)
        for _ in range(links):
            a = a * float(m) + float(b)
            largest = np.maximum(largest, np.abs(a))
        inputs = {"x": np.array([m, b, rounds, 0], np.float32), "y": filled(-9, n, 8)}
        op = Op("probe_fma", Variant("probe_fma"), tuple(inputs), invocations=n)
        why = "two roundings a link, each at most half an ulp of the largest value"
        cases.append(KernelCase(name, op, inputs, {"y": Expect(a, EPS32 * links * largest, why)}))
    return cases
