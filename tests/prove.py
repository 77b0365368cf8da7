"""Run every architecture in every tensor type, and note how far the GPU is from the numpy oracle.

    python tests/prove.py [--device native|browser] [--arch NAME] [--type NAME]

A tiny random model of each pair (tests/archs) is fed 24 tokens and generates 8. The largest difference of logits, in
units of the largest logit, must be within 1e-5 at every step and all ids equal. What was measured goes into
host/proofs.json, which `pagelm capabilities` and the README's table are made from; a pair that fails is left out
and makes the script end with 1. All pairs on both devices take about an hour on two cores.
"""

import argparse
import asyncio
import datetime
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from archs import MODELS, TinyModel, write
from archs.models import sized

import pagelm
from pagelm.arch import supported
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


@asynccontextmanager
async def opened(device: str, path: Path) -> AsyncIterator[object]:
    if device == "native":
        lm = await pagelm.load(path, n_ctx=N_CTX, tune="off")
        try:
            yield lm
        finally:
            await lm.close()
        return
    from pagelm.host.browser_lm import BrowserLm

    page = await BrowserLm.start(path)
    try:
        await page.load(page.model_url, n_ctx=N_CTX, tune="off")
        yield page
    finally:
        await page.close()


async def difference(device: str, path: Path) -> tuple[float, str]:
    """The largest difference in units of the largest logit, and the adapter. Raises: AssertionError."""
    oracle = Oracle(path, n_ctx=N_CTX)
    ids = np.random.default_rng(5).integers(0, oracle.n_vocab, N_PROMPT).tolist()
    worst = 0.0
    async with opened(device, path) as lm:
        adapter = lm.adapter if isinstance(lm.adapter, dict) else vars_of(lm.adapter)
        want, feed = oracle.forward(ids), ids
        async for token, got in lm.trace(feed, N_GENERATED):
            worst = max(worst, float(np.abs(np.asarray(got) - want).max() / np.abs(want).max()))
            assert worst <= LIMIT, f"off by {worst:.1e} of the largest logit; allowed {LIMIT:g}"
            assert token == int(want.argmax()), f"chose {token}, the oracle {int(want.argmax())}"
            want = oracle.forward([token])
    name = adapter.get("device") or adapter.get("architecture") or adapter.get("description") or ""
    return worst, f"{name} ({adapter.get('backend') or 'webgpu'})"


def vars_of(adapter: object) -> dict[str, str]:
    return {
        name: getattr(adapter, name)
        for name in ("vendor", "architecture", "device", "description", "backend")
    }


def pairs(archs: list[str], kinds: list[str]) -> Iterator[tuple[str, str]]:
    return ((arch, kind) for arch in archs for kind in kinds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("native", "browser"), action="append")
    parser.add_argument("--arch", choices=supported(), action="append")
    parser.add_argument("--type", choices=SUPPORTED, action="append")
    args = parser.parse_args()
    proofs = json.loads(PROOFS.read_text()) if PROOFS.exists() else {}
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        for device in args.device or ("native", "browser"):
            for arch, kind in pairs(args.arch or list(supported()), args.type or list(SUPPORTED)):
                path = write(model_of(arch, kind), Path(tmp) / f"{arch}-{kind}.gguf")
                pair = proofs.setdefault(device, {"pairs": {}})["pairs"].setdefault(arch, {})
                try:
                    worst, adapter = asyncio.run(difference(device, path))
                except Exception as e:
                    pair.pop(kind, None)
                    failed += 1
                    print(f"{device} {arch} {kind}: FAILED: {type(e).__name__}: {e}", flush=True)
                else:
                    pair[kind] = float(f"{worst:.1e}")
                    proofs[device] |= {"adapter": adapter, "date": datetime.date.today().isoformat()}
                    print(f"{device} {arch} {kind}: {worst:.1e}", flush=True)
                finally:
                    path.unlink()
                PROOFS.write_text(json.dumps(proofs, indent=1, sort_keys=True) + "\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
