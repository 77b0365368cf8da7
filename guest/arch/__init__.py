"""The ways in which decoder architectures differ, one spec each; sizes come from the file's metadata.

To add an architecture, add a module here that registers its spec; nothing else needs an edit, as long as it
differs in ways that the spec has a word for.
"""

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ArchError


@dataclass(frozen=True, slots=True)
class Windows:
    """Layers that see the last tokens only: in each `period` layers all but the last one (0: every layer).

    The metadata says how many tokens (`attention.sliding_window`, else `size`; 0: layers see everything) and
    may give another period. Their rope has `rope.freq_base_swa`, else `freq_base`, else that of the other
    layers; `scaled` says whether what scales the others' rope scales theirs.
    """

    period: int = 0
    size: int = 0
    freq_base: float | None = None
    scaled: bool = True


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward blocks of which each token uses a few, where the metadata has an `expert_count`.

    `size`: the keys that say how long an expert's hidden row is, the first that is there. `over_all`: the
    weights of the chosen are shares of all experts' weights, not of the chosen ones' alone.
    """

    size: tuple[str, ...] = ("feed_forward_length",)
    over_all: bool = False


@dataclass(frozen=True, slots=True)
class ArchSpec:
    """How an architecture differs from a plain decoder; the defaults are llama's.

    rope: "norm" rotates adjacent pairs (2i, 2i + 1) of a head, "neox" (i, i + n_rot / 2), "none" nothing;
    `partial_rope` lets the metadata rotate fewer elements than a head has, `rope_factors` lets the file
    divide the frequencies by factors, and of each `rope_period` layers (0: none) the last one has no rope.
    `positions`: a learned vector for each position is added to the embedding.
    norm: "rms", or "layer", which takes the mean off as well. `pre_norm`: of what a block reads; `post_norm`:
    of what it adds. `parallel`: a layer without `ffn_norm` feeds both its blocks the same normed input.
    qk_norm: queries and keys normed before rope: "head" each head by itself, "row" all of a token's together,
    "own" each head by a gain of its own, where the file has them.
    activation: "silu", "gelu" (by tanh) or "clamped" (gpt-oss's, of experts); `gated`: of one projection,
    times another; `one_gate_up`: both are rows of `ffn_up`.
    `ffn_norm`: what the norm of the second block's input is called. `sinks`: each head has one more score,
    which takes its share of the weight and has no value.
    biases: tensors that must have one; others may.
    options: keys that the forward pass honours, and what they are when the file does not say. `neutral`: keys
    that must have this value where a file has them, beside those of hparams.NEUTRAL.
    """

    name: str  # general.architecture
    rope: str = "norm"
    partial_rope: bool = False
    rope_factors: bool = False
    rope_period: int = 0
    positions: bool = False
    norm: str = "rms"
    pre_norm: bool = True
    post_norm: bool = False
    parallel: bool = False
    qk_norm: str = ""
    activation: str = "silu"
    gated: bool = True
    one_gate_up: bool = False
    scaled_embedding: bool = False  # by the square root of n_embd
    wide_scale_layers: int = (
        0  # the model of so many layers scales attention by n_embd / n_head, not head size
    )
    windows: Windows | None = None
    ffn_norm: str = "ffn_norm"
    sinks: bool = False
    experts: Experts | None = None
    biases: tuple[str, ...] = ()
    options: Mapping[str, float] = field(default_factory=dict)
    neutral: Mapping[str, object] = field(default_factory=dict)


_SPECS: dict[str, ArchSpec] = {}


def register(spec: ArchSpec) -> ArchSpec:
    """Add a spec to the table; called once by its module."""
    assert spec.name not in _SPECS, f"{spec.name} is registered twice"
    _SPECS[spec.name] = spec
    return spec


def supported() -> tuple[str, ...]:
    """The names of all architectures, sorted."""
    return tuple(sorted(_SPECS))


def spec_for(name: str) -> ArchSpec:
    """The spec of an architecture. Raises ArchError listing the supported ones."""
    try:
        return _SPECS[name]
    except KeyError:
        shown = repr(name) if len(name) <= 60 else f"{name[:60]!r}…"
        raise ArchError(
            f"architecture {shown} is not supported; supported: {', '.join(supported())} "
            "(see README, where things are added)"
        ) from None


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
