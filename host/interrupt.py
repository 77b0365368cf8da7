"""Ctrl-C: the first ends the work and cleans up; a second one, or GRACE_S seconds, end the process.

Python runs a handler only between two steps of the main thread, which a native library may keep waiting, and
what the handler raises is lost where it hits a callback of such a library. So the task is cancelled as well,
a Ctrl-C that was lost is remembered, and a thread that hears of the signal too ends what does not end.
"""

import asyncio
import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, NoReturn, TextIO, TypeVar

T = TypeVar("T")
EXIT_CODE = 130  # 128 + SIGINT, as shells have it
GRACE_S = 5.0

_heard = False  # a Ctrl-C came since the handler was installed
_running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []
_nowhere: TextIO | None = None  # where the program's stderr goes once it is interrupted
_leaving = threading.Lock()


@contextlib.contextmanager
def ending_on_ctrl_c() -> Iterator[None]:
    """For the block that is the whole program: a Ctrl-C ends it with one line on stderr and EXIT_CODE.

    What libraries have to say about being interrupted is not shown.
    """
    global _nowhere
    _nowhere = open(os.devnull, "w")
    heard, wakeup = socket.socketpair()
    wakeup.setblocking(False)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _interrupt)
    threading.Thread(target=_end_what_does_not_end, args=(heard, wakeup), daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, lambda *_: _leave())
        if _heard:
            _leave()


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C interrupts at once, also while a library blocks, and still cleans up.

    Where it surfaces as another error, that is taken for the interrupt.
    """
    global _heard
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        _running.append((task.get_loop(), task))
        return await work

    before = signal.signal(signal.SIGINT, _interrupt)
    if before is not _interrupt:
        _heard = False
    try:
        result = None if _heard else asyncio.run(main())
        if _heard:
            raise KeyboardInterrupt
        return result  # type: ignore[return-value]
    except BaseException as e:
        if _heard:
            raise KeyboardInterrupt from e
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        _running.clear()
        work.close()  # where it never began


def _interrupt(signum: int, frame: object) -> NoReturn:
    global _heard
    _heard = True
    sys.stderr = _nowhere or sys.stderr
    for loop, task in _running:
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)
    raise KeyboardInterrupt


def _end_what_does_not_end(heard: socket.socket, wakeup: socket.socket) -> None:
    """The first Ctrl-C is the main thread's; the second, or none in GRACE_S, ends the process from here.

    `wakeup` is what Python writes to: open for as long as somebody reads.
    """
    while heard.recv(1) != bytes([signal.SIGINT]):
        pass
    select.select([heard], [], [], GRACE_S)
    _leave()


def _leave() -> NoReturn:
    _leaving.acquire()  # kept: one thread says it
    with contextlib.suppress(OSError):
        os.write(2, b"\npagelm: interrupted\n" if os.isatty(2) else b"pagelm: interrupted\n")
    os._exit(EXIT_CODE)
