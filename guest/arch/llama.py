"""Llama, and what shares its layout: SmolLM2, Mistral, Mixtral, TinyLlama.

Source: llama.cpp src/models/llama.cpp. Beyond it: where the metadata has a sliding window, as the first
Mistral's does, it is honoured.
"""

from . import ArchSpec, Experts, Windows, register

SPEC = register(ArchSpec(name="llama", rope_factors=True, windows=Windows(), experts=Experts()))
