"""Llama, and what shares its layout (SmolLM2, Mistral, TinyLlama). Source: llama.cpp src/models/llama.cpp."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="llama"))
