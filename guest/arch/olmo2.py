"""OLMo 2 and 3. Source: llama.cpp src/models/olmo2.cpp."""

from . import ArchSpec, Windows, register

SPEC = register(
    ArchSpec(
        name="olmo2",
        rope="neox",
        pre_norm=False,
        post_norm=True,
        qk_norm="row",
        windows=Windows(period=4, scaled=False),
    )
)
