"""A client for a berth daemon."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union, cast
from urllib.parse import quote

from .errors import BerthError
from .places import find_socket, program
from .views import OVER, Event, JobView
from .wire import Reply, Wire

_EVENT_SILENCE = 50.0  # three missed heartbeats
_PAUSE = 0.2  # between attempts to reach a lost daemon
_AT_ONCE = 0.001  # 0 would mean the longest possible wait

Words = Union[str, int, "Handle"]
"""A job or several: 17, "1-3,7", "@", a Handle."""


class Handle:
    """A submitted job."""

    def __init__(self, client: Client, id: str, name: str, notes: Sequence[str] = ()) -> None:
        self._client = client
        self.id = id
        self.name = name
        self.notes = list(notes)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<berth job {self.id} ({self.name})>"

    def show(self) -> Dict[str, Any]:
        """Everything about it."""
        return self._client.show(self)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Wait for it to end, and return its status (see Client.wait)."""
        return max(self._client.wait(self, timeout=timeout))

    def why(self) -> Dict[str, Any]:
        """Why it waits, or how it ended."""
        return self._client.why(self)

    def logs(self, follow: bool = False) -> Iterator[bytes]:
        """Its output; of an array, that of one task after the other."""
        if not self.show().get("tasks"):
            yield from self._client.logs(self, follow=follow)
            return
        for task in self._client.list(self, over=True, reasons=False):
            if follow or task["attempt"]:
                yield from self._client.logs(task["id"], follow=follow)

    def cancel(self, grace: Optional[float] = None) -> None:
        """Cancel it, running or not."""
        self._client.cancel(self, grace=grace)


