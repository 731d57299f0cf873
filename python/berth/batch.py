"""One run_jobs call: its private daemon, its jobs and their logs."""

from __future__ import annotations

import json
import logging
import queue
import shutil
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, cast

from .errors import BerthError
from .fields import JobSpec
from .joblog import append_json, close_main_log, create_job_log, plain_name
from .private import PrivateDaemon
from .statuses import signal_number
from .views import Event, JobView

NEVER_STARTED = 127
_UNREADABLE = "no NVIDIA GPU can be read"  # how berth serve begins that complaint
_LOOK_SECONDS = 0.5  # how soon the death of the daemon is noticed
_RETRY_SECONDS = 0.1
_STOP_SECONDS = 60.0  # jobs have a grace period of ten
_REPORT_SECONDS = 5.0  # to log the last events after that

Fit = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
"""From the machine's GPUs to the request that all jobs share."""


class Gpus(NamedTuple):
    """The GPUs that a run uses, and how many jobs each takes."""

    ids: range
    slots: int


# The job's own bash finds its slot, writes the job_start line before any output,
# and then execs the command. A slot is taken by making a link to the process in
# it, which only one process can; it is free again when that process is gone, and
# then the next link has the next number.
_BEGIN = r'''
begin() {
    local slot=null i n place
    for ((i = 0; i < $4; i++)); do
        place=$3/$BERTH_GPUS-$i n=0
        while [ -L "$place-$n" ]; do n=$((n + 1)); done
        if [ $n -gt 0 ] && [ -e "/proc/$(readlink "$place-$((n - 1))")" ]; then continue; fi
        if ln -s $$ "$place-$n" 2>/dev/null; then slot=$i; break; fi
        if [ -L "$place-$n" ]; then i=$((i - 1)); fi  # another job was faster: look again
    done
    printf '%s"gpu_id": %s, "slot_id": %s, "pid": %d, "start_time": "%(%Y-%m-%dT%H:%M:%S%z)T"}\n' \
        "$1" "${BERTH_GPUS:-null}" "$slot" "$$" -1
}
begin "$@"
exec "$0" -c "$2"
'''


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
        """The fields that every metadata line begins with."""
        return {"job_index": self.index, "job_name": self.name}

    def request(self, asks: Mapping[str, Any], slots_dir: Path, slots: int) -> Dict[str, Any]:
        """The spec to submit."""
        bash = shutil.which("bash") or "/bin/bash"
        about = json.dumps({"event": "job_start", **self.about(), "command": self.spec["command"],
                            "working_dir": self.spec["dir"]})[:-1] + ", "
        return {**asks, **self.spec, "name": plain_name(self.name), "output": str(self.log).replace("%", "%%"),
                "command": [bash, "-c", _BEGIN, bash, about, self.spec["command"], str(slots_dir), str(slots)]}


