"""The part of the corpus that parses: models whose hyper-parameters, tensors or tokenizer are wrong."""

from collections.abc import Iterator
from typing import Any

from corpus_case import Case
from raw_gguf import (
    ARR,
    BOOL,
    F32,
    I32,
    N_EMBD,
    N_FF,
    N_VOCAB,
    STR,
    T_F16,
    U8,
    U16,
    U32,
    U64,
    VOCAB,
    File,
    Tensor,
    array,
    llama,
    llama_tensor,
)

NAN, INF = float("nan"), float("inf")


def refused(stage: str, error: str, name: str, source: str, field: str, f: File) -> Case:
    data = f.data()
    offset = f.at.get(field) if error == "GgufError" else None
    return Case(name, source, stage, error, field, data, offset)


def hparams_cases() -> Iterator[Case]:
    def arch(name: str, key: str, kind: int, value: Any, source: str = "own", named: str = "") -> Case:
        f = llama().set(key, kind, value)
        return refused("hparams", "ArchError", name, source, named or key, f)

    def wrong(name: str, key: str, kind: int, value: Any, source: str = "own") -> Case:
        f = llama().set(key, kind, value)
        return refused("hparams", "GgufError", name, source, f"metadata {key}", f)

    a = "llama."
    heads, kv = a + "attention.head_count", a + "attention.head_count_kv"
    eps, base = a + "attention.layer_norm_rms_epsilon", a + "rope.freq_base"
    yield arch("arch-unknown", "general.architecture", STR, "mamba", named="'mamba'")
    yield arch("arch-empty", "general.architecture", STR, "", named="''")
    yield wrong("arch-number", "general.architecture", U32, 1)
    for key in ("general.architecture", a + "block_count", a + "embedding_length", eps, heads):
        f = llama().drop(key)
        source = "CVE-2025-0312 (a missing key read as nil)"
        field = f"metadata {key}"
        yield refused("hparams", "GgufError", f"missing-{key.split('.')[-1]}", source, field, f)
    for n in (0, 513, 2**32 - 1):
        source = "CVE-2024-8063" if not n else "llama.cpp #25821"
        yield arch(f"block-count-{n}", a + "block_count", U32, n, source)
    yield arch("embedding-length-0", a + "embedding_length", U32, 0)
    yield arch("feed-forward-length-0", a + "feed_forward_length", U32, 0)
    yield arch("context-length-0", a + "context_length", U32, 0)
    yield arch("context-length-2e40", a + "context_length", U64, 2**40)
    yield wrong("context-length-past-2e53", a + "context_length", U64, 2**53)
    yield wrong("context-length-max", a + "context_length", U64, 2**64 - 1)
    yield wrong("embedding-length-negative", a + "embedding_length", I32, -8)
    yield wrong("embedding-length-float", a + "embedding_length", F32, 8.0)
    yield wrong("embedding-length-string", a + "embedding_length", STR, "8")
    yield wrong("block-count-bool", a + "block_count", BOOL, 1)
    yield arch("head-count-0", heads, U32, 0)
    yield arch("head-count-kv-0", kv, U32, 0)
    yield arch("head-count-kv-above-heads", kv, U32, 4)
    yield arch("head-count-kv-no-divisor", kv, U32, 3, named=kv)
    yield arch("head-count-no-divisor-of-embedding", heads, U32, 3, named=heads)
    yield arch("head-count-per-layer", heads, ARR, array(U32, [2]))
    yield arch("head-count-kv-per-layer", kv, ARR, array(I32, [1]))
    yield arch("feed-forward-length-per-layer", a + "feed_forward_length", ARR, array(U32, [4]))
    yield arch("head-size-odd", a + "attention.key_length", U32, 3, named=a + "attention.key_length")
    yield arch("value-length-differs", a + "attention.value_length", U32, 8)
    for label, x in {"0": 0.0, "negative": -1e-5, "nan": NAN, "inf": INF, "above-1": 2.0}.items():
        yield arch(f"eps-{label}", eps, F32, x)
    for label, x in {"0": 0.0, "negative": -1e4, "nan": NAN, "inf": INF}.items():
        yield arch(f"rope-base-{label}", base, F32, x)
    yield wrong("eps-string", eps, STR, "1e-5")
    yield wrong("eps-array", eps, ARR, array(F32, [1e-5]), "llama.cpp #26690")
    yield arch("rope-dimension-partial", a + "rope.dimension_count", U32, 2)
    yield arch("rope-dimension-0", a + "rope.dimension_count", U32, 0)
    yield arch("rope-scaling-unknown", a + "rope.scaling.type", STR, "dynamic")
    f = llama().set(a + "rope.scaling.type", STR, "yarn").set(a + "rope.scaling.factor", F32, 0.5)
    yield refused("hparams", "ArchError", "rope-scaling-yarn-shortens", "own", a + "rope.scaling.factor", f)
    for label, x in {"negative": -8.0, "nan": NAN, "inf": INF, "1e7": 1e7}.items():
        yield arch(f"rope-scaling-factor-{label}", a + "rope.scaling.factor", F32, x)
    yield wrong("rope-scaling-factor-string", a + "rope.scaling.factor", STR, "8")
    yield arch("rope-scaling-attn-factor-0", a + "rope.scaling.attn_factor", F32, 0.0)
    yield arch("rope-scaling-ext-factor", a + "rope.scaling.yarn_ext_factor", F32, 0.5)
    yield arch("rope-scaling-context-0", a + "rope.scaling.original_context_length", U32, 0)
    yield wrong("window-2e32", a + "attention.sliding_window", U64, 2**32)
    yield wrong("window-string", a + "attention.sliding_window", STR, "16")
    f = llama().set(a + "attention.sliding_window", U32, 4)
    f.set(a + "attention.sliding_window_pattern", ARR, array(BOOL, [1, 0]))
    named = a + "attention.sliding_window_pattern"
    yield refused("hparams", "ArchError", "window-pattern-length", "own", named, f)
    f = llama().set(a + "attention.sliding_window", U32, 4)
    f.set(named, ARR, array(STR, ["yes"]))
    yield refused("hparams", "GgufError", "window-pattern-strings", "own", f"metadata {named}", f)
    yield arch("attention-scale", a + "attention.scale", F32, 0.5)
    yield wrong("rope-scaling-type-number", a + "rope.scaling.type", U32, 0)
    yield arch("experts", a + "expert_count", U32, 1025)
    yield arch("softcap", a + "final_logit_softcapping", F32, 30.0)
    yield arch("not-causal", a + "attention.causal", BOOL, 0)
    yield arch("split-part", "split.count", U16, 3)
    yield arch("adapter", "general.type", STR, "adapter")
    yield arch("vocab-size-other", a + "vocab_size", U32, 9, "CVE-2026-7482")
    yield arch("vocab-size-2e31", a + "vocab_size", U32, 2**31, "no_vocab with a huge vocab_size")
    yield arch("tokens-fewer-than-rows", "tokenizer.ggml.tokens", ARR, array(STR, VOCAB[:-1]))
    yield wrong("tokens-numbers", "tokenizer.ggml.tokens", ARR, array(U32, range(8)), "llama.cpp #24888")
    f = llama_tensor("token_embd.weight", gone=True)
    yield refused("hparams", "ArchError", "embedding-missing", "own", "token_embd.weight", f)
    f = llama_tensor("token_embd.weight", dims=(N_EMBD * N_VOCAB,))
    yield refused("hparams", "ArchError", "embedding-flat", "own", "token_embd.weight", f)
    f = llama_tensor("token_embd.weight", dims=(4, N_VOCAB))
    yield refused("hparams", "ArchError", "embedding-narrow", "own", "token_embd.weight", f)
    f = llama_tensor("token_embd.weight", dims=(N_EMBD, 0))
    yield refused(
        "hparams", "ArchError", "embedding-of-no-rows", "test-gguf.cpp zero dim", "token_embd.weight", f
    )