class Client:
    """A daemon, found as the berth command finds it: the given address, else
    BERTH_SOCKET, else the machine's, else the user's own. An address is the
    path of a socket, or https://host:port with a token.

    If no daemon is running, the first submit starts a private one, as `berth
    submit` does, unless autostart is False or BERTH_NO_AUTOSTART=1 is set.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, autostart: bool = True) -> None:
        found, named = (address, True) if address else find_socket()
        self._wire = Wire(os.fspath(found), token)
        self._autostart = autostart and not named

    @property
    def address(self) -> str:
        """Where the daemon listens."""
        return self._wire.address

    # Submitting

    def submit(self, command: Union[str, Sequence[str]], *, environ: Optional[Mapping[str, str]] = None,
               **spec: Any) -> Handle:
        """Queue one job. A string is a shell line, a list is executed as it is.
        Keywords are the keys of a job (berth help jobspec). environ is its
        environment (default: this process's)."""
        return self.submit_all([{"command": command, **spec}], environ=environ)[0]

    def submit_all(self, specs: Iterable[Mapping[str, Any]], *,
                   environ: Optional[Mapping[str, str]] = None) -> List[Handle]:
        """Queue several jobs: all of them, or none."""
        jobs = [_spec(s) for s in specs]
        environ = os.environ if environ is None else environ
        try:
            snapshots = self._has_snapshots(jobs)
        except BerthError as err:
            if err.kind != "unreachable" or not self._autostart:
                raise
            _start_private()
            snapshots = self._has_snapshots(jobs)
        if snapshots:
            accepted = self._submit_with_program(jobs, environ)
        else:
            body = {"jobs": jobs, "dir": os.getcwd(), "environ": _pairs(environ), "umask": _umask()}
            accepted = self._wire.call("POST", "/v1/jobs", body)["jobs"]
        return [Handle(self, j["id"], j["name"], j.get("notes") or ()) for j in accepted]

    def _has_snapshots(self, jobs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a job runs a snapshot of its code. Another machine cannot have
        one, and its daemon says so."""
        if "://" in self.address:
            return False
        default = "auto" if self.status().get("snapshot") else "no"
        return any(str(job.get("snapshot", default)).lower() not in ("no", "false", "0") for job in jobs)

    def _submit_with_program(self, jobs: Sequence[Mapping[str, Any]],
                             environ: Mapping[str, str]) -> List[Dict[str, Any]]:
        """Submit as the berth program does, which copies the code."""
        asked = subprocess.run([program(), "submit", "--json", "--socket", self.address, "-f", "-"],
                               input=json.dumps(jobs), env=dict(environ), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, check=False)
        if asked.returncode != 0:
            raise BerthError.from_stderr(asked.stderr, "the jobs were not submitted")
        reply = json.loads(asked.stdout)
        return cast(List[Dict[str, Any]], reply if isinstance(reply, list) else [reply])

    # Looking

    def list(self, *ids: Words, over: bool = False, user: Optional[str] = None, name: Optional[str] = None,
             states: Sequence[str] = (), reasons: bool = True, group: Optional[str] = None) -> List[JobView]:
        """Queued and running jobs; with over or ids, ended ones too."""
        query: Dict[str, Any] = {"id": [str(i) for i in ids], "over": over or None, "user": user, "name": name, "group": group,
                                 "state": list(states), "reasons": reasons or None}
        jobs: List[JobView] = []
        while True:
            page = self._wire.call("GET", "/v1/jobs", query=query)
            jobs += cast(List[JobView], page["jobs"])
            if not page.get("next"):
                return jobs
            query["after"] = page["next"]

    def show(self, id: Words) -> Dict[str, Any]:
        """Everything about one job; of an array, with its tasks summed up."""
        return cast(Dict[str, Any], self._wire.call("GET", _path(id)))

    def why(self, id: Words) -> Dict[str, Any]:
        """Why a job waits and when it should start, or how it ended."""
        return cast(Dict[str, Any], self._wire.call("GET", _path(id, "/why")))

    def samples(self, id: Words, *, start: Optional[str] = None, end: Optional[str] = None, step: int = 0) -> Dict[str, Any]:
        """What a job used over time, within RFC 3339 times, at most one point every step seconds."""
        return self._samples(_path(id, "/samples"), start, end, step)

    def gpu_samples(self, gpu: int, *, start: Optional[str] = None, end: Optional[str] = None, step: int = 0) -> Dict[str, Any]:
        """What a GPU did over time."""
        return self._samples(f"/v1/gpus/{int(gpu)}/samples", start, end, step)

    def _samples(self, path: str, start: Optional[str], end: Optional[str], step: int) -> Dict[str, Any]:
        return cast(Dict[str, Any], self._wire.call("GET", path, query={"from": start, "to": end, "step": step or None}))

    def gpus(self) -> List[Dict[str, Any]]:
        """The GPUs, their memory, and the jobs and processes on them."""
        return cast(List[Dict[str, Any]], self._wire.call("GET", "/v1/gpus"))

    def history(self, *, user: Optional[str] = None, since: Optional[str] = None, limit: int = 100) -> List[JobView]:
        """Ended jobs, newest first. since is an RFC 3339 time."""
        query = {"state": sorted(OVER), "over": True, "newest": True, "user": user, "since": since, "limit": limit}
        return cast(List[JobView], self._wire.call("GET", "/v1/jobs", query=query)["jobs"])

    def stats(self, *, user: Optional[str] = None, since: Optional[str] = None,
              until: Optional[str] = None) -> Dict[str, Any]:
        """Waits, outcomes and GPU-hours: in total, by user and by day."""
        query = {"user": user, "since": since, "until": until}
        return cast(Dict[str, Any], self._wire.call("GET", "/v1/stats", query=query))

    def status(self) -> Dict[str, Any]:
        """The daemon itself."""
        return cast(Dict[str, Any], self._wire.call("GET", "/v1/status"))

    def logs(self, id: Words, *, follow: bool = False, lines: int = 0, attempt: int = 0) -> Iterator[bytes]:
        """A job's output as it arrives. With follow, until the job
        ends, through restarts of the daemon: no byte is lost or repeated."""
        query: Dict[str, Any] = {"attempt": attempt or None, "lines": lines or None, "follow": follow or None,
                                 "pieces": True}
        while True:
            try:
                with self._wire.open("GET", _path(id, "/log"), query=query) as reply:
                    yield from _read_log(reply, query)
                    if reply.trailers.get("berth-log-end") != "gap":
                        return
            except _Cut:
                if not follow:
                    raise
                self._wait_for_daemon()

    def events(self, *, since: int = -1, follow: bool = True, job: Optional[Words] = None,
               gpus: bool = False) -> Iterator[Event]:
        """Events from now on (since=-1), or after an event: its seq, or 0 for
        the oldest one kept. Continues through restarts of the daemon; without
        follow it ends when the daemon does."""
        query: Dict[str, Any] = {"job": None if job is None else str(job), "gpus": gpus or None, "since": since}
        while True:
            try:
                with self._wire.open("GET", "/v1/events", query=query, timeout=_EVENT_SILENCE) as reply:
                    yield from _read_events(reply, query)
            except (OSError, ValueError, http.client.HTTPException):
                pass
            except BerthError as err:
                if err.kind not in ("unreachable", "unavailable", "too_much"):
                    raise
            if not follow:
                return
            self._wait_for_daemon()

    # Acting

    def wait(self, *ids: Words, timeout: Optional[float] = None) -> List[int]:
        """Wait for jobs to end, and return their statuses: the exit code,
        128 + the signal, 124 for a time limit, else 1. They are in the order
        of the ids; the jobs of a range or an array are in numeric order.
        Raises TimeoutError if they do not end in time. The daemon may restart
        in the meantime."""
        words = [str(i) for i in ids]
        reply = self._wait_until(words, timeout, "end")
        if not reply["done"]:
            raise TimeoutError(f"not finished after {timeout} s: {', '.join(words)}")
        return _statuses(words, reply["jobs"])

    def _wait_until(self, words: Sequence[str], timeout: Optional[float], what: str) -> Dict[str, Any]:
        """Wait for what, through restarts of the daemon; not done: it took too long."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        reply = self._wait(words, _AT_ONCE, what)
        while not reply["done"] and time.monotonic() < end:
            try:
                reply = self._wait(words, max(_AT_ONCE, min(60.0, end - time.monotonic())), what)
            except BerthError as err:
                if err.kind != "unreachable":
                    raise
                time.sleep(_PAUSE)
        return reply

    def _wait(self, words: Sequence[str], seconds: float, what: str) -> Dict[str, Any]:
        asked = {"select": {"ids": list(words)}, "timeout_s": seconds, "for": what}
        return cast(Dict[str, Any], self._wire.call("POST", "/v1/jobs/wait", asked))

    def cancel(self, *ids: Words, all: bool = False, grace: Optional[float] = None) -> List[Dict[str, Any]]:
        """Cancel jobs, running or not. grace is the time between SIGTERM and
        SIGKILL."""
        return self._act("cancel", ids, all, grace)

    def hold(self, *ids: Words) -> List[Dict[str, Any]]:
        """Keep queued jobs from starting."""
        return self._act("hold", ids)

    def release(self, *ids: Words) -> List[Dict[str, Any]]:
        """Let held jobs start."""
        return self._act("release", ids)

    def park(self, *ids: Words, timeout: float = 0) -> List[Dict[str, Any]]:
        """Take running jobs off their GPUs without losing their work. With a
        timeout in seconds, wait until they are parked or the driver refused:
        the results then say what became of them."""
        return self._parked(self._act("park", ids), "parked", timeout)

    def unpark(self, *ids: Words, timeout: float = 0) -> List[Dict[str, Any]]:
        """Bring parked jobs back to their GPUs. With a timeout in seconds, wait
        until they run."""
        return self._parked(self._act("unpark", ids), "running", timeout)

    def _parked(self, acted: List[Dict[str, Any]], state: str, timeout: float) -> List[Dict[str, Any]]:
        """Wait for jobs to be parked or back, and say which are."""
        words = [one["id"] for one in acted if one["done"]]
        if not words or timeout <= 0:
            return acted
        self._wait_until(words, timeout, state)
        now = {view["id"]: view for view in self._wait(words, _AT_ONCE, state)["jobs"]}
        for one in acted:
            view = now.get(one["id"])
            if view is not None:
                one["state"], one["done"] = view["state"], view["state"] == state
                if not one["done"]:
                    one["what"] = view["park_refused"] or f"it is {view['state']}"
        return acted

    def requeue(self, *ids: Words) -> List[Dict[str, Any]]:
        """Run jobs again from the beginning."""
        return self._act("requeue", ids)

    def edit(self, id: Words, **changes: Any) -> Dict[str, Any]:
        """Change keys (berth help jobspec) of a job that has not started."""
        return cast(Dict[str, Any], self._wire.call("PATCH", _path(id), {"set": _spec(changes)}))

    def adopt(self, pid: int, *, gpus: Sequence[int] = (), vram: Optional[str] = None,
              name: Optional[str] = None) -> Dict[str, Any]:
        """Account for a process that berth did not start, without touching it."""
        body = {"pid": pid, "gpus": list(gpus), "vram": vram or "", "name": name or ""}
        return cast(Dict[str, Any], self._wire.call("POST", "/v1/adopt", body))

    def pause(self, gpu: int) -> Dict[str, Any]:
        """Start no new jobs on a GPU; running ones continue."""
        return cast(Dict[str, Any], self._wire.call("POST", f"/v1/gpus/{int(gpu)}/pause"))

    def resume(self, gpu: int) -> Dict[str, Any]:
        """Allow jobs on a GPU again."""
        return cast(Dict[str, Any], self._wire.call("POST", f"/v1/gpus/{int(gpu)}/resume"))

    def groups(self, user: Optional[str] = None) -> List[Dict[str, Any]]:
        """Groups that are limited or paused or have unfinished jobs: one's own, or another user's."""
        return cast(List[Dict[str, Any]], self._wire.call("GET", "/v1/groups", query={"user": user}))

    def set_group(self, name: str, limit: Union[int, str, None] = None, paused: Optional[bool] = None) -> Dict[str, Any]:
        """Set how many jobs of a group run at a time (a number or "none"), or pause and resume it."""
        change: Dict[str, Any] = {}
        if limit is not None:
            change["limit"] = limit
        if paused is not None:
            change["paused"] = paused
        return cast(Dict[str, Any], self._wire.call("POST", f"/v1/groups/{quote(name, safe='')}", change))

    def _act(self, action: str, ids: Sequence[Words], all: bool = False,
             grace: Optional[float] = None) -> List[Dict[str, Any]]:
        body: Dict[str, Any] = {"action": action, "select": {"ids": [str(i) for i in ids], "all": all}}
        if grace is not None:
            body["grace_s"] = grace
        acted = cast(List[Dict[str, Any]], self._wire.call("POST", "/v1/jobs/act", body)["jobs"])
        if acted and not any(one["done"] or one.get("state") for one in acted):
            raise BerthError("there is no job " + ", ".join(one["id"] for one in acted),
                             "berth list --all shows all jobs", "not_found")
        return acted

    def _wait_for_daemon(self) -> None:
        """Wait until the daemon answers again, however long that takes."""
        while True:
            time.sleep(_PAUSE)
            try:
                self.status()
                return
            except BerthError as err:
                if err.kind != "unreachable":
                    return


class _Cut(BerthError):
    """A log stream that ended without its end marker."""


def _read_log(reply: Reply, query: Dict[str, Any]) -> Iterator[bytes]:
    """The part of a log that one connection delivers. query is advanced to the
    next byte."""
    headers = reply.response.headers
    query["attempt"] = int(headers["Berth-Log-Attempt"])
    query["offset"] = int(headers["Berth-Log-Offset"])
    query["lines"] = None
    try:
        for piece in reply.chunks():
            query["offset"] += len(piece)
            yield piece
    except (OSError, ValueError, http.client.HTTPException) as err:
        raise _Cut(f"the log was cut off: {err}", kind="unreachable") from err
    end = reply.trailers.get("berth-log-end")
    if end == "gap":
        following = int(reply.trailers["berth-log-next"])
        yield f"\n[berth: {following - query['offset']:,} bytes were dropped here to keep the log within its limit]\n".encode()
        query["offset"] = following
    elif end == "failed":
        raise BerthError(f"the log cannot be read beyond byte {query['offset']}", "see the daemon's log")
    elif end != "complete":
        raise _Cut("the daemon went away", kind="unreachable")


def _read_events(reply: Reply, query: Dict[str, Any]) -> Iterator[Event]:
    """The events that one connection delivers. query is advanced to the last."""
    kind, rest = "", b""
    for piece in reply.chunks():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            field, _, value = line.decode().partition(": ")
            if not line:
                kind = ""
            elif field == "event":
                kind = value
            elif field == "data" and kind == "error":
                error = json.loads(value)
                raise BerthError(error["problem"], error.get("hint", ""), "refused")
            elif field == "data" and kind == "":
                event = cast(Event, json.loads(value))
                query["since"] = event.get("seq") or query["since"]
                yield event


def exit_status(job: JobView) -> int:
    """A job's outcome as one number: its exit code, 128 + the signal, 124 for
    its time limit, 0 only if it succeeded, else 1."""
    kind, _, what = (job["outcome"] or "").partition(":")
    if kind == "exit":
        return int(what)
    if kind == "signal" and signal_number(what):
        return 128 + signal_number(what)
    return {"ok": 0, "timeout": 124}.get(kind, 1)


def _statuses(ids: Sequence[str], jobs: List[JobView]) -> List[int]:
    found = {j["id"]: exit_status(j) for j in jobs}
    return [found[i] for i in ids] if set(ids) == set(found) else list(found.values())


def signal_number(name: str) -> int:
    """The number of a signal, given as a name (KILL) or a number."""
    try:
        return int(signal.Signals["SIG" + name.upper()])
    except KeyError:
        return int(name) if name.isdigit() else 0


def _path(id: Words, under: str = "") -> str:
    """The URL path of a job, with its id escaped."""
    return f"/v1/jobs/{quote(str(id), safe='')}{under}"


def _spec(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A spec in the form of the API."""
    spec: Dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if key == "command":
            if isinstance(value, bytes) or not hasattr(value, "__iter__"):
                raise TypeError(f"command: expected a shell line or a list of words, found {value!r}")
            spec[key] = value if isinstance(value, str) else [os.fsdecode(word) for word in value]
        elif key == "env":
            spec[key] = {k: str(v) for k, v in value.items()}
        elif isinstance(value, (list, tuple, range)):
            spec[key] = ("\n" if key == "notify" else ",").join(str(v) for v in value)
        elif isinstance(value, (bool, int, float)):
            spec[key] = value
        else:
            spec[key] = str(value)
    return spec


def _pairs(environ: Mapping[str, str]) -> List[str]:
    """An environment in the form of the API. JSON cannot hold bytes that are not
    UTF-8, so variables with such values are left out."""
    pairs = []
    for key, value in environ.items():
        try:
            f"{key}={value}".encode()
            pairs.append(f"{key}={value}")
        except UnicodeEncodeError:
            continue
    return pairs


def _umask() -> Optional[int]:
    """This process's umask, which only Linux can read without changing it."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None


def _start_private() -> None:
    """Let berth start a private daemon by its own rules. It does so for every
    submission, even a dry run."""
    asked = subprocess.run([program(), "submit", "--dry-run", "--gpus", "0", "--", "true"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise BerthError.from_stderr(asked.stderr, "no daemon is running, and none could be started")


__all__ = ["Client", "Handle", "Words", "exit_status", "OVER"]
