"""`pagelm tune`, and --tune of the other commands."""

import json

import pytest
from command import invoke

from pagelm.adapt import Choice
from pagelm.tune import Row, Tuning

FAST, SLOW = Choice("quad", "registers", 64, 2), Choice("alone", "registers", 64, 1)
TUNING = Tuning(
    FAST,
    "measured",
    "the fastest: alone.registers.wg64.p1 takes 2.00 times as long",
    0.25,
    (
        Row(FAST, 0.5, "chosen"),
        Row(Choice("quad", "loop", 4), None, "wrong: off by 1.0e-02 of the largest result"),
        Row(SLOW, 1.0, "slower"),
    ),
)


def test_tune_prints_a_table_with_ratios_and_the_reason(fake):
    fake.tuning = TUNING.as_dict()
    result = invoke("tune", fake.model, "--device", "native", "--quiet")
    assert result.exit_code == 0 and result.stderr == ""
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1:5] == [
        ["kernels", "ms", "ratio", "verdict"],
        ["quad.registers.wg64.p2", "0.5000", "1.00", "chosen"],
        ["quad.loop.wg4.p4", "-", "-", *"wrong: off by 1.0e-02 of the largest result".split()],
        ["alone.registers.wg64.p1", "1.0000", "2.00", "slower"],
    ]
    assert "quad.registers.wg64.p2 chosen because: the fastest" in result.stdout
    assert fake.opened_with[0][2]["tune"] == "force"


def test_tune_as_json_is_all_of_it(fake):
    fake.tuning = TUNING.as_dict()
    got = json.loads(invoke("tune", fake.model, "--json").stdout)
    assert got["name"] == FAST.name and got["source"] == "measured" and got["seconds"] == 0.25
    assert [(row["name"], row["ms"]) for row in got["rows"]] == [
        ("quad.registers.wg64.p2", 0.5),
        ("quad.loop.wg4.p4", None),
        ("alone.registers.wg64.p1", 1.0),
    ]
    assert got["choice"] == {**got["choice"], "share": "quad", "workgroup_size": 64, "pairs": 2}
    assert {"device", "adapter", "because"} <= got.keys()


def test_a_device_with_nothing_to_choose_is_told(fake):
    result = invoke("tune", fake.model, "--device", "cpu")
    assert result.exit_code == 2 and "allowed: browser, native" in result.stderr


@pytest.mark.parametrize("command", [("run", "--prompt", "hi"), ("bench", "--rounds", "1", "--gen", "4")])
@pytest.mark.parametrize(("given", "tune"), [((), "cached"), (("--tune", "off"), "off")])
def test_the_other_commands_pass_it_on(fake, command, given, tune):
    result = invoke(command[0], fake.model, *command[1:], *given)
    assert result.exit_code == 0
    assert fake.opened_with[0][2]["tune"] == tune


def test_another_way_is_refused(fake):
    result = invoke("run", fake.model, "--prompt", "hi", "--tune", "often")
    assert result.exit_code == 2 and "'off', 'cached', 'force'" in result.stderr


def test_bench_says_which_kernels_it_timed(fake):
    fake.tuning = TUNING.as_dict()
    args = ["bench", fake.model, "--rounds", "1", "--gen", "4", "--max-noise", "99", "--json"]
    assert json.loads(invoke(*args).stdout)["tuning"] == {
        "name": FAST.name,
        "source": "measured",
    }


def test_check_says_which_kernels_it_held_to_the_oracle(monkeypatch, tiny):
    from fake_lm import cpu_lm

    lm = cpu_lm(tiny)
    lm.tuning = TUNING.as_dict()

    async def open_it(device, model, **options):
        assert options["tune"] == "force"
        return lm

    monkeypatch.setattr("pagelm.host.options.open_lm", open_it)
    result = invoke("check", tiny, "--json", "--max-tokens", "2", "--tune", "force")
    assert json.loads(result.stdout)["tuning"]["name"] == FAST.name
