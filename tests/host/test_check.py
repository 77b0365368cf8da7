"""`check`: agreement is seen, and the first wrong layer and operation is found, whichever it is."""

import asyncio
import json

import numpy as np
import pytest
from click.testing import CliRunner
from fake_lm import (
    NanLm,
    WrongDecodeLm,
    cpu_lm,
    oracle_with_wrong_op,
    oracle_with_wrong_rope,
    oracle_with_wrong_weight,
)
from tiny_gguf import tiny_model

from pagelm.errors import ContextFull, PagelmError, PromptError
from pagelm.host import check as checks
from pagelm.host import cli
from pagelm.host.cpu_lm import CpuLm
from pagelm.host.oracle import Oracle
from pagelm.host.reference import LLAMA_CPP, Case, Reference, check_reference

PROMPTS = ["hello world", "the one and only", "ab"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("check") / "tiny.gguf"
    tiny_model(path, quant="F32", n_layer=5, tied=False)
    return path


def check(lm, path, **options):
    return asyncio.run(checks.check(lm, Oracle(path), PROMPTS, steps=4, **options))


def test_device_that_agrees_is_ok(tiny):
    report = check(cpu_lm(tiny), tiny)
    assert report["ok"] and report["ids_equal"]
    assert report["first_bad"] is None
    assert report["max_rel_logit_diff"] == 0.0
    assert report["prompts"] == 3 and report["steps"] == 4
    assert [case["prompt"] for case in report["cases"]] == PROMPTS
    assert all(len(case["ids"]) == 4 for case in report["cases"])


@pytest.mark.parametrize(
    ("tensor", "layer", "op"),
    [
        ("token_embd.weight", None, "embed"),
        ("blk.0.attn_norm.weight", 0, "attn_norm"),
        ("blk.0.attn_q.weight", 0, "attn_q"),
        ("blk.2.attn_k.weight", 2, "attn_k"),
        ("blk.4.attn_v.weight", 4, "attn_v"),
        ("blk.1.attn_output.weight", 1, "attn_output"),
        ("blk.3.ffn_norm.weight", 3, "ffn_norm"),
        ("blk.2.ffn_gate.weight", 2, "ffn_gate"),
        ("blk.2.ffn_up.weight", 2, "ffn_up"),
        ("blk.4.ffn_down.weight", 4, "ffn_down"),
        ("output_norm.weight", None, "output_norm"),
        ("output.weight", None, "output"),
    ],
)
def test_wrong_tensor_is_found_at_its_layer_and_operation(tiny, tensor, layer, op):
    if tensor == "token_embd.weight":  # the row must be one that a prompt uses
        oracle = Oracle(tiny)
        oracle.weights._decoded[tensor] = oracle.weights.tensor(tensor) * np.float32(1.01)
    else:
        oracle = oracle_with_wrong_weight(tiny, tensor)
    report = check(cpu_lm(tiny, oracle=oracle), tiny)
    assert not report["ok"]
    assert (report["first_bad"]["layer"], report["first_bad"]["op"]) == (layer, op)
    assert report["first_bad"]["rel"] > checks.MAX_REL


@pytest.mark.parametrize(
    ("function", "op"), [("attention_values", "attn_values"), ("swiglu", "swiglu")], ids=["values", "swiglu"]
)
@pytest.mark.parametrize("layer", range(5))
def test_wrong_operation_is_found_in_every_layer(tiny, monkeypatch, function, op, layer):
    wrong = oracle_with_wrong_op(tiny, function, layer, monkeypatch)
    report = check(cpu_lm(tiny, oracle=wrong), tiny)
    assert (report["first_bad"]["layer"], report["first_bad"]["op"]) == (layer, op)


def test_wrong_rope_is_found_in_the_first_layer(tiny):
    report = check(cpu_lm(tiny, oracle=oracle_with_wrong_rope(tiny)), tiny)
    assert (report["first_bad"]["layer"], report["first_bad"]["op"]) == (0, "rope_q")


def test_error_below_the_tolerance_is_ok_and_above_it_is_not(tiny):
    wrong = oracle_with_wrong_weight(tiny, "output.weight", by=1e-3)
    rel = check(cpu_lm(tiny, oracle=wrong), tiny)["max_rel_logit_diff"]
    assert rel > 0
    assert check(cpu_lm(tiny, oracle=wrong), tiny, rule=checks.Rule("f32", rel * 1.01))["ok"]
    assert not check(cpu_lm(tiny, oracle=wrong), tiny, rule=checks.Rule("f32", rel * 0.99))["ok"]


def test_other_ids_are_not_ok_however_small_the_difference(tiny):
    class OtherIds(type(cpu_lm(tiny))):
        async def trace(self, prompt_ids, n, forced=None):
            async for token, logits in super().trace(prompt_ids, n, forced):
                yield (token + 1) % len(logits), logits

    report = check(cpu_lm(tiny, OtherIds), tiny)
    assert not report["ids_equal"] and not report["ok"]


class SecondBest(CpuLm):
    """Chooses the runner-up at the second step; its logits are the oracle's."""

    async def trace(self, prompt_ids, n, forced=None):
        seen = 0
        async for token, logits in super().trace(prompt_ids, n, forced):
            seen += 1
            yield int(logits.argsort()[-2]) if seen == 2 else token, logits


def test_other_ids_are_ok_in_near_ties_alone_and_where_the_rule_allows_them(tiny):
    lines, runner_up = [], cpu_lm(tiny, SecondBest)
    margin = max(case["id_margin"] for case in check(runner_up, tiny)["cases"])
    assert 0 < margin < float("inf")
    near = check(runner_up, tiny, rule=checks.Rule("f16", 1.0, near_tie=margin * 1.01), say=lines.append)
    assert near["ok"] and not near["ids_equal"] and near["near_ties"] >= len(PROMPTS)
    assert lines[1].split()[2] == "near"
    assert lines[-2].startswith(f"near-ties at {near['near_ties']} steps") and f"{margin:.2e}" in lines[-2]
    assert "(allowed 1 with an f16 cache)" in lines[-1]
    assert (near["cache_type"], near["tolerance"]) == ("f16", 1.0)
    far = check(runner_up, tiny, rule=checks.Rule("f16", 1.0, near_tie=margin))
    assert not far["ok"] and far["near_ties"] < near["near_ties"]
    assert not check(runner_up, tiny, rule=checks.Rule("f32", 1.0))["ok"]


def test_margins_by_hand():
    want = np.float32([1, -4, 2])
    assert checks.rel_margin(want, 0) == 0.25 and checks.rel_margin(want, 2) == 0
    assert checks.rel_margin(np.float32([0, 0]), 1) == float("inf")
    assert checks.rel_margin(np.float32([1, np.nan]), 0) == float("inf")


def test_rules_are_those_of_the_cache():
    assert checks.RULES == {"f32": checks.Rule("f32", 1e-5, 0.0), "f16": checks.Rule("f16", 2e-3, 2e-3)}


def test_nan_logits_count_as_infinitely_wrong(tiny):
    report = check(cpu_lm(tiny, NanLm), tiny)
    assert not report["ok"] and not report["ids_equal"]
    assert report["max_rel_logit_diff"] == float("inf")


def test_error_in_decoding_alone_is_told_from_one_in_the_prompt(tiny):
    report = check(cpu_lm(tiny, WrongDecodeLm), tiny)
    assert report["first_bad"]["op"] == "decode"
    assert report["first_bad"]["layer"] is None


def test_device_that_stops_early_does_not_pass(tiny):
    lm = cpu_lm(tiny, oracle=Oracle(tiny, n_ctx=10))
    with pytest.raises(PagelmError, match="of 12 steps; the context is too small"):
        asyncio.run(checks.check(lm, Oracle(tiny), ["ab"], steps=12))


@pytest.mark.parametrize("n_ctx", [12, 13, 40])
def test_prompt_that_leaves_no_room_is_cut_to_what_does(tiny, n_ctx):
    lines = []
    lm = cpu_lm(tiny, oracle=Oracle(tiny, n_ctx=n_ctx))
    report = asyncio.run(
        checks.check(lm, Oracle(tiny, n_ctx=n_ctx), ["ab", "x" * 100], steps=12, say=lines.append)
    )
    assert report["ok"] and [len(case["ids"]) for case in report["cases"]] == [12, 12]
    short, long = report["cases"]
    assert (long["prompt_tokens"], long["whole_tokens"]) == (n_ctx - 11, 100)
    assert short["prompt_tokens"] == min(short["whole_tokens"], n_ctx - 11)
    assert lines[2].endswith("(cut: it has 100 tokens)")


def test_wrong_step_after_a_cut_prompt_is_found(tiny):
    wrong = oracle_with_wrong_weight(tiny, "blk.2.ffn_up.weight")
    wrong.n_ctx = 20
    report = asyncio.run(
        checks.check(cpu_lm(tiny, oracle=wrong), Oracle(tiny, n_ctx=20), ["x" * 99], steps=12)
    )
    assert (report["first_bad"]["layer"], report["first_bad"]["op"]) == (2, "ffn_up")


@pytest.mark.gpu
def test_built_in_prompts_fit_a_model_with_a_small_context(tmp_path):
    path = tmp_path / "small.gguf"
    tiny_model(path, n_ctx_train=64)
    result = CliRunner().invoke(cli.cli, ["check", str(path), "--device", "native", "--json", "--quiet"])
    report = json.loads(result.stdout)
    assert result.exit_code == 0 and report["ok"]
    assert report["prompts"] == len(checks.PROMPTS) and report["steps"] == 32
    assert all(len(case["ids"]) == 32 for case in report["cases"])


def test_steps_that_no_prompt_leaves_room_for_are_refused(tiny):
    with pytest.raises(ContextFull, match="13 steps do not fit the context of 12 tokens; allowed: 1 to 12"):
        asyncio.run(checks.check(cpu_lm(tiny), Oracle(tiny, n_ctx=12), ["ab"], steps=13))


def test_prompt_without_tokens_is_named(tiny):
    with pytest.raises(PromptError, match="prompt '': the prompt is empty"):
        asyncio.run(checks.check(cpu_lm(tiny), Oracle(tiny), ["ab", ""], steps=3))


def test_reference_case_that_does_not_fit_is_named(tiny):
    case = Case("long one", (3,) * 20, (4,), ((3, -1.0),), (0.1,))
    reference = Reference("file", "llama.cpp", {}, LLAMA_CPP, (case,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pagelm.host.reference.load_reference", lambda path: reference)
        with pytest.raises(ContextFull, match="long one: 20 tokens .* do not fit the context of 16"):
            asyncio.run(check_reference(cpu_lm(tiny, oracle=Oracle(tiny, n_ctx=16)), "file"))


def test_bisection_knows_the_steps_of_the_forward_passes(tiny):
    """All of the names that it looks for are labels, of the oracle and of a device."""
    labels = [label.rpartition(".")[2] for label in Oracle(tiny).labels()]
    assert set(checks.APART) <= set(labels)
    assert set(checks.ENDS) - {"embed_positions"} <= set(labels)


def test_relative_difference_by_hand():
    assert checks.rel_diff(np.float32([1, -4]), np.float32([1.5, -4])) == 0.125
    assert checks.rel_diff(np.float32([0, 0]), np.float32([0, 0])) == 0.0
    assert checks.rel_diff(np.float32([1e-9, 0]), np.float32([0, 0])) == float("inf")
    assert checks.rel_diff(np.float32([np.nan]), np.float32([1])) == float("inf")
    assert checks.rel_diff(np.float32([1]), np.float32([np.nan])) == float("inf")
    assert checks.rel_diff(np.float32([1]), np.float32([1, 2])) == float("inf")


def test_built_in_prompts_are_many_and_varied():
    assert len(set(checks.PROMPTS)) == len(checks.PROMPTS) >= 10
    assert max(map(len, checks.PROMPTS)) > 200
    assert any(not p.isascii() for p in checks.PROMPTS)
    assert any("<|im_start|>" in p for p in checks.PROMPTS)


def test_prompts_come_one_a_line_or_as_a_json_list(tmp_path):
    file = tmp_path / "prompts"
    file.write_text("one\n\ntwo two\n")
    assert checks.read_prompts(file) == ["one", "two two"]
    file.write_text('["one\\nline", "two"]')
    assert checks.read_prompts(file) == ["one\nline", "two"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\n\n", "no prompts"),
        (b"[1]", "must be a string"),
        (b"[", "but is none"),
        (b"one\n\xff", "not UTF-8 text: byte 0xff at offset 4"),
        (None, "cannot be read"),
    ],
)
def test_prompts_file_that_cannot_be_used_is_refused(tmp_path, text, message):
    file = tmp_path / "prompts"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(PagelmError, match=message):
        checks.read_prompts(file)


def test_experts_with_an_f16_cache_are_held_to_no_rule():
    assert checks.rule_for("f16", 0).cache_type == "f16" and checks.rule_for("f32", 8).cache_type == "f32"
    with pytest.raises(PagelmError, match="cache of f16 a model with experts cannot be held to a rule"):
        checks.rule_for("f16", 8)
