"""A job's outcome as one number."""

from __future__ import annotations

import signal

from .views import JobView


def exit_status(job: JobView) -> int:
    """A job's outcome as one number: its exit code, 128 + the signal, 124 for
    its time limit, 0 only if it succeeded, else 1."""
    kind, _, what = (job["outcome"] or "").partition(":")
    if kind == "exit":
        return int(what)
    if kind == "signal" and signal_number(what):
        return 128 + signal_number(what)
    return {"ok": 0, "timeout": 124}.get(kind, 1)


def signal_number(name: str) -> int:
    """The number of a signal, given as a name (KILL) or a number."""
    try:
        return int(signal.Signals["SIG" + name.upper()])
    except KeyError:
        return int(name) if name.isdigit() else 0
