"""`pagelm check` as a command: what it prints, and its exit code."""

import json

import pytest
from command import invoke
from fake_lm import cpu_lm, oracle_with_wrong_weight

import pagelm
from pagelm.host import check as checks
from pagelm.host.oracle.ops import log_softmax


def test_check_that_fails_exits_1_and_names_layer_and_op(monkeypatch, tiny):
    wrong = cpu_lm(tiny, oracle=oracle_with_wrong_weight(tiny, "blk.1.ffn_up.weight"))

    async def open_wrong(device, model, **options):
        return wrong

    monkeypatch.setattr("pagelm.host.options.open_lm", open_wrong)
    result = invoke("check", tiny, "--json", "--max-tokens", "3")
    got = json.loads(result.stdout)
    assert result.exit_code == 1
    assert got.keys() >= {"ok", "prompts", "max_rel_logit_diff", "ids_equal", "first_bad"}
    assert got["ok"] is False and got["prompts"] >= 10
    assert got["first_bad"]["layer"] == 1 and got["first_bad"]["op"] == "ffn_up"
    assert got["first_bad"]["rel"] > 1e-5
    assert "WRONG" in result.stderr


def test_check_that_passes_exits_0_and_prints_a_table(monkeypatch, tiny, tmp_path):
    right = cpu_lm(tiny)

    async def open_right(device, model, **options):
        return right

    monkeypatch.setattr("pagelm.host.options.open_lm", open_right)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("hello\nworld\n")
    result = invoke("check", tiny, "--prompts", str(prompts), "--max-tokens", "3")
    assert result.exit_code == 0
    assert "'hello'" in result.stdout and "'world'" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("ok: largest difference 0.00e+00")


def reference_file(path, tiny, wrong_steps=0):
    """A file of one case of 20 steps as the oracle itself computes it, some of its choices replaced."""
    oracle = checks.Oracle(tiny)
    ids, greedy, top2 = [5, 6, 7], [], []
    logits = oracle.forward(ids)
    top10 = [[int(i), float(p)] for i, p in enumerate(log_softmax(logits)[:10])]
    for step in range(20):
        order = logits.argsort()
        greedy.append(int(order[-2 if step < wrong_steps else -1]))
        top2.append([-0.1, 3, -0.2])
        logits = oracle.forward(greedy[-1:])
    case = {"name": "one", "ids": ids, "greedy": greedy, "firstTop10": top10, "top2": top2}
    path.write_text(json.dumps({"model": {}, "cases": [case]}))
    return str(path)


@pytest.mark.parametrize(("wrong_steps", "code"), [(0, 0), (1, 0), (2, 1)])
def test_check_against_a_reference_exits_1_below_95_percent(tiny, tmp_path, wrong_steps, code):
    file = reference_file(tmp_path / "reference.json", tiny, wrong_steps)
    result = invoke("check", tiny, "--device", "cpu", "--reference", file, "--json", "--quiet")
    got = json.loads(result.stdout)
    assert result.exit_code == code
    assert got.keys() >= {"steps", "agree", "worst_margin", "max_logprob_diff", "cases"}
    assert (got["steps"], got["agree"], len(got["cases"])) == (20, 20 - wrong_steps, 1)
    assert got["worst_margin"] == pytest.approx(0.1 if wrong_steps else 0)


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (["--exact"], ("cpu", True)),
        (["--exact", "--device", "cpu"], ("cpu", True)),
        (["--device", "cpu"], ("cpu", False)),
        (["--device", "native"], ("native", False)),
        ([], ("browser", False)),
    ],
)
def test_check_against_a_reference_opens_the_device_asked_for(tiny, tmp_path, monkeypatch, args, where):
    opened = []

    async def note(device, model, **options):
        opened.append((device, options["exact"]))
        raise pagelm.PagelmError("that is enough")

    monkeypatch.setattr("pagelm.host.options.open_lm", note)
    file = reference_file(tmp_path / "reference.json", tiny)
    assert invoke("check", tiny, "--reference", file, *args).exit_code == 2
    assert opened == [where]


@pytest.mark.parametrize("device", ["browser", "native", "cpu"])
def test_reference_file_is_looked_at_before_anything_is_loaded(fake, device, tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    result = invoke("check", fake.model, "--device", device, "--reference", str(tmp_path / "bad.json"))
    assert result.exit_code == 2 and "cases is missing" in result.stderr
    assert fake.opened_with == []
