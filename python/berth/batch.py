"""One run of a list of jobs: a daemon of its own, told what to run, listened
to, and ended."""

from __future__ import annotations

import json
import logging
import queue
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence

from .client import signal_number
from .errors import BerthError
from .joblog import append_json, close_main_log, create_job_log, open_main_log, plain_name
from .private import PrivateDaemon
from .views import Event, JobView

NEVER_STARTED = 127
_LOOK_SECONDS = 0.5  # how soon a daemon that was killed is missed
_RETRY_SECONDS = 0.1
_STOP_SECONDS = 60.0  # a job has ten to end by itself
_TELL_SECONDS = 5.0  # for what is known by then to be told

Fit = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
"""From the cards there are to what every job asks for."""

# The job's own bash says that it begins, before anything else is in its log,
# and then becomes the command's.
_BEGIN = ('printf \'%s"gpu_id": %s, "pid": %d, "start_time": "%(%Y-%m-%dT%H:%M:%S%z)T"}\\n\' '
          '"$1" "${BERTH_GPUS:-null}" "$$" -1; exec "$0" -c "$2"')


class Task:
    """One job of the list."""

    def __init__(self, index: int, name: str, spec: Mapping[str, Any], log: Path) -> None:
        self.index = index
        self.name = name
        self.log = log
        self.spec = spec
        self.status: Optional[int] = None
        self.started = False

    def about(self) -> Dict[str, Any]:
        """What every line of metadata begins with."""
        return {"job_index": self.index, "job_name": self.name}

    def request(self, asks: Mapping[str, Any]) -> Dict[str, Any]:
        """The job as berth is asked for it."""
        bash = shutil.which("bash") or "/bin/bash"
        about = json.dumps({"event": "job_start", **self.about(), "command": self.spec["command"],
                            "working_dir": self.spec["dir"]})[:-1] + ", "
        return {**asks, **self.spec, "name": plain_name(self.name), "output": str(self.log).replace("%", "%%"),
                "command": [bash, "-c", _BEGIN, bash, about, self.spec["command"]]}


