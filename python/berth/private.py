"""A private daemon for one run_jobs call."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import List, Optional, Sequence

from .client import Client
from .errors import BerthError
from .places import program, state_home

_SOCKET = "berth.sock"
_SOCKET_BYTES = 100  # the kernel allows 107
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.02
_ORPHAN_SECONDS = 7 * 86400.0


class PrivateDaemon:
    """`berth serve` with its own state directory. It is outside this process's
    session, so a closed terminal ends neither it nor its jobs. It ends when it
    has no jobs and no client."""

    def __init__(self, kind: str, options: Sequence[str], idle_exit: float = 5.0) -> None:
        berth = program()  # before making a directory: this may fail
        home = state_home() / "berth" / kind
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(home)
        self.state_dir = home / f"{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}_{secrets.token_hex(3)}"
        self.state_dir.mkdir(mode=0o700)
        self.socket = str(self.state_dir / _SOCKET)
        if len(os.fsencode(self.socket)) > _SOCKET_BYTES:
            self.socket = os.path.join(tempfile.mkdtemp(prefix="berth-", dir="/tmp"), "s")
            os.symlink(self.socket, self.state_dir / _SOCKET)  # so that it is found here too
        # The user's configuration is meant for other daemons.
        config = self.state_dir / "config.toml"
        config.touch(mode=0o600)
        self._argv = [berth, "serve", "--private", "--state-dir", str(self.state_dir), "--socket", self.socket,
                      "--config", str(config), "--idle-exit", f"{idle_exit:g}s", *options]
        self._process: Optional[subprocess.Popen[bytes]] = None
        self.client = Client(self.socket, autostart=False)

    def start(self) -> None:
        """Start it, and return when it answers. It finds the jobs of an earlier
        start."""
        stderr = self.state_dir / "serve.err"
        with open(stderr, "wb") as err:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=err, cwd="/", start_new_session=True)
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise BerthError.from_stderr(stderr.read_text(errors="replace"), "the daemon ended at once")
            if time.monotonic() > end:
                raise BerthError(f"the daemon has not answered within {_START_SECONDS:g} s",
                                 f"see the log in {self.state_dir}")
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        try:
            self.client.status()
            return True
        except BerthError as err:
            if err.kind == "unreachable":
                return False
            raise

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process is not None and self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends within this time. A killed process stops answering
        shortly before it is gone."""
        try:
            return self._process is not None and self._process.wait(seconds) is not None
        except subprocess.TimeoutExpired:
            return False

    def stop(self) -> None:
        """Stop it. Jobs that are left keep running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Delete its state."""
        _forget(self.state_dir)


def _sweep(home: Path) -> None:
    """Remove state that is a week old and whose Python was killed."""
    for state in home.iterdir():
        try:
            old = time.time() - state.stat().st_mtime > _ORPHAN_SECONDS
            if old and not any(_held(lock) for lock in _locks(state)):
                _forget(state)
        except OSError:
            continue  # another process was faster


def _forget(state: Path) -> None:
    """Delete a state directory, and the separate one of its socket if any."""
    socket = state / _SOCKET
    if socket.is_symlink():
        shutil.rmtree(os.path.dirname(os.readlink(socket)), ignore_errors=True)
    shutil.rmtree(state, ignore_errors=True)


def _locks(state: Path) -> List[Path]:
    """The locks that the daemon and its supervisors hold while running."""
    return [state / "store" / "lock", *state.glob("keep/*/lock")]


def _held(lock: Path) -> bool:
    try:
        with open(lock, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
