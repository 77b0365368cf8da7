"""Granite 3 and 4, dense. Source: llama.cpp src/models/granite.cpp. The file's logit scale is a divisor."""

from . import ArchSpec, register

SPEC = register(
    ArchSpec(
        name="granite",
        rope_factors=True,
        options={
            "attention.scale": 0.0,
            "embedding_scale": 0.0,
            "logit_scale": 1.0,
            "residual_scale": 0.0,
        },
        neutral={"rope.scaling.finetuned": True},
    )
)
