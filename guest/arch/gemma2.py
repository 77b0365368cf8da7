"""Gemma 2. Source: llama.cpp src/models/gemma2.cpp."""

from . import ArchSpec, Windows, register

SPEC = register(
    ArchSpec(
        name="gemma2",
        rope="neox",
        activation="gelu",
        post_norm=True,
        scaled_embedding=True,
        wide_scale_layers=46,
        windows=Windows(period=2, size=4096),
        options={"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    )
)
