"""`inspect`: the header's content, readable and short, and what the model will cost."""

import asyncio
import re

import pytest
from split_gguf import write_parts
from tiny_gguf import tiny_model

from pagelm.errors import GgufError, SourceError
from pagelm.host.inspect import as_text, inspect, read_header


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("inspect") / "tiny.gguf"
    tiny_model(path, quant={"ffn": "Q4_0", "": "Q8_0"}, metadata={"test.nan": float("nan")})
    return path


def report_on(path, **options):
    return asyncio.run(inspect(str(path), **options))


def test_tensors_are_listed_with_shape_type_and_place_in_the_file(tiny):
    report = report_on(tiny)
    first = report["tensors"][0]
    assert first["name"] == "token_embd.weight"
    assert first["shape"] == [320, 64]
    assert first["type"] == "Q8_0"
    assert first["nbytes"] == 320 * 64 // 32 * 34
    assert first["offset"] == report["file"]["data_offset"]
    assert {t["type"] for t in report["tensors"] if "ffn_up" in t["name"]} == {"Q4_0"}
    assert report["file"]["bytes"] == tiny.stat().st_size


def test_split_model_is_shown_as_one_with_its_parts(tiny, tmp_path):
    paths = write_parts(tmp_path, tiny.read_bytes(), [0, 7])
    whole, report = report_on(tiny), report_on(paths[2])
    file = report["file"]
    assert file["name"] == str(paths[0]) and file["bytes"] == sum(path.stat().st_size for path in paths)
    assert [part["name"] for part in file["parts"]] == [str(path) for path in paths]
    assert [part["bytes"] for part in file["parts"]] == [path.stat().st_size for path in paths]
    assert [t["part"] for t in report["tensors"]] == [1] * 7 + [2] * 13
    assert report["plan"] == whole["plan"]
    for mine, its in zip(report["tensors"], whole["tensors"], strict=True):
        data = paths[mine["part"]].read_bytes()[mine["offset"] :][: mine["nbytes"]]
        assert data == tiny.read_bytes()[its["offset"] :][: its["nbytes"]]
    text = as_text(report)
    assert "\nparts (3)\n" in text
    for path, n in zip(paths, (0, 7, 13), strict=True):
        assert re.search(rf"  {re.escape(str(path))}  +{n} tensors  +{path.stat().st_size:,} bytes\n", text)
    assert "part" not in whole["tensors"][0] and "parts" not in whole["file"]


def test_long_arrays_are_shortened_unless_asked_for(tiny):
    short = report_on(tiny)["metadata"]["tokenizer.ggml.tokens"]
    full = report_on(tiny, full=True)["metadata"]["tokenizer.ggml.tokens"]
    assert short == {"length": 320, "first": full[:8]}
    assert len(full) == 320 and full[0] == "<|endoftext|>"


def test_plan_adds_up_and_follows_the_context(tiny):
    plan = report_on(tiny, n_ctx=100)["plan"]
    parts = ("weights", "kv_cache", "activations", "tables", "staging")
    assert plan["total"] == sum(plan[part] for part in parts)
    assert plan["kv_cache"] == 2 * 2 * 100 * 32 * 4  # keys and values, layers, positions, n_embd_kv, f32
    assert report_on(tiny, n_ctx=100, cache_type="f16")["plan"]["kv_cache"] == plan["kv_cache"] // 2
    assert report_on(tiny)["plan"]["n_ctx"] == 256  # the model's own


def test_plan_that_does_not_fit_says_so_and_the_rest_is_shown(tiny):
    report = report_on(tiny, memory_budget=1000)
    assert report["plan"]["error"].startswith("LimitError: the model needs")
    assert report["tensors"]


def test_model_that_cannot_be_run_can_be_inspected(tmp_path):
    path = tmp_path / "other.gguf"
    tiny_model(path, arch="mamba")
    report = report_on(path)
    assert "mamba" in report["plan"]["error"]
    assert report["metadata"]["general.architecture"] == "mamba"
    assert "cannot be run: ArchError" in as_text(report)


def test_text_is_a_table_of_every_key_and_tensor(tiny):
    report = report_on(tiny)
    text = as_text(report)
    for name in [*report["metadata"], *(t["name"] for t in report["tensors"]), *report["plan"]]:
        assert f"  {name} " in text
    assert "320 values: '<|endoftext|>'" in text
    assert "320 × 64" in text
    assert max(map(len, text.splitlines())) < 200


def test_file_that_is_no_gguf_is_refused(tmp_path):
    path = tmp_path / "x.gguf"
    path.write_bytes(b"<!doctype html>" * 10)
    with pytest.raises(GgufError, match="web page"):
        asyncio.run(read_header(str(path)))
    with pytest.raises(SourceError):
        asyncio.run(read_header(str(tmp_path / "nothing.gguf")))
