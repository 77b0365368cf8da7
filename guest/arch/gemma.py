"""Gemma 1. Source: llama.cpp src/models/gemma.cpp. The file's norm weights have their 1 added already."""

from . import ArchSpec, register

SPEC = register(ArchSpec(name="gemma", rope="neox", activation="gelu", scaled_embedding=True))
