"""Ctrl-C at any time: one line, exit code 130, soon, whatever the program is at and whoever swallows it."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from tiny_gguf import tiny_model

from pagelm.host.interrupt import run_async

TOLD = "pagelm: interrupted\n"
CHANCE = random.Random(5)
# The program, saying when it begins; `BEFORE` is done before.
PROGRAM = """
import asyncio, os, signal, sys, time
from pagelm.host import cli, interrupt, options
BEFORE
command = cli.cli

def begin(**options):
    print("ready", flush=True)
    command(**options)

cli.cli = begin
cli.main()
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model whose generation outlasts every test."""
    path = tmp_path_factory.mktemp("interrupt") / "tiny.gguf"
    tiny_model(path, n_ctx_train=1 << 16, quant="F32")
    return str(path)


def started(args, before="", **options):
    """The program `pagelm` as it begins."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("BEFORE", before), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process):
    """Exit code and stderr."""
    try:
        return process.wait(60), process.stderr.read()
    finally:
        process.kill()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("device", ["cpu", pytest.param("native", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("delay", [0.0, *(round(CHANCE.uniform(0, 0.7), 2) for _ in range(7))])
def test_ctrl_c_at_any_moment_is_one_line(tiny, device, delay):
    args = ["run", tiny, "--device", device, "--prompt", "x", "--ctx", "60000", "--max-tokens", "59000"]
    process = started([*args, "--ignore-eos"])
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, TOLD)


def test_ctrl_c_counts_where_the_shell_had_it_ignored(tiny):
    def ignore():  # as for a job in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    args = ["run", tiny, "--device", "cpu", "--prompt", "x", "--ctx", "60000", "--max-tokens", "59000"]
    process = started([*args, "--ignore-eos"], preexec_fn=ignore)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, TOLD)


SWALLOWED = """
def swallow(*args):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
    except KeyboardInterrupt:
        pass  # as a bare `except` in a module that is being imported does
    return sys.argv[2]
options.resolve = swallow
"""


def test_ctrl_c_that_was_swallowed_before_the_work_began_counts(tiny):
    args = ["run", tiny, "--device", "cpu", "--prompt", "x", "--ctx", "60000", "--max-tokens", "59000"]
    assert ended(started([*args, "--ignore-eos"], before=SWALLOWED)) == (130, TOLD)


DEAF = """
async def open_lm(*args, **options):
    print("deaf", flush=True)
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass
options.open_lm = open_lm
interrupt.GRACE_S = SECONDS
"""
BLOCKED = """
async def open_lm(*args, **options):
    print("deaf", flush=True)
    await asyncio.to_thread(time.sleep, 600)
options.open_lm = open_lm
interrupt.GRACE_S = SECONDS
"""


@pytest.mark.parametrize("deaf", [DEAF, BLOCKED], ids=["swallows it", "a thread that cannot be stopped"])
@pytest.mark.parametrize(("times", "grace"), [(1, 0.5), (2, 600)], ids=["grace", "a second Ctrl-C"])
def test_work_that_does_not_end_is_ended(tiny, deaf, times, grace):
    process = started(["run", tiny, "--prompt", "x"], before=deaf.replace("SECONDS", str(grace)))
    assert process.stdout.readline() == "deaf\n"
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert ended(process) == (130, TOLD)


def test_what_libraries_say_about_the_interrupt_is_not_shown(tiny):
    talks = """
async def open_lm(*args, **options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)
    finally:
        print("Exception ignored from cffi callback", file=sys.stderr)
options.open_lm = open_lm
"""
    assert ended(started(["run", tiny, "--prompt", "x"], before=talks)) == (130, TOLD)


def test_ctrl_c_during_the_work_runs_its_cleanup():
    cleaned = []

    async def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(30)
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert cleaned == [True]


def test_ctrl_c_that_a_library_swallows_still_ends_the_work():
    async def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass  # as a C callback does
        await asyncio.sleep(30)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert time.monotonic() - start < 25


def test_interrupt_handler_is_put_back():
    async def work():
        return 7

    before = signal.getsignal(signal.SIGINT)
    assert run_async(work()) == 7
    assert signal.getsignal(signal.SIGINT) is before
