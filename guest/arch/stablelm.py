"""StableLM 3B, 2 1.6B and 2 12B. Source: llama.cpp src/models/stablelm.cpp."""

from . import ArchSpec, register

SPEC = register(
    ArchSpec(
        name="stablelm",
        rope="neox",
        partial_rope=True,
        norm="layer",
        parallel=True,
        qk_norm="own",
        biases=("attn_norm", "output_norm"),
        options={"use_parallel_residual": 0.0},
    )
)
