"""--activations of `run` and `bench`; of `check` there is none: it has one truth."""

import pytest
from click.testing import CliRunner

from pagelm.host import cli


def invoke(*args):
    return CliRunner().invoke(cli.cli, args)


@pytest.mark.parametrize("command", [("run", "--prompt", "hi"), ("bench", "--rounds", "1", "--gen", "4")])
@pytest.mark.parametrize(("given", "activations"), [((), "f32"), (("--activations", "int8"), "int8")])
def test_run_and_bench_pass_it_on(fake, command, given, activations):
    assert invoke(command[0], fake.model, *command[1:], *given).exit_code == 0
    assert fake.opened_with[0][2]["activations"] == activations


def test_bench_says_so(fake):
    command = ("bench", fake.model, "--rounds", "1", "--gen", "4")
    assert "activations int8" in invoke(*command, "--activations", "int8").stdout
    assert "activations" not in invoke(*command).stdout


def test_another_kind_is_refused(fake):
    result = invoke("run", fake.model, "--prompt", "hi", "--activations", "int4")
    assert result.exit_code == 2 and "'f32', 'int8'" in result.stderr


def test_check_has_no_such_option(fake):
    result = invoke("check", fake.model, "--activations", "int8")
    assert result.exit_code == 2 and "No such option" in result.stderr


def test_the_device_cpu_refuses_it(tiny):
    result = invoke("run", tiny, "--device", "cpu", "--prompt", "hi", "--activations", "int8")
    assert result.exit_code == 2
    assert "the device cpu computes with f32 activations only, not int8" in result.stderr
