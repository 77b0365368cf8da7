"""Becomes Chromium, and leaves a process beside it that ends all of it once pagelm has ended, however it did.

Run as a script by the one that chromium.py writes: the lock file, the browser, the browser's arguments.
pagelm holds the lock for as long as it wants the browser; the system takes it back from a process that dies.
"""

import fcntl
import os
import shutil
import signal
import sys


def wait_and_kill(lock: str) -> None:
    os.closerange(0, 64)  # Playwright waits until nobody has the browser's streams
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
    except OSError:  # removed already
        pass
    shutil.rmtree(os.path.dirname(lock), ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # itself too: while it is in the group, nobody else can have its number


def main(lock: str, *browser: str) -> None:
    if os.getpgrp() != os.getpid():  # Playwright gives it a group of its own
        os.setpgid(0, 0)
    if os.fork() == 0:
        wait_and_kill(lock)
    os.execv(browser[0], browser)


if __name__ == "__main__":
    main(*sys.argv[1:])
