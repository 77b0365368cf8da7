"""OLMoE. Source: llama.cpp src/models/olmoe.cpp."""

from . import ArchSpec, Experts, register

SPEC = register(ArchSpec(name="olmoe", rope="neox", qk_norm="row", experts=Experts(over_all=True)))