def tensors_cases() -> Iterator[Case]:
    def bad(name: str, field: str, f: File, source: str = "own") -> Case:
        return refused("tensors", "ArchError", name, source, field, f)

    q, norm = "blk.0.attn_q.weight", "blk.0.attn_norm.weight"
    yield bad("needed-missing", q, llama_tensor(q, gone=True), "CVE-2025-0312")
    yield bad("needed-missing-norm", "output_norm.weight", llama_tensor("output_norm.weight", gone=True))
    up = "blk.0.ffn_up.weight"
    yield bad("needed-shape-transposed", up, llama_tensor(up, dims=(N_FF, N_EMBD)))
    yield bad("needed-shape-3d", q, llama_tensor(q, dims=(8, 8, 1)))
    yield bad("needed-shape-empty", q, llama_tensor(q, dims=(0, 8)), "test-gguf.cpp zero dim")
    yield bad("norm-f16", norm, llama_tensor(norm, kind=T_F16))
    yield bad("norm-2d", norm, llama_tensor(norm, dims=(8, 1)))
    f = llama().set("llama.block_count", U32, 2)
    yield bad("layer-missing", "blk.1.attn_norm.weight", f, "CVE-2025-0312")
    for name in ("blk.0.attn_norm.bias", "blk.0.attn_q_norm.weight", "blk.1.attn_q.weight", "output.scale"):
        f = llama()
        f.tensors.append(Tensor(name, (4,)))
        yield bad(f"unexpected-{name}", name, f)
    for name in ("rope_freqs.weight", "blk.0.attn_q.bias"):  # one element too many
        f = llama()
        f.tensors.append(Tensor(name, (3 if name.startswith("rope") else 9,)))
        yield bad(f"length-of-{name}", name, f)
    f = llama()
    f.tensors += [Tensor("output.weight", (N_EMBD, N_VOCAB)), Tensor("output.bias", (N_VOCAB,))]
    yield bad("unexpected-output.bias", "output.bias", f)
    f = llama()
    f.tensors.append(Tensor("rope_factors_long.weight", (2,)))
    yield bad("rope-factors-short-missing", "rope_factors_short.weight", f)
    f = llama()
    f.tensors.append(Tensor("blk.0.attn_qkv.weight", (N_EMBD, 16)))
    yield bad("fused-and-separate", "blk.0.attn_q.weight", f)
    f = llama()
    f.tensors.append(Tensor("output.weight", (N_EMBD, N_VOCAB - 1)))
    yield bad("output-shape", "output.weight", f)
    for label, kind, nbytes in (("i32", 26, 256), ("i16", 25, 128)):
        f = llama_tensor(q, kind=kind, nbytes=nbytes)
        yield bad(f"needed-type-{label}", q, f)


