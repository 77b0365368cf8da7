"""`Lm`s for tests: one with scripted times and counts, and one that is wrong in exactly one place."""

from dataclasses import replace

import numpy as np

from pagelm.errors import NumericError
from pagelm.host.cpu_lm import CpuLm
from pagelm.host.oracle import Oracle, ops
from pagelm.tokenizer import tokenizer_from


class FakeLm:
    """Answers with `pieces`, one token each; call i has the rates `speeds[i]` by `clock`; counts run on."""

    device = "native"

    def __init__(self, pieces=("a", "b", "c"), speeds=((100.0, 10.0),), stop_reason="length") -> None:
        self.tuning = None
        self.adapter = {
            "vendor": "fake",
            "architecture": "",
            "device": "",
            "description": "",
            "backend": "none",
        }
        self.pieces = pieces
        self.speeds = speeds
        self.stop_reason = stop_reason
        self.prompts = []
        self.closed = False
        self.now = 0.0
        self.counts = {"submits": 0, "dispatches": 0, "tokens": 0}

    def clock(self):
        """The time in seconds, which passes while this generates and at no other time."""
        return self.now

    async def encode(self, text):
        return [ord(c) for c in text]

    async def generate(self, prompt, max_tokens, ignore_eos, emit=None, guess=True):
        self.prompts.append(prompt)
        prefill, decode = self.speeds[min(len(self.prompts), len(self.speeds)) - 1]
        ids, text = [], ""
        for i in range(max_tokens if ignore_eos else min(max_tokens, len(self.pieces))):
            ids.append(i)
            self.now += 1 / decode if i else len(prompt) / prefill
            text += self.pieces[i % len(self.pieces)]
            if emit is not None and emit(self.pieces[i % len(self.pieces)]) is False:
                break
        self.counts["submits"] += 3 + len(ids) - 1  # a prompt takes three
        self.counts["dispatches"] += 3 * 50 + 7 * (len(ids) - 1)
        self.counts["tokens"] += len(ids)
        return {
            "prompt_ids": [ord(c) for c in prompt] if isinstance(prompt, str) else list(prompt),
            "ids": ids,
            "text": text,
            "stop_reason": self.stop_reason,
            "timing": {
                "load_s": 1.5,
                "prefill_s": 0.1,
                "decode_s": 0.2,
                "prefill_tok_s": prefill,
                "decode_tok_s": decode,
                "record_ms_per_token": 0.01,
                "submit_ms_per_token": 0.02,
            },
            "stats": {
                **self.counts,
                "guessed": 0,
                "accepted": 0,
                "buffers_created_in_decode": 0,
                "bytes_read_back_per_token": 4,
                "memory_bytes": 1000,
            },
        }

    async def heap_bytes(self):
        return 31_457_408

    async def close(self):
        self.closed = True


def cpu_lm(path, kind=CpuLm, oracle=None):
    """A CpuLm over `path` without the file's own tokenizer being read again."""
    oracle = oracle or Oracle(path)
    return kind(oracle, tokenizer_from(metadata_of(path)))


def metadata_of(path):
    import asyncio

    from pagelm.gguf import read_gguf
    from pagelm.sources import FileSource

    return asyncio.run(read_gguf(FileSource(path))).metadata


def oracle_with_wrong_weight(path, tensor, by=0.5):
    """An oracle that has one number of one tensor wrong, as a device with a bad kernel or upload would."""
    oracle = Oracle(path)
    wrong = oracle.weights.tensor(tensor).copy()
    wrong.reshape(-1)[: wrong.shape[-1]] += np.float32(by)
    oracle.weights._decoded[tensor] = wrong
    return oracle


def oracle_with_wrong_rope(path):
    """An oracle that turns by other angles."""
    oracle = Oracle(path)
    (rope,) = oracle.hparams.ropes
    oracle.hparams = replace(oracle.hparams, ropes=(replace(rope, freq_base=9000.0),))
    return oracle


def oracle_with_wrong_op(path, op, layer, monkeypatch):
    """An oracle whose function `op` of ops.py, called once a layer, is off by a thousandth in one layer."""
    oracle, calls, right = Oracle(path), [0], getattr(ops, op)
    n_layer = oracle.hparams.n_layer

    class Wrong(Oracle):
        def forward(self, *args, **kwargs):
            calls[0] = 0

            def wrong(*a, **k):
                calls[0] += 1
                y = right(*a, **k)
                return y * np.float32(1.001) if (calls[0] - 1) % n_layer == layer else y

            monkeypatch.setattr(ops, op, wrong)
            try:
                return super().forward(*args, **kwargs)
            finally:
                monkeypatch.setattr(ops, op, right)

    return Wrong(path)


class NanLm(CpuLm):
    """All logits are NaN from the third step on, as an engine reports it."""

    async def trace(self, prompt_ids, n, forced=None):
        seen = 0
        async for step in super().trace(prompt_ids, n, forced):
            if seen == 2:
                raise NumericError("every logit at position 7 is NaN")
            seen += 1
            yield step


class WrongDecodeLm(CpuLm):
    """Right over a prompt, wrong in the steps after it."""

    async def trace(self, prompt_ids, n, forced=None):
        seen = 0
        async for token, logits in super().trace(prompt_ids, n, forced):
            yield token, logits if seen == 0 else logits + np.float32(0.01) * np.abs(logits).max()
            seen += 1
