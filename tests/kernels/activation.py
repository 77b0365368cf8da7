"""Activations in float64, and cases of the kernels that are an activation and little else."""

import numpy as np
from kernel_case import Expect, KernelCase
from kernels.data import f64, filled, rng, spiky, state

from pagelm.kernels import Variant
from pagelm.program import Op

ULP = 1.2e-7
STEEPEST = {False: 1.1, True: 1.13}  # slope of an activation, at most: SiLU, GELU
LEAST = 2e-35  # exp(-80), where the kernels cut off


def exponent(x: np.ndarray, gelu: bool) -> np.ndarray:
    """k of x / (1 + exp(-k))."""
    return 2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3) if gelu else x


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(np.minimum(-x, 700)))


def activated(x: np.ndarray, gelu: bool, off: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The activation of x, and what it may be off by where x is off by `off`."""
    k = exponent(x, gelu)
    y = x * sigmoid(k)
    own = (4 + (5.5 if gelu else 2) * np.minimum(np.abs(k), 80)) * ULP * np.abs(y) + LEAST * np.abs(x)
    most = np.abs(x) + off
    rise = 2 * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * most**2) if gelu else 1  # of k, at most
    # the steepest slope near here
    slope = np.minimum(STEEPEST[gelu], sigmoid(exponent(x + off, gelu)) * (1 + most * rise))
    return y, own + slope * off


WHY = "relative (4 + 2 |k|) 1.2e-7, of GELU (4 + 5.5 |k|) 1.2e-7; exp(-80) |x|; 6e-7 for a product"
HARD = [0, -0.0, 88, -88, -200, 3e4, -3e4, 1e13, -1e13, 5.5, -5.5, 1e-20]


def activation_cases() -> list[KernelCase]:
    cases = []
    for n in (32, 96, 1024):
        for gelu in (False, True):
            name = f"{n}" + "-gelu" * gelu
            r = rng("activation" + name)
            gate = (4 * r.standard_normal((2, n))).astype(np.float32)
            gate[0, : len(HARD)] = HARD
            up = spiky(r, 2, n)
            act, off = activated(f64(gate), gelu)
            overrides = {"STRIDE": n, "GELU": int(gelu)}
            before = filled(-9, 3, n)  # n_tokens is 2: the third row is left alone

            def expected(values: np.ndarray, allowed: np.ndarray, before: np.ndarray = before) -> Expect:
                whole, slack = f64(before), np.zeros(before.shape)
                whole[:2], slack[:2] = values, allowed + 1e-30
                return Expect(whole, slack, WHY)

            inputs = {"gate": gate, "up": up, "state": state(0, 2), "y": before}
            op = Op("gated", Variant("gated"), tuple(inputs), overrides, invocations=n)
            y = act * f64(up)
            outputs = {"y": expected(y, off * np.abs(f64(up)) + 6e-7 * np.abs(y))}
            cases.append(KernelCase(f"gated-{name}", op, inputs, outputs, 3))

            inputs = {"x": gate, "state": state(0, 2), "y": before}
            op = Op("activate", Variant("activate"), tuple(inputs), overrides, invocations=n)
            cases.append(KernelCase(f"activate-{name}", op, inputs, {"y": expected(act, off)}, 3))
    return cases


def bias_cases() -> list[KernelCase]:
    cases = []
    for n, first, stride in ((1, 0, 32), (65, 0, 96), (64, 32, 64), (100, 96, 1024)):
        name = f"bias-{n}-from{first}"
        r = rng(name)
        b, x = spiky(r, first + n + 3), spiky(r, 3, stride)
        expect = f64(x)
        expect[:2, :n] = x[:2, :n] + b[first : first + n]  # n_tokens is 2; what lies past n is left alone
        inputs = {"b": b, "state": state(0, 2), "x": x}
        overrides = {"N": n, "FIRST": first, "STRIDE": stride}
        op = Op("bias", Variant("bias"), tuple(inputs), overrides, invocations=n)
        outputs = {"x": Expect(expect, 0.0, "one IEEE addition")}
        cases.append(KernelCase(name, op, inputs, outputs, 3))
    return cases