class Batch:
    """One run_jobs call. It is used once."""

    def __init__(self, log_dir: Path, log: logging.Logger, interval: float, options: Sequence[str],
                 gpus: Gpus, completed: Callable[[], None]) -> None:
        self._log_dir = log_dir
        self._log = log
        self._interval = interval
        self._options = options
        self._gpus = gpus
        self._completed = completed  # called when a job has ended
        self._tasks: Dict[str, Task] = {}  # by job id
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self._closing = threading.Event()
        self._submitted = False  # there may be jobs

    def run(self, specs: Sequence[Mapping[str, Any]], names: Sequence[str], first: int, fit: Fit) -> List[int]:
        """Run all jobs and return their statuses in input order."""
        try:
            self._daemon = PrivateDaemon("kairos", self._options)
        except BaseException:
            close_main_log(self._log)
            raise
        self._client = self._daemon.client
        listener = threading.Thread(target=self._listen, name="berth events", daemon=True)
        try:
            self._start()
            listener.start()  # an open connection keeps the daemon from ending as idle
            self._await_gpus()
            tasks = self._submit(specs, names, first, fit)
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
        finished = not self._submitted or not self._left()
        self._closing.set()
        self._daemon.stop()
        if listener.ident is not None:
            listener.join()
        if finished:
            self._daemon.remove()
        else:
            self._log.error("Some jobs may still be running; their state is in %s", self._daemon.state_dir)
        close_main_log(self._log)

    def _left(self) -> bool:
        """Whether any job has not ended; True if the daemon cannot be asked."""
        try:
            return bool(self._client.list(reasons=False))
        except BerthError:
            return True

    def _start(self) -> None:
        """Start the daemon. It needs GPUs that it can read, and where there is an
        nvidia-smi they may yet come."""
        while True:
            try:
                self._daemon.start()
                return
            except BerthError as err:
                if not err.problem.startswith(_UNREADABLE) or shutil.which("nvidia-smi") is None:
                    raise
                self._unreadable(err.problem)

    def _await_gpus(self) -> None:
        """Wait until the daemon can read its GPUs."""
        while True:
            blocked = self._client.status().get("blocked")
            if not blocked:
                return
            self._unreadable(blocked)

    def _unreadable(self, why: str) -> None:
        self._log.warning("No job can start, looking again in %g s: %s", self._interval, why)
        time.sleep(self._interval)

    def _submit(self, specs: Sequence[Mapping[str, Any]], names: Sequence[str], first: int, fit: Fit) -> List[Task]:
        cards = self._client.gpus()
        asks = fit(cards)
        for card in self._own(cards):
            self._log.info("GPU %d: %s", card["index"], _memory(card))
        tasks = [Task(i, name, spec, create_job_log(self._log_dir, name))
                 for i, (spec, name) in enumerate(zip(specs, names), first)]
        slots = self._daemon.state_dir / "slots"
        slots.mkdir()
        self._submitted = True
        try:
            handles = self._client.submit_all(cast(JobSpec, task.request(asks, slots, self._gpus.slots)) for task in tasks)
        except BaseException:
            for task in tasks:  # they stay empty
                task.log.unlink()
            raise
        self._tasks = {handle.id: task for handle, task in zip(handles, tasks)}
        self._log.info("Queued %d jobs", len(tasks))
        return tasks

    def _listen(self) -> None:
        """Collect events, in a separate thread because reading them blocks.
        Events are numbered, so none is lost in a restart of the daemon."""
        seen = 0
        while not self._closing.is_set():
            try:
                for event in self._client.events(since=seen, follow=False):
                    seen = event.get("seq") or seen
                    self._events.put(event)
            except BerthError as err:
                self._log.error("%s", err)
            self._closing.wait(_RETRY_SECONDS)

    def _follow(self, until: float = float("inf")) -> None:
        """Handle events until every job has ended."""
        checked = time.monotonic()
        while self._waiting() and time.monotonic() < until:
            try:
                self._observe(self._events.get(timeout=min(self._interval, _LOOK_SECONDS)))
            except queue.Empty:
                pass
            if self._daemon.gone:
                self._log.warning("The daemon died; starting it again. Running jobs keep running")
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
            self._started(task, event["job"])
        elif kind == "ended" and task.status is None:
            self._ended(task, event["job"])

    def _started(self, task: Task, job: JobView) -> None:
        task.started = True
        memory = "".join(f"; {_memory(card)}" for card in self._cards(logging.INFO) if card["index"] == _gpu(job))
        self._log.info("Starting job %d (%s) on GPU %s%s; log %s", task.index, task.name, _gpu(job), memory, task.log)

    def _ended(self, task: Task, job: JobView) -> None:
        task.status = _status(job)
        self._completed()
        result = "Success" if task.status == 0 else "Failed"
        peaks = job["peak_vram_mib"] or {}
        append_json(task.log, {
            "event": "job_completion", **task.about(), "gpu_id": _gpu(job), "start_time": job["started_at"],
            "end_time": job["ended_at"], "return_code": task.status, "status": result, "outcome": job["outcome"],
            "reason": job["reason"], "peak_memory_mib": max(peaks.values(), default=None)})
        why = f": {job['reason']}" if job["reason"] else ""
        self._log.log(logging.INFO if task.status == 0 else logging.ERROR,
                      "Job %d (%s) completed with status: %s (%s, code %d, peak memory %s)%s", task.index, task.name,
                      result, job["outcome"], task.status, _mib(max(peaks.values(), default=None)), why)

    def _report(self) -> None:
        """Log why the first queued job waits, and the state of the GPUs. A wait
        for memory or for the driver is logged every time; a wait for another
        job only at DEBUG."""
        first = next((id for id in self._waiting() if not self._tasks[id].started), None)
        try:
            for card in self._cards(logging.DEBUG):
                self._log.debug("GPU %d: %s", card["index"], _memory(card))
            if first is not None:
                self._log_wait(self._tasks[first], self._client.why(first))
        except BerthError as err:
            self._log.debug("%s", err)  # the daemon is being restarted

    def _log_wait(self, task: Task, why: Mapping[str, Any]) -> None:
        cards = [card for card in why.get("gpus", []) if card.get("obstacle") != "excluded"]
        if why.get("kind") == "unreadable":
            self._log.warning("Job %d (%s) cannot start: %s", task.index, task.name, why["text"])
            return
        level = logging.DEBUG if all(c.get("obstacle") == "shares" for c in cards) else logging.INFO
        for card in cards:
            free, missing = card.get("free_mib", 0), card.get("missing_mib", 0)
            # Where it does not wait for memory, what it needs is not known.
            memory = f"{_mib(free)} free, {_mib(free + missing)} needed ({card['what']})" if missing else card["what"]
            self._log.log(level, "Job %d (%s) waits for GPU %d: %s", task.index, task.name, card["gpu"], memory)

    def _cards(self, level: int) -> List[Dict[str, Any]]:
        """This run's GPUs, or none if the log omits that level."""
        try:
            return self._own(self._client.gpus()) if self._log.isEnabledFor(level) else []
        except BerthError:
            return []

    def _own(self, cards: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        return [card for card in cards if card["index"] in self._gpus.ids]

    def _abandon(self) -> None:
        """Stop all jobs: with a grace period, and at once on a second Ctrl-C or
        SIGTERM."""
        if not self._submitted:
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
            self._follow(time.monotonic() + _REPORT_SECONDS)
        except (BerthError, TimeoutError) as err:
            self._log.error("%s", err)

    def _cancel_all(self, grace: Optional[float]) -> None:
        try:
            self._client.cancel("all", grace=grace)
        except BerthError:
            if not self._daemon.ends_within(_LOOK_SECONDS):
                raise
            self._daemon.start()  # it just died, and only a daemon can stop the jobs
            self._client.cancel("all", grace=grace)


def _status(job: JobView) -> int:
    """As in subprocess: minus the number of a signal. A job that never started
    has 127, as a command that a shell cannot find."""
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
    return (f"{_mib(card['free_mib'])} free of {_mib(card['total_mib'])}, "
            f"{_mib(card['budget_mib'])} allocated to jobs, "
            f"{_mib(card['foreign_mib'])} used by other processes")


def _mib(size: Optional[int]) -> str:
    return "n/a" if size is None else f"{size} MiB"
