"""Names of the activations that a pass has, by what the model's spec and file say. It computes nothing."""

from collections.abc import Container

from pagelm.arch import ArchSpec
from pagelm.hparams import HParams

# Everything that a layer may compute, in order. `attn_q` is the product alone, `attn_q_bias` the sum.
LAYER_LABELS = (
    "attn_norm attn_q attn_q_bias attn_k attn_k_bias attn_v attn_v_bias attn_q_norm attn_k_norm "
    "rope_q rope_k kv_store attn_scores attn_softmax attn_values attn_output attn_output_bias "
    "post_attention_norm attn_residual ffn_norm ffn_gate_inp ffn_gate_inp_bias ffn_gate_exps ffn_up_exps "
    "ffn_gate ffn_gate_bias ffn_up ffn_up_bias swiglu geglu gelu ffn_down ffn_down_bias ffn_down_exps "
    "ffn_moe_out post_ffw_norm ffn_residual"
).split()
ACTIVATIONS = {
    ("silu", True): "swiglu",
    ("clamped", True): "swiglu",
    ("gelu", True): "geglu",
    ("gelu", False): "gelu",
}
ALWAYS = {"kv_store", "attn_scores", "attn_softmax", "attn_values", "attn_residual", "ffn_residual"}


def activation(spec: ArchSpec) -> str:
    """The label of the feed-forward block's activation."""
    return ACTIVATIONS[spec.activation, spec.gated]


def layer_labels(hp: HParams, operands: Container[str], layer: int) -> list[str]:
    """What a layer computes, in order."""
    at = f"blk.{layer}."

    def there(op: str) -> bool:
        if op in ACTIVATIONS.values():
            return op == activation(hp.arch)
        if op == "ffn_moe_out":
            return hp.n_expert > 0
        if op == "post_attention_norm" and not hp.arch.post_norm:
            return False  # where it is the second block's norm
        if op == "ffn_norm":
            return f"{at}{hp.arch.ffn_norm}.weight" in operands
        if op in ("rope_q", "rope_k"):
            return hp.layers[layer].rope is not None
        if op.endswith("_bias"):
            return f"{at}{op.removesuffix('_bias')}.bias" in operands
        return op in ALWAYS or f"{at}{op}.weight" in operands

    return [op for op in LAYER_LABELS if there(op)]


def labels(hp: HParams, operands: Container[str]) -> list[str]:
    """Every activation that a trace can hold, in the order of computation."""
    layers = [f"blk.{i}.{op}" for i in range(hp.n_layer) for op in layer_labels(hp, operands, i)]
    embeds = ["embed", "embed_positions"] if hp.arch.positions else ["embed"]
    return [*embeds, *layers, "output_norm", "output", "argmax"]
