"""How a command ends when something is wrong: one line, an exit code, nothing else."""

import json
import signal
import subprocess
import sys
import time

import pytest
from command import finished, invoke, pagelm_process

from pagelm.host import cli as commands


@pytest.mark.parametrize(
    "args",
    [
        ["run"],
        ["run", "--prompt", "x", "--device", "tpu"],
        ["run", "--prompt", "x", "--max-tokens", "0"],
        ["run", "--prompt", "x", "--memory-budget", "lots"],
        ["run", "--prompt", "x", "no-such-file.gguf"],
        ["run", "--prompt", "x", "--unknown"],
        ["no-such-command"],
        ["--no-such-option"],
        ["tokenize"],
        ["tokenize", "--text", "a", "--file", "b"],
        ["shaders", "--workgroup", "3"],
        ["check", "--exact"],
        ["check", "--device", "cpu"],
        ["check", "--exact", "--reference", "x", "--device", "native"],
        ["bench", "--gen", "1"],
        ["bench", "--peers", "nobody"],
        ["bench", "--peers", "wllama:0"],
        ["bench", "--peers", "wllama", "http://127.0.0.1/x.gguf"],
        ["bench", "--context", "128,x"],
        ["bench", "--max-noise", "-1"],
        ["serve", "http://127.0.0.1/x.gguf"],
    ],
    ids=" ".join,
)
def test_mistake_is_one_line_on_stderr_and_exit_code_2(args):
    result = invoke(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("pagelm: ") and result.stderr.count("\n") == 1


def test_mistake_is_one_line_in_a_real_process_too(tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not a model at all")
    code, out, err = finished("run", str(tmp_path / "x.gguf"), "--device", "cpu", "--prompt", "x")
    assert (code, out) == (2, "")
    assert err.startswith("pagelm: ") and err.count("\n") == 1 and "not a GGUF file" in err


@pytest.mark.parametrize("budget", ["-5", "-0", "1.5G", "", "5 apples"])
def test_budget_that_is_no_number_of_bytes_is_refused(fake, budget):
    result = invoke("run", fake.model, "--prompt", "x", f"--memory-budget={budget}")
    assert result.exit_code == 2 and fake.opened_with == []
    assert f"{budget!r} is no number of bytes; allowed: digits, then K, M or G" in result.stderr


@pytest.mark.gpu
def test_budget_that_is_a_byte_short_is_told_from_what_is_needed(tiny):
    total = json.loads(invoke("inspect", tiny, "--json").stdout)["plan"]["total"]
    result = invoke("run", tiny, "--device", "native", "--prompt", "x", "--memory-budget", str(total - 1))
    assert result.exit_code == 2
    assert f"needs {total:,} bytes" in result.stderr and f"the budget is {total - 1:,} bytes" in result.stderr


def test_missing_package_says_which_extra_brings_it(monkeypatch, tiny):
    monkeypatch.setitem(sys.modules, "wgpu", None)
    result = invoke("run", tiny, "--device", "native", "--prompt", "x")
    assert result.exit_code == 2
    assert "pip install 'pagelm[native]'" in result.stderr


@pytest.mark.parametrize("command", ["shaders", "--help"])
def test_reader_that_goes_away_ends_it_quietly(command):
    process = pagelm_process(command, stdin=subprocess.DEVNULL)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""


def test_reader_that_goes_away_stops_the_generation(fake, monkeypatch):
    def gone(text):
        raise BrokenPipeError

    monkeypatch.setattr(commands, "print_text", gone)
    result = invoke("run", fake.model, "--prompt", "x", "--max-tokens", "100", "--ignore-eos")
    assert result.exit_code == 141
    assert fake.counts["tokens"] == 1 and fake.closed


FULL = "/dev/full"


OUTPUTS = [
    ["shaders"],
    ["shaders", "--json"],
    ["--help"],
    ["--version"],
    ["run", "MODEL", "--device", "cpu", "--prompt", "x", "--max-tokens", "3"],
    ["serve", "--no-model", "--port", "0"],
]


def ended(args, redirection, tiny):
    """Exit code and stderr of a command behind a shell's redirection."""
    words = [tiny if arg == "MODEL" else arg for arg in args]
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "pagelm.host.cli", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode()


@pytest.mark.linux
@pytest.mark.usefixtures("with_pyodide")
@pytest.mark.parametrize("args", OUTPUTS, ids=" ".join)
def test_full_disk_is_one_line(args, tiny):
    code, err = ended(args, f">{FULL}", tiny)
    assert code == 2
    assert err.startswith("pagelm: ") and err.endswith(
        "No space left on device\n" if args[0][0] == "-" else "elsewhere\n"
    )
    assert err.count("\n") == 1


@pytest.mark.usefixtures("with_pyodide")
@pytest.mark.parametrize("args", OUTPUTS, ids=" ".join)
def test_closed_output_is_one_line(args, tiny):
    code, err = ended(args, ">&-", tiny)
    assert (code, err) == (
        2,
        "pagelm: standard output is closed; send it somewhere, to /dev/null if nowhere else\n",
    )


@pytest.mark.parametrize("redirection", ["2>&-", "<&-", "2>&- <&-"])
def test_closed_stderr_or_stdin_is_none_of_its_business(redirection, tiny):
    args = ["run", "MODEL", "--device", "cpu", "--prompt", "x", "--max-tokens", "3"]
    code, err = ended(args, redirection, tiny)
    assert code == 0 and "Traceback" not in err
    assert ended([*args[:-1], "0"], "2>&-", tiny) == (2, "")


@pytest.mark.linux
def test_full_stderr_ends_with_2_not_with_a_traceback(tiny):
    args = ["run", "MODEL", "--device", "cpu", "--prompt", "x", "--max-tokens", "3"]
    assert ended(args, f"2>{FULL}", tiny)[0] == 2
    assert ended([*args, "--quiet"], f"2>{FULL}", tiny)[0] == 0


def test_memory_that_runs_out_is_one_line(fake, monkeypatch):
    async def greedy(*args):
        raise MemoryError("Unable to allocate 186 TiB")

    monkeypatch.setattr(fake, "generate", greedy)
    result = invoke("run", fake.model, "--prompt", "hi")
    assert result.exit_code == 2
    assert result.stderr.startswith("pagelm: out of memory: Unable to allocate 186 TiB; ")
    assert result.stderr.count("\n") == 1


def test_ctrl_c_while_it_waits_for_its_prompt_is_one_line(tiny):
    process = pagelm_process("run", tiny, "--device", "cpu", "--prompt", "-", stdin=subprocess.PIPE)
    time.sleep(1.5)  # it waits for its prompt now
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"pagelm: interrupted\n")


def test_unknown_command_is_told_what_there_is():
    there = ", ".join(sorted(commands.cli.commands))
    told = f"pagelm: No such command 'bogus'; there are {there} (see pagelm --help)\n"
    assert invoke("bogus").stderr == told
