"""A daemon of one's own, for as long as it is needed."""

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
_SOCKET_BYTES = 100  # the kernel takes 107
_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.02
_ORPHAN_SECONDS = 7 * 86400.0


class PrivateDaemon:
    """`berth serve` with a state directory of its own. It is no part of this
    process's session: a lost terminal ends neither it nor its jobs. Once it
    has no jobs and no caller it ends by itself."""

    def __init__(self, kind: str, options: Sequence[str], idle_exit: float = 5.0) -> None:
        berth = program()  # without it there is nothing to make a place for
        home = state_home() / "berth" / kind
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sweep(home)
        self.state_dir = home / f"{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}_{secrets.token_hex(3)}"
        self.state_dir.mkdir(mode=0o700)
        self.socket = str(self.state_dir / _SOCKET)
        if len(os.fsencode(self.socket)) > _SOCKET_BYTES:
            self.socket = os.path.join(tempfile.mkdtemp(prefix="berth-", dir="/tmp"), "s")
            os.symlink(self.socket, self.state_dir / _SOCKET)  # for whoever looks for it here
        # What the user set for other daemons is not meant for this one.
        config = self.state_dir / "config.toml"
        config.touch(mode=0o600)
        self._argv = [berth, "serve", "--private", "--state-dir", str(self.state_dir), "--socket", self.socket,
                      "--config", str(config), "--idle-exit", f"{idle_exit:g}s", *options]
        self._process: Optional[subprocess.Popen[bytes]] = None
        self.client = Client(self.socket, autostart=False)

    def start(self) -> None:
        """Start it, and return when it answers. Jobs of an earlier start are
        found again."""
        words = self.state_dir / "serve.err"
        with open(words, "wb") as err:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=err, cwd="/", start_new_session=True)
        end = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None:
                raise BerthError.from_words(words.read_text(errors="replace"), "the daemon ended at once")
            if time.monotonic() > end:
                raise BerthError(f"the daemon does not answer after {_START_SECONDS:g} s", f"see {self.state_dir}")
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
        """Whether it ended, or was killed."""
        return self._process is not None and self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Whether it is over by then: what was killed answers no more a
        moment before it is gone."""
        try:
            return self._process is not None and self._process.wait(seconds) is not None
        except subprocess.TimeoutExpired:
            return False

    def stop(self) -> None:
        """End it. Its jobs, if it has any left, go on."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Delete its state, once nothing in there is needed any more."""
        _forget(self.state_dir)


def _sweep(home: Path) -> None:
    """Remove what daemons left whose Python was killed, a week after."""
    for state in home.iterdir():
        try:
            old = time.time() - state.stat().st_mtime > _ORPHAN_SECONDS
            if old and not any(_held(lock) for lock in _locks(state)):
                _forget(state)
        except OSError:
            continue  # somebody else was faster


def _forget(state: Path) -> None:
    """Delete a state directory, and that of its socket where it has one."""
    socket = state / _SOCKET
    if socket.is_symlink():
        shutil.rmtree(os.path.dirname(os.readlink(socket)), ignore_errors=True)
    shutil.rmtree(state, ignore_errors=True)


def _locks(state: Path) -> List[Path]:
    """What the daemon and the supervisors of its jobs hold while they live."""
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
