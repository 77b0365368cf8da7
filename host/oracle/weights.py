"""The oracle's view of a GGUF file: hyper-parameters, raw tensor bytes, float32 tensors decoded once."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from numpy.typing import NDArray

from pagelm.errors import ArchError
from pagelm.host.oracle.dequant import DEQUANT
from pagelm.host.oracle.half import F32


@dataclass(frozen=True)
class HParams:
    n_embd: int
    n_layer: int
    n_head: int
    n_head_kv: int
    n_embd_head: int
    n_ff: int
    n_vocab: int
    n_rot: int
    rope_freq_base: float
    norm_rms_eps: float


class Weights:
    """Tensors of one file by name. Bytes are mapped, not read; `tensor` decodes on first use and keeps it."""

    def __init__(self, path: str | Path) -> None:
        reader = GGUFReader(path)
        self._tensors = {t.name: t for t in reader.tensors}
        self._decoded: dict[str, F32] = {}
        fields = reader.fields
        arch = fields["general.architecture"].contents()
        if arch != "llama":
            raise ArchError(f"{path}: architecture {arch!r} is not supported by the oracle; supported: llama")

        def get(key, default=None):
            field = fields.get(f"llama.{key}")
            return default if field is None else field.contents()

        n_embd, n_head = get("embedding_length"), get("attention.head_count")
        n_embd_head = get("attention.key_length", n_embd // n_head)
        self.hparams = HParams(
            n_embd=n_embd,
            n_layer=get("block_count"),
            n_head=n_head,
            n_head_kv=get("attention.head_count_kv", n_head),
            n_embd_head=n_embd_head,
            n_ff=get("feed_forward_length"),
            n_vocab=int(self._tensors["token_embd.weight"].shape[1]),
            n_rot=get("rope.dimension_count", n_embd_head),
            rope_freq_base=float(get("rope.freq_base", 10000.0)),
            norm_rms_eps=float(get("attention.layer_norm_rms_epsilon")),
        )

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def quant(self, name: str) -> str:
        """The tensor's type, as GGUF names it."""
        return self._tensors[name].tensor_type.name

    def shape(self, name: str) -> tuple[int, ...]:
        """Outermost first: (rows, columns)."""
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The tensor's bytes, as one flat array."""
        return self._tensors[name].data.view(np.uint8).reshape(-1)

    def tensor(self, name: str) -> F32:
        """The tensor in float32, shape outermost first."""
        if name not in self._decoded:
            self._decoded[name] = DEQUANT[self.quant(name)](self.raw(name)).reshape(self.shape(name))
        return self._decoded[name]
