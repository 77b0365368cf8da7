"""SmolLM 3. Source: llama.cpp src/models/smollm3.cpp."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="smollm3", rope_period=4))
