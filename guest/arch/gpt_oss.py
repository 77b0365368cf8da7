"""gpt-oss. Source: llama.cpp src/models/openai-moe.cpp."""

from . import ArchSpec, Experts, Windows, register

SPEC = register(
    ArchSpec(
        name="gpt-oss",
        rope="neox",
        activation="clamped",
        ffn_norm="post_attention_norm",
        sinks=True,
        windows=Windows(period=2),
        experts=Experts(size=("expert_feed_forward_length",)),
        biases=(
            *("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_inp"),
            *("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"),
        ),
    )
)
