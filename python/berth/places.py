"""Finds the berth program and the daemon's socket."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from .errors import BerthError

MACHINE_SOCKET = "/run/berth/berth.sock"


def program() -> str:
    """The berth program: BERTH_BINARY, else the one in PATH, else the one beside
    this Python (of a virtual environment that is not activated), else the one
    built in this package's repository."""
    named = os.environ.get("BERTH_BINARY")
    built = Path(__file__).resolve().parents[2] / "bin" / "berth"
    beside = shutil.which("berth", path=os.path.dirname(sys.executable or ""))  # an embedded Python has none
    found = named or shutil.which("berth") or beside or (str(built) if os.access(built, os.X_OK) else None)
    if not found:
        raise BerthError("there is no berth program in PATH, nor beside this Python",
                         "install it (make install), or set BERTH_BINARY to its path", "missing")
    if shutil.which(found) is None:
        raise BerthError(f"{found} cannot be run", "set BERTH_BINARY to the path of the berth program", "missing")
    return os.path.abspath(shutil.which(found) or found)


def state_home() -> Path:
    """The user's state directory, as berth itself finds it."""
    named = os.environ.get("XDG_STATE_HOME", "")
    # A relative path would depend on the current directory.
    return Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state"


class Place(NamedTuple):
    """Where a daemon listens: the path of a socket, or https://host:port."""

    address: str
    token: Optional[str] = None
    ca: Optional[str] = None
    own: bool = False  # the user's own daemon, which may be started


def find_daemon() -> Place:
    """The daemon that the berth command would talk to: the one that BERTH_HOST or
    BERTH_SOCKET names, else the machine's, else the user's own."""
    if os.environ.get("BERTH_HOST"):
        return _remote(os.environ["BERTH_HOST"])
    named = os.environ.get("BERTH_SOCKET")
    if named:
        return Place(named)
    if os.path.lexists(MACHINE_SOCKET):
        return Place(MACHINE_SOCKET)
    return Place(str(state_home() / "berth" / "berth.sock"), own=True)


def has_state() -> bool:
    """Whether the user's own daemon has ever run: there are jobs to read."""
    return (state_home() / "berth" / "store").exists()


def _remote(name: str) -> Place:
    """The daemon of BERTH_HOST: an address, or a name in hosts.toml."""
    known = _hosts().get(name, {})
    address = str(known.get("address") or name).rstrip("/")
    if address.startswith("unix:"):
        return Place(address[len("unix:"):])
    if "://" not in address:
        if ":" not in address:
            raise BerthError(f"BERTH_HOST: expected an address or a name from {_hosts_file()}, found {name!r}",
                             "https://gpu1.example.org:7878", "invalid")
        address = "https://" + address
    ca = known.get("ca")
    return Place(address, known.get("token") or os.environ.get("BERTH_HOST_TOKEN"),
                 os.path.join(_hosts_file().parent, ca) if ca else None)


def _hosts_file() -> Path:
    named = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".config") / "berth" / "hosts.toml"


def _hosts() -> Dict[str, Any]:
    file = _hosts_file()
    if not file.exists():
        return {}
    if file.stat().st_mode & 0o077:
        raise BerthError(f"other users can read the tokens in {file}", f"chmod 600 {file}", "invalid")
    if sys.version_info < (3, 11):
        raise BerthError(f"reading {file} needs Python 3.11", "give Client an address and a token", "invalid")
    import tomllib  # type: ignore[import-not-found, unused-ignore]
    with open(file, "rb") as hosts:
        try:
            return tomllib.load(hosts)
        except tomllib.TOMLDecodeError as err:
            raise BerthError(f"{file}: {err}", "", "invalid") from err
