"""GPT-2. Source: llama.cpp src/models/gpt2.cpp."""

from . import ArchSpec, register

SPEC = register(
    ArchSpec(
        name="gpt2",
        rope="none",
        positions=True,
        norm="layer",
        activation="gelu",
        gated=False,
        biases=("attn_norm", "attn_output", "ffn_norm", "ffn_up", "ffn_down", "output_norm"),
    )
)
