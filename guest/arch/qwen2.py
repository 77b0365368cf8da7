"""Qwen 2 and 2.5. Source: llama.cpp src/models/qwen2.cpp."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="qwen2", rope="neox", biases=("attn_q", "attn_k", "attn_v")))
