"""Phi 3 and 4. Source: llama.cpp src/models/phi3.cpp, which ignores the sliding window that files name."""

from . import ArchSpec, register

SPEC = register(
    ArchSpec(
        name="phi3",
        rope="neox",
        partial_rope=True,
        rope_factors=True,
        one_gate_up=True,
        options={"attention.sliding_window": 0},
    )
)
