"""Finds the berth program and the daemon's socket."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import BerthError

MACHINE_SOCKET = "/run/berth/berth.sock"


def program() -> str:
    """The berth program: BERTH_BINARY, else the one in PATH, else the one built
    in this package's repository."""
    named = os.environ.get("BERTH_BINARY")
    built = Path(__file__).resolve().parents[2] / "bin" / "berth"
    found = named or shutil.which("berth") or (str(built) if os.access(built, os.X_OK) else None)
    if not found:
        raise BerthError("there is no berth program in PATH",
                         "install it (make install), or set BERTH_BINARY to its path", "missing")
    if shutil.which(found) is None:
        raise BerthError(f"{found} cannot be run", "set BERTH_BINARY to the path of the berth program", "missing")
    return os.path.abspath(shutil.which(found) or found)


def state_home() -> Path:
    """The user's state directory, as berth itself finds it."""
    named = os.environ.get("XDG_STATE_HOME", "")
    # A relative path would depend on the current directory.
    return Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"


def find_socket() -> tuple[str, bool]:
    """The daemon's socket, and whether BERTH_SOCKET names it: else it is the
    machine's, else the user's own."""
    named = os.environ.get("BERTH_SOCKET")
    if named:
        return named, True
    if os.path.lexists(MACHINE_SOCKET):
        return MACHINE_SOCKET, False
    return str(state_home() / "berth" / "berth.sock"), False
