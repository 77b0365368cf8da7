"""Commands, run here or in a process of their own."""

import subprocess
import sys

from click.testing import CliRunner

from pagelm.host import cli as commands


def invoke(*args, **options):
    return CliRunner().invoke(commands.cli, list(args), prog_name="pagelm", **options)


def pagelm_process(*args, **options):
    command = [sys.executable, "-m", "pagelm.host.cli", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def finished(*args):
    process = pagelm_process(*args, stdin=subprocess.DEVNULL)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()
