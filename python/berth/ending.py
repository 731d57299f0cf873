"""How a program that is told to end does so."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Iterator


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Meanwhile TERM is an exception as Ctrl-C is: it would end this process
    on the spot, and nobody would stop the jobs. What the program itself does
    about TERM stays, and it is only in the main thread that one may ask."""
    if (threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _: object) -> None:
    raise SystemExit(128 + number)
