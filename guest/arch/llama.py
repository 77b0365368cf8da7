"""Llama, and what shares its layout (SmolLM2, Mistral, TinyLlama). Source: llama.cpp src/models/llama.cpp.

Beyond it: where the metadata has a sliding window, as the first Mistral's does, it is honoured.
"""

from . import ArchSpec, Windows, register

SPEC = register(ArchSpec(name="llama", rope_factors=True, windows=Windows()))
