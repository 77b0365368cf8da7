"""StarCoder 2. Source: llama.cpp src/models/starcoder2.cpp."""

from . import ArchSpec, register

SPEC = register(
    ArchSpec(
        name="starcoder2",
        rope="neox",
        norm="layer",
        activation="gelu",
        gated=False,
        biases=("attn_norm", "attn_output", "ffn_norm", "ffn_up", "ffn_down", "output_norm"),
    )
)
