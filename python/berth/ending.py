"""SIGTERM as an exception."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Iterator


@contextlib.contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that jobs are stopped as on Ctrl-C instead
    of left behind. A handler of the program's own is kept, and only the main
    thread may set one."""
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
