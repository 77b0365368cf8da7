"""Results of the last pass by name: what it left in buffers, and what fusion hid, computed once more."""

from array import array
from collections.abc import Mapping, Sequence

from .device import Buffer, Gpu
from .errors import PagelmError
from .forward import STATE_TOKENS, hidden_stride
from .hparams import HParams
from .program import Op, Pipelines, Program, kv_bucket
from .weights import padded


class Activations:
    """Reads activations back. `inside` is a pass with a buffer for every result that leaves the cache alone.

    `widths`: elements of a token's row of every result that has a name.
    """

    def __init__(
        self,
        gpu: Gpu,
        hp: HParams,
        n_ctx: int,
        inside: Program,
        buffers: Mapping[str, Buffer],
        pipelines: Pipelines,
    ) -> None:
        self.widths = {
            **dict.fromkeys(("x", "h", "o", "normed", "last"), hp.n_embd),
            **dict.fromkeys(("q", "q_raw", "att"), hp.n_embd_q),
            **dict.fromkeys(("k", "k_raw", "v"), hp.n_embd_kv),
            **dict.fromkeys(("gate", "up", "act"), hidden_stride(hp) if hp.n_expert else hp.n_ff),
            "router": hp.n_expert,
            "expert": hp.n_expert_used * hp.n_embd,
            "logits": hp.n_vocab,
            "scores": hp.n_head * n_ctx,
        }
        self._gpu = gpu
        self._n_ctx = n_ctx
        self._inside = inside
        self._buffers = buffers
        self._pipelines = pipelines
        self._ops: tuple[Op, ...] = ()
        self._n_tokens = 0
        self._fed: tuple[int, int] | None = None
        self._again: tuple[Op, ...] = ()  # what has been computed once more, for the last token alone

    def passed(self, ops: tuple[Op, ...], n_tokens: int, fed: tuple[int, int] | None) -> None:
        """Note the pass that was submitted, over `n_tokens`.

        `fed`: position and id of its last token; None when the GPU alone knows, after a decode.
        """
        self._ops, self._n_tokens, self._fed, self._again = ops, n_tokens, fed, ()

    @property
    def newest(self) -> str:
        """Name of the result of the pass's last op."""
        return self._ops[-1].buffers[-1]

    async def values(self, name: str, n: int | None = None) -> "array[float]":
        """The last token's row of the result called `name`, or its first `n` values.

        Raises: PagelmError for a name that there is not.
        """
        writers, rows = _writers(self._ops, name), self._n_tokens
        if not writers and self._ops and _writers(self._inside.ops, name):
            if not self._again:
                await self._compute_again()
            writers, rows = _writers(self._again, name), 1
        if name not in self.widths or not writers:
            there = (*self._ops, *self._inside.ops) if self._ops else ()
            known = ", ".join(w for w in self.widths if _writers(there, w))
            raise PagelmError(
                f"nothing named {name!r} was computed by the last pass; there is: {known or 'nothing'}"
            )
        width = self.widths[name]
        stride = width if name in ("logits", "scores") else padded(width)
        start = stride * (rows - 1) if writers[-1].per_token else 0
        count = width if n is None else min(n, width)
        return array("f", await self._gpu.read(self._buffers[name], 4 * start, 4 * count) if count else b"")

    async def _compute_again(self) -> None:
        """The last token's pass an operation at a time, as far as it went; the state is put back after it."""
        state = self._buffers["state"]
        await self._inside.compile(self._buffers, self._pipelines)
        now = await self._gpu.read(state, 0, STATE_TOKENS + 4)
        last = self._ops[-1]
        stop = last.label if self._inside.has(last.label) else None
        if last.label != "argmax" and self._fed is not None:
            position, fed = self._fed
        else:  # an argmax has moved the state on, and left there what the pass was fed
            n_past, _, _, fed, _ = array("I", now)
            position = n_past - 1
        self._gpu.write(state, 0, array("I", [position, 1, 0, 0, fed]).tobytes())
        self._again = self._inside.until(stop)
        self._gpu.submit(self._inside.recording(1, kv_bucket(position + 1, self._n_ctx), stop))
        self._gpu.write(state, 0, now)


def _writers(ops: Sequence[Op], name: str) -> list[Op]:
    """The ops that leave a result called `name`, which nothing else has overwritten since."""
    found: list[Op] = []
    for op in ops:
        if name in op.scratch:
            found.clear()
        elif op.buffers[-1] == name:
            found.append(op)
    return found
