"""Writes tests/corpus/: malformed GGUF files, each wrong in one way, and manifest.json saying how; and
tests/fuzz_seeds/: small files that are right, for the fuzzer to begin with.

    python tests/make_corpus.py            # writes the files; the same bytes every time

Everything is packed by hand from the specification; neither pagelm nor the `gguf` package is used. Each
case states what must happen: the stage that refuses (reading the header, the hyper-parameters, the
tensors, the tokenizer), the type of the error, the field that it names and the byte where it was read.
`source` says where the kind of damage is known from: a CVE, a case of llama.cpp's tests/test-gguf.cpp, an
issue of llama.cpp, or "own".
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus_case import Case
from corpus_models import hparams_cases, tensors_cases, tokenizer_cases
from raw_gguf import (
    ARR,
    BOOL,
    CODES,
    F32,
    F64,
    STR,
    T_F16,
    T_Q4_0,
    T_Q8_0,
    U8,
    U32,
    U64,
    File,
    Tensor,
    array,
    llama,
    one,
    table,
    text,
)

CORPUS = Path(__file__).parent / "corpus"
SEEDS = Path(__file__).parent / "fuzz_seeds"


def gguf(name: str, source: str, field: str, f: File, **how: Any) -> Case:
    """A file that the parser refuses at `field`."""
    shift = how.pop("shift", 0)
    where = how.pop("where", field)
    data = f.data(**how)
    return Case(name, source, "gguf", "GgufError", field, data, f.at[where] + shift)


def header_cases() -> Iterator[Case]:
    good = one()
    whole = good.data()
    test = "test-gguf.cpp HEADER"
    yield Case("empty", test, "gguf", "GgufError", "header.magic", b"", 0)
    yield Case("magic-cut", "own", "gguf", "GgufError", "header.magic", b"GGU", 0)
    yield gguf("magic-bad", test, "header.magic", one(magic=b"GGUX"))
    yield gguf("magic-ggml", "own", "header.magic", one(magic=b"lmgg"))
    yield gguf("magic-reversed", "own", "header.magic", one(magic=b"FUGG"))
    yield Case("web-page", "own", "gguf", "GgufError", "header.magic", b"<!doctype html>\n<p>404</p>\n", 0)
    yield Case("zip", "own", "gguf", "GgufError", "header.magic", b"PK\3\4" + bytes(26), 0)
    pointer = b"version https://git-lfs.github.com/spec/v1\nsize 98362432\n"
    yield Case("lfs-pointer", "own", "gguf", "GgufError", "header.magic", pointer, 0)
    yield gguf("version-0", test, "header.version", one(version=0))
    yield gguf("version-1", test + "; CVE-2025-66959", "header.version", one(version=1))
    yield gguf("version-4", test, "header.version", one(version=4))
    yield gguf("version-big-endian", test, "header.version", one(order=">"))
    yield gguf("version-big-endian-2", "own", "header.version", one(order=">", version=2))
    yield gguf("version-cut", "CVE-2024-39720", "header.version", good, cut=7)
    yield gguf("n-tensors-cut", "CVE-2024-39720", "header.n_tensors", good, cut=15)
    yield gguf("n-kv-cut", "CVE-2024-39720", "header.n_kv", good, cut=23)
    for label, n in {"max": 2**64 - 1, "negative": 2**63, "2e60": 2**60, "mem-wrap": 2**64 // 88}.items():
        cve = "CVE-2024-21836" if label != "mem-wrap" else "CVE-2026-27940; MEM_SIZE_OVERFLOW"
        yield gguf(f"n-tensors-{label}", f"{test} bad n_tensors; {cve}", "header.n_tensors", one(n_tensors=n))
    for label, n in {"max": 2**64 - 1, "negative": 2**63, "2e60": 2**60, "wrap": 2**64 // 48 + 1}.items():
        yield gguf(f"n-kv-{label}", f"{test} bad n_kv; CVE-2024-23605", "header.n_kv", one(n_kv=n))
    yield gguf("n-kv-more-than-bytes", "own", "header.n_kv", one(n_kv=100))
    yield gguf("n-tensors-more-than-bytes", "own", "header.n_tensors", one(n_tensors=100))
    # Enough bytes for two shortest entries, but there is one.
    f = one(STR, text("some text that is long enough"), n_kv=2)
    yield Case("n-kv-one-too-many", "own", "gguf", "GgufError", "kv[1].key.length", f.data(), len(f.data()))
    assert len(whole) == f.at["header.n_kv"] + 8 + 8 + 1 + 4 + 4


def kv_cases() -> Iterator[Case]:
    test = "test-gguf.cpp KV"
    pad = bytes(16)
    for label, n in {"2e60": 2**60, "max": 2**64 - 1, "wrap": 2**64 - 8, "65536": 65536}.items():
        source = f"{test} bad key size; CVE-2024-23496"
        raw = struct.pack("<Q", n) + b"k"
        yield gguf(f"key-length-{label}", source, "kv[0].key.length", one(key=raw), trailing=pad)
    f = one(key=struct.pack("<Q", 60) + b"k")
    yield gguf("key-past-end", "own", "kv[0].key.length", f, trailing=pad)
    yield gguf("key-empty", f"{test} empty key; llama.cpp #24884", "kv[0].key", one(key=text(b"")))
    yield gguf("key-not-utf8", "own", "kv[0].key", one(key=text(b"ab\xff")), shift=10)
    yield gguf("key-not-printable", "own", "kv[0].key", one(key=text(b"a\nb")), shift=8)
    f = File(kv={("k", 0): (U32, bytes(4)), ("k", 1): (U32, bytes(4))})
    yield gguf("key-twice", f"{test} duplicate key", "kv[1].key", f)
    for kind in (13, 255, 2**31, 2**32 - 1):
        yield gguf(f"value-type-{kind}", f"{test} bad type", "metadata k.type", one(kind), trailing=pad)
    for label, n in {"2e60": 2**60, "max": 2**64 - 1, "wrap": 2**64 - 9}.items():
        f = one(STR, text("abc", n))
        source = "CVE-2024-23496; CVE-2025-66960"
        yield gguf(f"string-length-{label}", source, "metadata k.length", f, trailing=pad)
    yield gguf("string-past-end", "CVE-2025-66960", "metadata k.length", one(STR, text("abc", 4)))
    yield gguf("string-length-cut", "own", "metadata k.length", one(STR, b"\1\0\0"))
    yield gguf("scalar-cut", "CVE-2024-39720", "metadata k", one(U64, bytes(7)))
    yield gguf("bool-2", "own", "metadata k", one(BOOL, b"\2"))
    yield gguf("bool-255-in-array", "own", "metadata k", one(ARR, array(BOOL, [0, 1, 255])), shift=14)


def array_cases() -> Iterator[Case]:
    f = one(ARR, array(ARR, b"") + array(U8, b""))
    yield gguf("array-nested", "gguf-py F001", "metadata k.element_type", f)
    deep = b"".join(struct.pack("<IQ", ARR, 1) for _ in range(4000))
    yield gguf("array-nested-deep", "gguf-py F001", "metadata k.element_type", one(ARR, deep))
    for kind in (13, 2**32 - 1):
        f = one(ARR, struct.pack("<IQ", kind, 1) + bytes(8))
        yield gguf(f"array-type-{kind}", "test-gguf.cpp KV bad type", "metadata k.element_type", f)
    for label, kind in {"u8": U8, "u32": U32, "f64": F64, "bool": BOOL, "string": STR}.items():
        for name, n in {"2e60": 2**60, "max": 2**64 - 1}.items():
            f = one(ARR, array(kind, [], n) + bytes(64))
            source = "CVE-2024-21825; CVE-2025-0315"
            yield gguf(f"array-{label}-{name}", source, "metadata k.count", f)
    f = one(ARR, array(U64, [], 2**61 + 1) + bytes(64))
    yield gguf("array-u64-wrap", "CVE-2024-21825", "metadata k.count", f)
    yield gguf("array-one-too-many", "own", "metadata k.count", one(ARR, array(U32, [1, 2], 3)))
    yield gguf("array-count-cut", "CVE-2024-39720", "metadata k.count", one(ARR, struct.pack("<I", U8)))
    f = one(ARR, array(STR, ["a", "b"], 3) + bytes(7))
    yield gguf(
        "strings-one-too-many", "own", "metadata k[2].length", f, where="metadata k.elements", shift=18
    )
    for label, n in {"2e60": 2**60, "max": 2**64 - 1, "negative": 2**63, "int-max": 2**31 - 1}.items():
        f = one(ARR, array(STR, ["a"], 2) + text("bc", n))
        source = "CVE-2025-49847; CVE-2025-52566"
        name = f"token-length-{label}"
        yield gguf(name, source, "metadata k[1].length", f, where="metadata k.elements", shift=9)


def alignment_cases() -> Iterator[Case]:
    test = "test-gguf.cpp KV bad align; CVE-2025-0317"
    key = "general.alignment"
    for n in (0, 3, 2**31, 2**21, 2**32 - 1):
        f = one(U32, struct.pack("<I", n), key)
        yield gguf(f"alignment-{n}", test, f"metadata {key}", f)
    f = one(U64, struct.pack("<Q", 32), key)
    yield gguf("alignment-u64", "test-gguf.cpp KV wrong-type align", f"metadata {key}", f)
    f = one(F32, struct.pack("<f", 32), key)
    yield gguf("alignment-f32", "test-gguf.cpp KV wrong-type align", f"metadata {key}", f)
    f = one(STR, text("32"), key)
    yield gguf("alignment-string", "test-gguf.cpp KV wrong-type align", f"metadata {key}", f)
    # The file says 64, the offsets were made with 32.
    f = table(Tensor("a", (8,)), Tensor("b", (8,)), kv={key: (U32, struct.pack("<I", 64))})
    source = "test-gguf.cpp TENSORS inconsistent align"
    yield gguf("alignment-inconsistent", source, "tensor b.offset", f, trailing=bytes(64))


def tensor_cases() -> Iterator[Case]:
    test = "test-gguf.cpp TENSORS"
    pad = bytes(64)
    source = f"{test} bad name size; CVE-2024-21802"
    for label, n in {"65": 65, "2e60": 2**60, "max": 2**64 - 1}.items():
        f = table(Tensor("t" * 65, (1,), name_length=n))
        yield gguf(f"tensor-name-length-{label}", source, "tensor[0].name.length", f)
    f = table(Tensor("", (1,)))
    yield gguf("tensor-name-empty", "own", "tensor[0].name", f, trailing=pad)
    f = table(Tensor(b"a\xc3", (1,)))
    yield gguf("tensor-name-not-utf8", "own", "tensor[0].name", f, trailing=pad, shift=9)
    f = table(Tensor("a\x1b[2J", (1,)))
    yield gguf("tensor-name-not-printable", "own", "tensor[0].name", f, trailing=pad, shift=8)
    f = table(Tensor("a", (1,)), Tensor("a", (1,)))
    yield gguf("tensor-twice", f"{test} duplicate name", "tensor[1].name", f)
    for n in (0, 5, 2**31, 2**32 - 1):
        f = table(Tensor("a", (1, 1), n_dims=n))
        source = f"{test} bad n_dims; CVE-2024-21802; gguf-py out of memory"
        yield gguf(f"tensor-n-dims-{n}", source, "tensor a.n_dims", f, trailing=pad)
    for label, dims in {
        "negative": (2**63,),
        "max": (2**64 - 1,),
        "product-wraps": (2**32, 2**32),
        "product-wraps-to-4": (2**62, 4, 1, 4),
        "hidden-by-zero": (2**40, 2**40, 0),
        "past-2e53": (2**53,),
        "pad-wraps": (2**62 - 1,),
    }.items():
        f = table(Tensor("a", dims, nbytes=4))
        source = f"{test} bad shape, ne too big, nbytes pad wrap; CVE-2026-33298"
        yield gguf(f"tensor-shape-{label}", source, "tensor a.shape", f, trailing=pad)
    f = table(Tensor("a", (2**52,), nbytes=4))
    yield gguf("tensor-nbytes-past-2e53", f"{test} nbytes too big", "tensor a.offset", f, trailing=pad)
    for i in range(4):
        dims = tuple(2**20 if j == i else 1 for j in range(4))
        f = table(Tensor("a", dims, nbytes=4))
        yield gguf(f"tensor-dim-{i}-past-data", "CVE-2026-7482", "tensor a.data", f)
    for kind in (4, 5, 31, 36, 38, 40, 255, 2**31, 2**32 - 1):
        f = table(Tensor("a", (32,), kind))
        source = f"{test} bad type; 53-byte division by zero"
        yield gguf(f"tensor-type-{kind}", source, "tensor a.type", f)
    for dims in ((31,), (33, 2), (1,)):
        f = table(Tensor("a", dims, T_Q8_0, nbytes=68))
        yield gguf(f"tensor-row-of-{dims[0]}-q8-0", "own", "tensor a.shape", f)
    f = table(Tensor("a", (16, 2), T_Q4_0, nbytes=36))
    yield gguf("tensor-row-of-half-a-block", "own", "tensor a.shape", f)


def offset_cases() -> Iterator[Case]:
    test = "test-gguf.cpp TENSORS bad offset"
    for label, offset in {
        "unaligned": 33,
        "aliased": 0,
        "gap": 64,
        "2e53": 2**53,
        "max": 2**64 - 1,
        "wraps": 2**64 - 32,
    }.items():
        f = table(Tensor("a", (8,)), Tensor("b", (8,), offset=offset))
        source = test + ("; gguf-py F004" if label in ("aliased", "overlap") else "")
        yield gguf(f"offset-{label}", source, "tensor b.offset", f, trailing=bytes(64))
    f = table(Tensor("a", (64,)), Tensor("b", (64,), offset=32))
    yield gguf("offset-overlap", test + "; gguf-py F004", "tensor b.offset", f)
    f = table(Tensor("a", (8,), offset=32))
    yield gguf("offset-first-not-0", test, "tensor a.offset", f, trailing=bytes(64))
    f = table(Tensor("b", (8,), offset=32), Tensor("a", (8,), offset=0))
    yield gguf("offset-swapped", test, "tensor b.offset", f)
    f = table(Tensor("a", (8,)), Tensor("b", (8,)))
    whole = len(f.data())
    source = "test-gguf.cpp DATA not enough"
    yield gguf("data-one-byte-short", source, "tensor b.data", f, cut=whole - 1)
    yield gguf("data-second-missing", source, "tensor b.data", f, cut=whole - 32)
    yield gguf("data-missing", source, "tensor a.data", f, fill=False)
    f = table(Tensor("a" * 20, (8,)), Tensor("b" * 20, (8,)))
    f.data()  # fills f.at
    cut = f.at[f"tensor {'b' * 20}.type"] + 2
    yield gguf("table-cut", "CVE-2024-12055", f"tensor {'b' * 20}.type", f, cut=cut)


def cases() -> list[Case]:
    makers = (header_cases, kv_cases, array_cases, alignment_cases, tensor_cases, offset_cases)
    makers += (hparams_cases, tensors_cases, tokenizer_cases)
    found = [case for maker in makers for case in maker()]
    names = [case.name for case in found]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    return found


def manifest(found: list[Case]) -> str:
    rows = {
        f"{case.name}.gguf": {
            "source": case.source,
            "stage": case.stage,
            "error": case.error,
            "field": case.field,
            "offset": case.offset,
        }
        for case in found
    }
    return json.dumps(rows, indent=1, ensure_ascii=True) + "\n"


def seeds() -> dict[str, bytes]:
    """Small right files that use every value type, several tensor types, both versions."""
    scalars = File()
    for kind in CODES:
        scalars.set(f"scalar.{kind}", kind, 1)
    scalars.set("flag", BOOL, 1).set("text", STR, "Grüße").set("general.alignment", U32, 64)
    arrays = File(version=2)
    for kind in CODES:
        arrays.set(f"array.{kind}", ARR, array(kind, [1, 2, 3]))
    arrays.set("flags", ARR, array(BOOL, [0, 1])).set("empty", ARR, array(U32, []))
    arrays.set("strings", ARR, array(STR, [b"\xff", "", "token"]))
    rows = [Tensor("f32", (3, 2)), Tensor("f16", (5,), T_F16), Tensor("q8", (32, 2), T_Q8_0)]
    rows += [Tensor("q4", (64, 1, 2), T_Q4_0), Tensor("none", (32, 0), T_Q8_0), Tensor("4d", (1, 2, 1, 2))]
    untied = llama()
    untied.tensors.append(Tensor("output.weight", (8, 8), T_F16))
    return {
        "llama.gguf": llama().data(),
        "untied.gguf": untied.data(),
        "scalars.gguf": scalars.data(),
        "arrays.gguf": arrays.data(),
        "tensors.gguf": table(*rows).data(),
        "empty.gguf": File().data(),
    }


def main() -> None:
    found = cases()
    files = {CORPUS / f"{case.name}.gguf": case.data for case in found}
    files[CORPUS / "manifest.json"] = manifest(found).encode()
    files |= {SEEDS / name: data for name, data in seeds().items()}
    for folder in (CORPUS, SEEDS):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            if old not in files:
                old.unlink()
    for path, data in files.items():
        path.write_bytes(data)
    print(f"{len(files)} files, {sum(map(len, files.values()))} bytes")


if __name__ == "__main__":
    main()