def tokenizer_cases() -> Iterator[Case]:
    p = "tokenizer.ggml."

    def bad(name: str, key: str, kind: int, value: Any, source: str, named: str = "") -> Case:
        f = llama().set(p + key, kind, value)
        return refused("tokenizer", "TokenizerError", f"tok-{name}", source, named or p + key, f)

    yield bad("scores-length", "scores", ARR, array(F32, [0.0] * 7), "llama.cpp #20735")
    yield bad("type-length", "token_type", ARR, array(I32, [1] * 9), "llama.cpp #20735")
    yield bad("type-floats", "token_type", ARR, array(F32, [1.0] * 8), "llama.cpp #26690, #24888")
    yield bad("type-strings", "token_type", ARR, array(STR, VOCAB), "llama.cpp #26690, #24888")
    for label, kind, n in (("8", U32, 8), ("max", U32, 2**32 - 1), ("negative", I32, -1)):
        yield bad(f"eos-{label}", "eos_token_id", kind, n, "llama.cpp #25475")
        yield bad(f"bos-{label}", "bos_token_id", kind, n, "llama.cpp #25475")
    twice = [*VOCAB[:-1], "ab"]
    yield bad("text-twice", "tokens", ARR, array(STR, twice), "llama.cpp #24885")
    f = llama().drop(p + "bos_token_id").set(p + "add_bos_token", BOOL, 1)
    source = "llama.cpp #24885"
    yield refused("tokenizer", "TokenizerError", "tok-add-bos-without-bos", source, p + "add_bos_token", f)
    yield bad("merge-without-space", "merges", ARR, array(STR, ["ab"]), "own")
    yield bad("merges-numbers", "merges", ARR, array(U32, [1]), "llama.cpp #24888")
    yield bad("pre-unknown", "pre", STR, "of-tomorrow", "own")
    yield bad("model-unknown", "model", STR, "of-tomorrow", "own")
    f = llama().set(p + "model", STR, "plamo2").set(p + "tokens", ARR, array(STR, [*VOCAB[:-1], "<0x-1>"]))
    source = "llama.cpp #25969, #27226 (a byte token <0x-1>)"
    yield refused("tokenizer", "TokenizerError", "tok-plamo2", source, p + "model", f)
    f = llama().set(p + "tokens", ARR, array(STR, [*VOCAB[:-1], "<0x-1>"]))
    f.set(p + "token_type", ARR, array(I32, [3, 3, 1, 1, 1, 1, 1, 6]))
    yield refused("tokenizer", "TokenizerError", "tok-byte-minus-1", source, "<0x-1>", f)
    f = llama().set(p + "model", STR, "t5").set(p + "precompiled_charsmap", ARR, array(U8, b"\1\2"))
    f.set(p + "scores", ARR, array(F32, [0.0] * 8))
    key = p + "precompiled_charsmap"
    yield refused("tokenizer", "TokenizerError", "tok-short-charsmap", "UGM charsmap", key, f)
    yield bad("type-7", "token_type", ARR, array(I32, [3, 3, 7, 1, 1, 1, 1, 1]), "own")
    yield bad("merge-of-no-token", "merges", ARR, array(STR, ["a b", "b q"]), "own")
    f = llama().set(p + "model", STR, "llama")
    yield refused("tokenizer", "TokenizerError", "tok-spm-no-scores", "own", p + "scores", f)
    f = llama().set(p + "model", STR, "llama").set(p + "scores", ARR, array(F32, [0.0] * 7 + [NAN]))
    yield refused("tokenizer", "TokenizerError", "tok-spm-nan-score", "own", p + "scores", f)
    f = llama().set(p + "model", STR, "no_vocab").drop(p + "tokens", p + "merges", p + "token_type")
    yield refused("tokenizer", "TokenizerError", "tok-no-vocab", "no_vocab", p + "model", f)
