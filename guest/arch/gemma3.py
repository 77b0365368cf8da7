"""Gemma 3, text. Source: llama.cpp src/models/gemma3.cpp."""

from . import ArchSpec, Windows, register

SPEC = register(
    ArchSpec(
        name="gemma3",
        rope="neox",
        activation="gelu",
        qk_norm="head",
        post_norm=True,
        scaled_embedding=True,
        wide_scale_layers=62,
        windows=Windows(period=6, freq_base=10000.0, scaled=False),
        options={"final_logit_softcapping": 0.0},
    )
)
