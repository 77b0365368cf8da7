"""EXAONE 3. Source: llama.cpp src/models/exaone.cpp."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="exaone", rope="neox", rope_factors=True))
