"""Run every architecture in every tensor type, and note how far the GPU is from the numpy oracle.

    python tests/prove.py [--device native|browser] [--arch NAME] [--type NAME]

A tiny random model of each pair (tests/archs) is fed 24 tokens and generates 8. The largest difference of
logits, in units of the largest logit, must be within 1e-5 at every step and all ids equal. What was measured
goes into host/proofs.json, which `pagelm capabilities` and the README's table are made from; a pair that
fails is left out and makes the script end with 1. All pairs on both devices take about ten minutes.
"""

import argparse
import asyncio
import datetime
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from archs import MODELS, TinyModel, write
from archs.models import sized

import pagelm
from pagelm.arch import supported
from pagelm.errors import PagelmError
from pagelm.host.browser_lm import BrowserLm
from pagelm.host.capabilities import PROOFS
from pagelm.host.oracle import Oracle
from pagelm.quants import QUANTS, SUPPORTED

N_PROMPT, N_GENERATED, N_CTX = 24, 8, 256
LIMIT = 1e-5
LONG = {"n_embd": 256, "n_head": 4, "n_head_kv": 2, "d": 64, "n_ff": 256, "n_layer": 2}


def model_of(arch: str, kind: str) -> TinyModel:
    """The plainest model of an architecture, its matrices of one type, rows as long as its blocks need."""
    name = next(name for name, model in MODELS.items() if model.arch == arch)
    model = MODELS[name]
    if QUANTS[kind].block_size > 32:
        sizes = dict(LONG)
        if "expert_count" in model.metadata:
            sizes["n_ff_exp"] = 256
        if model.metadata.get("attention.head_count_kv", 0) == model.metadata["attention.head_count"]:
            sizes["n_head_kv"] = sizes["n_head"]
        model = sized(name, **sizes)
    return model.of_types({"": kind})


class Native:
    """Loads models natively."""

    async def load(self, path: Path) -> Any:
        return await pagelm.load(path, n_ctx=N_CTX, tune="off")

    async def close(self) -> None:
        pass


class Browser:
    """Loads models one after another in one page of headless Chromium."""

    def __init__(self, page: BrowserLm) -> None:
        self._page = page
        self._n = 0

    async def load(self, path: Path) -> Any:
        self._n += 1
        await self._page.load(f"{self._page.model_url}?{self._n}", n_ctx=N_CTX, tune="off")
        return self._page

    async def close(self) -> None:
        await self._page.close()


async def difference(device: Native | Browser, path: Path) -> tuple[float, str]:
    """The largest difference in units of the largest logit, and the adapter. Raises: AssertionError."""
    oracle = Oracle(path, n_ctx=N_CTX)
    ids = np.random.default_rng(5).integers(0, oracle.n_vocab, N_PROMPT).tolist()
    worst, want = 0.0, oracle.forward(ids)
    lm = await device.load(path)
    try:
        adapter = lm.adapter if isinstance(lm.adapter, dict) else asdict(lm.adapter)
        async for token, got in lm.trace(ids, N_GENERATED):
            worst = max(worst, float(np.abs(np.asarray(got) - want).max() / np.abs(want).max()))
            assert worst <= LIMIT, f"off by {worst:.1e} of the largest logit; allowed {LIMIT:g}"
            assert token == int(want.argmax()), f"chose {token}, the oracle {int(want.argmax())}"
            want = oracle.forward([token])
    finally:
        if isinstance(device, Native):
            await lm.close()
    name = adapter.get("device") or adapter.get("architecture") or adapter.get("description") or ""
    return worst, f"{name} ({adapter.get('backend') or 'webgpu'})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("native", "browser"), action="append")
    parser.add_argument("--arch", choices=supported(), action="append")
    parser.add_argument("--type", choices=SUPPORTED, action="append")
    args = parser.parse_args()
    proofs = json.loads(PROOFS.read_text()) if PROOFS.exists() else {}
    wanted = [(arch, kind) for arch in args.arch or supported() for kind in args.type or SUPPORTED]
    failed = sum(
        asyncio.run(prove(device, wanted, proofs)) for device in args.device or ("native", "browser")
    )
    return min(failed, 1)


async def prove(name: str, wanted: list[tuple[str, str]], proofs: dict[str, Any]) -> int:
    """Run all pairs on one device and write down what comes out; how many failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        path = write(MODELS["llama"], Path(tmp) / "model.gguf")
        device = Native() if name == "native" else Browser(await BrowserLm.start(path))
        try:
            for arch, kind in wanted:
                write(model_of(arch, kind), path)
                pair = proofs.setdefault(name, {"pairs": {}})["pairs"].setdefault(arch, {})
                try:
                    worst, adapter = await difference(device, path)
                except (AssertionError, PagelmError) as e:
                    pair.pop(kind, None)
                    failed += 1
                    print(f"{name} {arch} {kind}: FAILED: {type(e).__name__}: {e}", flush=True)
                else:
                    pair[kind] = float(f"{worst:.1e}")
                    proofs[name] |= {"adapter": adapter, "date": datetime.date.today().isoformat()}
                    print(f"{name} {arch} {kind}: {worst:.1e}", flush=True)
                PROOFS.write_text(json.dumps(proofs, indent=1, sort_keys=True) + "\n")
        finally:
            await device.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
