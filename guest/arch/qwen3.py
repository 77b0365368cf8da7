"""Qwen 3. Source: llama.cpp src/models/qwen3.cpp."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="qwen3", rope="neox", qk_norm="head"))
