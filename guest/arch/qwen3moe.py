"""Qwen 3 with experts. Source: llama.cpp src/models/qwen3moe.cpp."""

from . import ArchSpec, Experts, register

SPEC = register(
    ArchSpec(
        name="qwen3moe",
        rope="neox",
        qk_norm="head",
        experts=Experts(size=("expert_feed_forward_length",)),
    )
)
