"""What the tests share: the real program, simulated GPUs, a temporary home, and
ways to wait for a condition."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable, List, Optional, TypeVar

PYTHON = Path(__file__).resolve().parents[1]
REPOSITORY = PYTHON.parent
PATIENCE = 60.0

sys.path.insert(0, str(PYTHON))
from berth import BerthError, Client, GPUScheduler, Job  # noqa: E402

# A background process ignores Ctrl-C, and so would the programs under test.
signal.signal(signal.SIGINT, signal.default_int_handler)

T = TypeVar("T")
_binary = os.environ.get("BERTH_BINARY")  # before a test has an environment of its own


def berth() -> str:
    """The program to test: BERTH_BINARY, or built here once."""
    global _binary
    if _binary is None:
        _binary = _build()
    return os.path.abspath(_binary)


def _build() -> str:
    directory = tempfile.mkdtemp(prefix="berth-test-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    subprocess.run(["go", "build", "-o", directory + "/", "./cmd/berth"], cwd=REPOSITORY, check=True)
    return os.path.join(directory, "berth")


def until(what: Callable[[], Optional[T]]) -> T:
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + PATIENCE
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("it did not come to that in time")
        time.sleep(0.02)


class Lab(unittest.TestCase):
    """A temporary home, state and current directory with a clean environment.
    No test may leave anything behind."""

    sim = 2

    def setUp(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="bt-"))
        self.logs = self.dir / "logs"
        before, here = dict(os.environ), os.getcwd()
        self.addCleanup(self._remove)
        self.addCleanup(os.chdir, here)
        self.addCleanup(os.environ.update, before)
        self.addCleanup(os.environ.clear)  # cleanups run last first
        for name in [name for name in os.environ if name.startswith(("BERTH_", "XDG_", "CUDA_"))]:
            del os.environ[name]
        os.environ.update(HOME=str(self.dir), XDG_STATE_HOME=str(self.dir / "state"), BERTH_BINARY=berth(),
                          BERTH_SIM=str(self.sim), BERTH_LEDGER_DIR=str(self.dir / "ledger"), PYTHONPATH=str(PYTHON / "compat"))
        os.chdir(self.dir)
        self.said = io.StringIO()  # what schedulers say on standard error
        quiet = contextlib.redirect_stderr(self.said)
        quiet.__enter__()
        self.addCleanup(quiet.__exit__, None, None, None)

    def scheduler(self, n_gpus: int = 1, jobs_per_gpu: int = 1, **more: Any) -> GPUScheduler:
        return GPUScheduler(n_gpus, jobs_per_gpu, **{"check_interval": 0.1, "log_dir": self.logs, **more})

    def job_log(self, name: str) -> str:
        found = list(self.logs.glob(f"{name}_*.log"))
        self.assertEqual(len(found), 1, f"logs of {name}: {found}")
        return found[0].read_text()

    def main_log(self) -> str:
        path = self.logs / "kairos.log"
        return path.read_text() if path.exists() else ""

    def gate(self, name: str = "go") -> str:
        """A command that waits until open(name) is called or the test ends."""
        return f"while [ -d {self.dir} ] && [ ! -e {self.dir / name} ]; do sleep 0.05; done"

    def open(self, name: str = "go") -> None:
        (self.dir / name).touch()

    def python(self, *words: str, **more: Any) -> "subprocess.Popen[str]":
        process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, **more)
        self.addCleanup(self._reap, process)
        return process

    def foreign(self, client: Client, gpu: int, mib: int) -> "subprocess.Popen[bytes]":
        """An external process on a GPU, once the daemon sees its memory."""
        env = {**os.environ, "BERTH_SIM_DIR": client.status()["sim_dir"]}
        process = subprocess.Popen([berth(), "simjob", "--gpu", str(gpu), "--vram", str(mib), "--hold", "600"],
                                   env=env, stdout=subprocess.DEVNULL)
        self.addCleanup(self._reap, process)
        until(lambda: client.gpus()[gpu]["foreign_mib"] == mib)
        return process

    def _remove(self) -> None:
        """Supervisors of a killed daemon may still write there."""
        def gone() -> bool:
            shutil.rmtree(self.dir, ignore_errors=True)
            return not self.dir.exists()
        until(gone)

    @staticmethod
    def _reap(process: "subprocess.Popen[Any]") -> None:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


class Running:
    """run_jobs in the background, and its daemon as a client sees it."""

    def __init__(self, lab: Lab, scheduler: GPUScheduler, jobs: List[Job]) -> None:
        self._home = lab.dir / "state" / "berth" / "kairos"
        self._known = self._sockets()
        self._result: Any = None
        self._thread = threading.Thread(target=self._run, args=(scheduler, jobs))
        self._thread.start()
        self.client = Client(until(lambda: next(iter(self._sockets() - self._known), None)))
        lab.addCleanup(self._end)
        until(lambda: len(self.client.list(over=True)) == len(jobs))

    def _sockets(self) -> "set[str]":
        return {str(path) for path in self._home.glob("*/berth.sock")}

    def _run(self, scheduler: GPUScheduler, jobs: List[Job]) -> None:
        try:
            self._result = scheduler.run_jobs(jobs)
        except BaseException as err:  # for result() to raise
            self._result = err

    def _end(self) -> None:
        """Do not wait for what a failed test left waiting."""
        with contextlib.suppress(BerthError):
            self.client.cancel("all", grace=0)
        self._thread.join()

    def states(self) -> List[str]:
        return [job["state"] for job in self.client.list(over=True)]

    def result(self) -> List[int]:
        self._thread.join(PATIENCE)
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None, "run_jobs did not return in time"
        return list(self._result)


class Served(Lab):
    """A daemon of the user's own, which the tests may kill."""

    def setUp(self) -> None:
        super().setUp()
        self.socket = str(self.dir / "state" / "berth" / "berth.sock")
        os.environ["BERTH_NO_AUTOSTART"] = "1"  # it comes back when the test says so
        self.serve()

    def serve(self) -> None:
        self.daemon = subprocess.Popen([berth(), "serve", "--private", "--poll", "0.1", "--min-run", "1"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
        self.addCleanup(self._reap, self.daemon)
        self.client = Client()
        until(self.answers)

    def answers(self) -> bool:
        try:
            return bool(self.client.status())
        except BerthError:
            return False