class Batch:
    """A run. It is used once."""

    def __init__(self, log_dir: Path, level: int, interval: float, options: Sequence[str],
                 gpus: Container[int]) -> None:
        self._log_dir = log_dir
        self._level = level
        self._interval = interval
        self._options = options
        self._gpus = gpus  # those it may use, and tells of
        self._tasks: Dict[str, Task] = {}  # by their job's id
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self._over = threading.Event()
        self._asked = False  # there may be jobs

    def run(self, specs: Sequence[Mapping[str, Any]], names: Sequence[str], fit: Fit) -> List[int]:
        """Run them all; the statuses are in their order."""
        self._log = open_main_log(self._log_dir, self._level)
        try:
            self._daemon = PrivateDaemon("kairos", self._options)
        except BaseException:
            close_main_log(self._log)
            raise
        self._client = self._daemon.client
        listener = threading.Thread(target=self._listen, name="berth events", daemon=True)
        try:
            self._daemon.start()
            listener.start()  # whom it talks to, a daemon does not leave
            tasks = self._submit(specs, names, fit)
            self._follow()
            failed = sum(task.status != 0 for task in tasks)
            self._log.info("All jobs completed: %d succeeded, %d failed", len(tasks) - failed, failed)
            return [NEVER_STARTED if task.status is None else task.status for task in tasks]
        except BaseException as err:
            self._log.error("%s", isinstance(err, Exception) and str(err) or type(err).__name__)
            self._abandon()
            raise
        finally:
            self._close(listener)

    def _close(self, listener: threading.Thread) -> None:
        finished = not self._asked or not self._left()
        self._over.set()
        self._daemon.stop()
        if listener.ident is not None:
            listener.join()
        if finished:
            self._daemon.remove()
        else:
            self._log.error("Some jobs may still run; what is known of them is in %s", self._daemon.state_dir)
        close_main_log(self._log)

    def _left(self) -> bool:
        """Whether there are jobs that are not over, as far as can be said."""
        try:
            return bool(self._client.list(reasons=False))
        except BerthError:
            return True

    def _submit(self, specs: Sequence[Mapping[str, Any]], names: Sequence[str], fit: Fit) -> List[Task]:
        cards = self._client.gpus()
        asks = fit(cards)
        for card in self._own(cards):
            self._log.info("GPU %d: %s", card["index"], _memory(card))
        tasks = [Task(i, name, spec, create_job_log(self._log_dir, name))
                 for i, (spec, name) in enumerate(zip(specs, names))]
        self._asked = True
        try:
            handles = self._client.submit_all([task.request(asks) for task in tasks])
        except BaseException:
            for task in tasks:  # nothing will ever be in them
                task.log.unlink()
            raise
        self._tasks = {handle.id: task for handle, task in zip(handles, tasks)}
        self._log.info("Queued %d jobs", len(tasks))
        return tasks

    def _listen(self) -> None:
        """In a thread of its own, because what waits for a reply cannot also
        keep time. Events have numbers: through a restart of the daemon none
        is lost."""
        seen = 0
        while not self._over.is_set():
            try:
                for event in self._client.events(since=seen, follow=False):
                    seen = event.get("seq") or seen
                    self._events.put(event)
            except BerthError as err:
                self._log.error("%s", err)
            self._over.wait(_RETRY_SECONDS)

    def _follow(self, until: float = float("inf")) -> None:
        """Take in what happens until every job is over."""
        checked = time.monotonic()
        while self._waiting() and time.monotonic() < until:
            try:
                self._observe(self._events.get(timeout=min(self._interval, _LOOK_SECONDS)))
            except queue.Empty:
                pass
            if self._daemon.gone:
                self._log.warning("The daemon was lost; starting it again, running jobs go on")
                self._daemon.start()
            if time.monotonic() - checked >= self._interval:
                checked = time.monotonic()
                self._report()

    def _waiting(self) -> List[str]:
        return [id for id, task in self._tasks.items() if task.status is None]

    def _observe(self, event: Event) -> None:
        task = self._tasks.get(event["job"]["id"]) if "job" in event else None
        kind = event["event"]
        if task is None:
            if kind in ("gpus_unreadable", "gpus_readable", "warning"):
                self._log.warning("%s", event.get("text") or kind)
        elif kind == "started":
            self._begun(task, event["job"])
        elif kind == "ended" and task.status is None:
            self._ended(task, event["job"])

    def _begun(self, task: Task, job: JobView) -> None:
        task.started = True
        memory = "".join(f"; {_memory(card)}" for card in self._cards(logging.INFO) if card["index"] == _gpu(job))
        self._log.info("Starting job %d (%s) on GPU %s%s; log %s", task.index, task.name, _gpu(job), memory, task.log)

    def _ended(self, task: Task, job: JobView) -> None:
        task.status = _status(job)
        good = "Success" if task.status == 0 else "Failed"
        peaks = job["peak_vram_mib"] or {}
        append_json(task.log, {
            "event": "job_completion", **task.about(), "gpu_id": _gpu(job), "start_time": job["started_at"],
            "end_time": job["ended_at"], "return_code": task.status, "status": good, "outcome": job["outcome"],
            "reason": job["reason"], "peak_memory_mib": max(peaks.values(), default=None)})
        why = f": {job['reason']}" if job["reason"] else ""
        self._log.log(logging.INFO if task.status == 0 else logging.ERROR,
                      "Job %d (%s) completed with status: %s (%s, code %d, peak memory %s)%s", task.index, task.name,
                      good, job["outcome"], task.status, _mib(max(peaks.values(), default=None)), why)

    def _report(self) -> None:
        """Say what the first job in the line waits for, and how the cards
        stand. Waiting for another job's end is nothing to be told again and
        again; waiting for memory, or for a driver, is."""
        first = next((id for id in self._waiting() if not self._tasks[id].started), None)
        try:
            for card in self._cards(logging.DEBUG):
                self._log.debug("GPU %d: %s", card["index"], _memory(card))
            if first is not None:
                self._tell(self._tasks[first], self._client.why(first))
        except BerthError as err:
            self._log.debug("%s", err)  # the daemon is just being started again

    def _tell(self, task: Task, why: Mapping[str, Any]) -> None:
        cards = [card for card in why.get("gpus", []) if card.get("obstacle") != "excluded"]
        if why.get("kind") == "unreadable":
            self._log.warning("Job %d (%s) is not started: %s", task.index, task.name, why["text"])
            return
        level = logging.DEBUG if all(c.get("obstacle") == "shares" for c in cards) else logging.INFO
        for card in cards:
            free, missing = card.get("free_mib", 0), card.get("missing_mib", 0)
            self._log.log(level, "Job %d (%s) waits for GPU %d: %s free, %s needed (%s)", task.index, task.name,
                          card["gpu"], _mib(free), _mib(free + missing), card["what"])

    def _cards(self, level: int) -> List[Dict[str, Any]]:
        """The cards, for a log that wants to know."""
        try:
            return self._own(self._client.gpus()) if self._log.isEnabledFor(level) else []
        except BerthError:
            return []

    def _own(self, cards: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        return [card for card in cards if card["index"] in self._gpus]

    def _abandon(self) -> None:
        """Stop every job: gently, and at the second Ctrl-C (or TERM) at once."""
        if not self._asked:
            return
        self._log.info("Stopping all jobs")
        try:
            self._stop_jobs(None)
        except (KeyboardInterrupt, SystemExit):
            self._stop_jobs(0.0)

    def _stop_jobs(self, grace: Optional[float]) -> None:
        try:
            self._cancel_all(grace)
            self._client.wait("all", timeout=_STOP_SECONDS)
            self._follow(time.monotonic() + _TELL_SECONDS)
        except (BerthError, TimeoutError) as err:
            self._log.error("%s", err)

    def _cancel_all(self, grace: Optional[float]) -> None:
        try:
            self._client.cancel("all", grace=grace)
        except BerthError:
            if not self._daemon.ends_within(_LOOK_SECONDS):
                raise
            self._daemon.start()  # it was just lost, and nobody else stops them
            self._client.cancel("all", grace=grace)


def _status(job: JobView) -> int:
    """As subprocess has it: minus a signal's number; and what never started
    as a shell says of a command that it does not find."""
    if job["state"] == "finished":
        return 0
    if job["outcome"] in ("launch", "infeasible") or job["started_at"] is None:
        return NEVER_STARTED
    if job["signal"]:
        return -signal_number(job["signal"]) or 1
    return job["exit_code"] or 1


def _gpu(job: JobView) -> Optional[int]:
    return job["gpu_ids"][0] if job["gpu_ids"] else None


def _memory(card: Mapping[str, Any]) -> str:
    return (f"{_mib(card['free_mib'])} free of {_mib(card['total_mib'])}, {_mib(card['budget_mib'])} promised to jobs, "
            f"{_mib(card['foreign_mib'])} used by others")


def _mib(size: Optional[int]) -> str:
    return "n/a" if size is None else f"{size} MiB"
