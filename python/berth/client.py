"""A client for a berth daemon."""

from __future__ import annotations

import concurrent.futures
import os
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union, cast, overload
from urllib.parse import quote

from . import notebook, streams, submission
from .errors import BerthError, no_job
from .fields import Command, JobSpec, wire
from .handles import Array, Batch, Handle, Params, Sweep, Words, axes, words
from .places import Place, find_daemon, has_state, program
from .statuses import exit_status
from .streams import PASSING, PAUSE, Tap
from .times import Duration, Moment, limit, moment, seconds
from .views import OVER, Acted, Event, JobView
from .watch import Watch
from .wire import Wire

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .fields import Fields


_AT_ONCE = 0.001  # 0 would mean the longest possible wait
_WORDS = 200  # in one URL


class Client:
    """A daemon, found as the berth command finds it: the given address, else
    BERTH_HOST or BERTH_SOCKET, else the machine's, else the user's own. An
    address is the path of a socket, or https://host:port with a token.

    If the user's own daemon does not run, it is started: by the first submit, as
    `berth submit` does, by any other call if there are jobs to read, and while
    jobs are waited for if it was killed; unless autostart is False or
    BERTH_NO_AUTOSTART=1 is set. Threads may share a client.
    """

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, autostart: bool = True) -> None:
        found = Place(os.fspath(address), token) if address else find_daemon()
        self._wire = Wire(found.address, token or found.token, found.ca)
        self._autostart = autostart and found.own
        if self._autostart:
            self._wire.start = self._start
        self._watch = Watch(self._wire, lambda ids: self._views(ids, self._wire.call))  # it outlasts the daemon

    def __repr__(self) -> str:
        return f"<berth client of {self.address}>"

    def _repr_html_(self) -> str:
        return notebook.client_html(self.address, self.status(), self.gpus(), self.list())

    @property
    def address(self) -> str:
        """Where the daemon listens."""
        return self._wire.address

    def _call(self, method: str, path: str, body: Any = None, query: Optional[Mapping[str, Any]] = None) -> Any:
        """One request. A private daemon that does not run is started."""
        try:
            return self._wire.call(method, path, body, query)
        except BerthError as err:
            if err.kind != "unreachable" or not self._autostart or not has_state():
                raise
            self._start()
            return self._wire.call(method, path, body, query)

    def _start(self) -> None:
        try:
            submission.start_private()
        except BerthError:
            try:
                self.status()  # somebody else was faster
            except BerthError:
                pass
            else:
                return
            raise

    # Submitting

    @overload
    def submit(self, command: Command, *, array: Union[int, str, Sequence[int], range],
               environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> Array: ...
    @overload
    def submit(self, command: Command, *, array: None = None,
               environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> Handle: ...
    def submit(self, command: Command, *, array: Union[int, str, Sequence[int], range, None] = None,
               environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> Union[Handle, Array]:
        """Queue one job, or an array of them. A string is a shell line, a list is
        executed as it is. Keywords are the fields of a job (berth help jobspec).
        environ is its environment (default: this process's)."""
        spec: JobSpec = {**fields, "command": command, "array": array}  # type: ignore[typeddict-item, unused-ignore]
        accepted = self._submit([spec], environ)[0]
        kind = Handle if array is None else Array
        return kind(self, accepted["id"], accepted["name"], accepted.get("notes") or ())

    def sweep(self, command: Command, params: Params, *, metrics: Sequence[str] = (),
              environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> Sweep:
        """Queue a trial for each combination of the values of the parameters, as
        `berth sweep` does: {lr} in the command, name, dir, output and variables
        stands for a value. params maps each name to its values, or lists the
        trials, each as a dictionary. metrics are picked from the logs; max limits
        how many trials run at a time."""
        asked: Dict[str, Any] = {"axes": axes(params), "metrics": [*metrics]}
        spec = {**fields, "command": command, "sweep": asked}
        accepted = self._submit([cast(JobSpec, spec)], environ)[0]
        return Sweep(self, accepted["id"], accepted["name"], accepted.get("notes") or ())

    def submit_all(self, specs: Iterable[JobSpec], *, environ: Optional[Mapping[str, str]] = None) -> Batch:
        """Queue several jobs in one request: all of them, or none."""
        return Batch(self, (Handle(self, one["id"], one["name"], one.get("notes") or ())
                            for one in self._submit(specs, environ)))

    def _submit(self, specs: Iterable[JobSpec], environ: Optional[Mapping[str, str]]) -> List[Dict[str, Any]]:
        jobs = submission.sized([wire(spec) for spec in specs])
        environ = os.environ if environ is None else environ
        try:
            snapshots = self._has_snapshots(jobs)
        except BerthError as err:
            if err.kind != "unreachable" or not self._autostart:
                raise
            self._start()
            snapshots = self._has_snapshots(jobs)
        if snapshots:
            return submission.with_program(self.address, jobs, environ)
        body = submission.request(jobs, os.getcwd(), environ)
        return cast("List[Dict[str, Any]]", self._wire.call("POST", "/v1/jobs", body)["jobs"])

    def _has_snapshots(self, jobs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a job runs a snapshot of its code. Another machine cannot have
        one, and its daemon says so."""
        if "://" in self.address:
            return False
        default = "auto" if self.status().get("snapshot") else "no"
        return any(str(job.get("snapshot", default)).lower() not in ("no", "false", "0") for job in jobs)

    def job(self, id: Words) -> Handle:
        """A handle of a job that was submitted before."""
        shown = self.show(id)
        return Handle(self, shown["id"], shown["name"])

    def array(self, id: Words) -> Array:
        """A handle of an array or a sweep that was submitted before."""
        shown = self.show(id)
        if "tasks" not in shown:
            raise BerthError(f"job {shown['id']} is not an array", "Client.job is for a single job", "invalid")
        return (Sweep if shown.get("sweep") else Array)(self, shown["id"], shown["name"])

    def jobs(self, *ids: Words) -> Batch:
        """Handles of jobs that were submitted before."""
        return Batch(self, (Handle(self, job["id"], job["name"]) for job in self._named(ids)))

    def _named(self, ids: Sequence[Words]) -> List[JobView]:
        """The jobs with these ids, of which there is at least one."""
        jobs = self.list(*ids, over=True, reasons=False)
        if ids and not jobs:
            raise no_job(str(id) for id in ids)
        return jobs

    # Looking

    def list(self, *ids: Words, over: bool = False, user: Optional[str] = None, name: Optional[str] = None,
             states: Sequence[str] = (), reasons: bool = True, group: Optional[str] = None) -> List[JobView]:
        """Queued and running jobs; with over or ids, ended ones too."""
        query: Dict[str, Any] = {"id": [str(i) for i in ids], "over": over or None, "user": user, "name": name, "group": group,
                                 "state": [*states], "reasons": reasons or None}
        jobs: List[JobView] = []
        try:
            while True:
                page = self._call("GET", "/v1/jobs", query=query)
                jobs += cast("List[JobView]", page["jobs"])
                if not page.get("next"):
                    return jobs
                query["after"] = page["next"]
        except BerthError as err:
            if err.kind != "unreachable" or not self._autostart or has_state():
                raise
            return []  # no daemon has ever run: there are no jobs

    def show(self, id: Words) -> Dict[str, Any]:
        """Everything about one job; of an array, with its tasks summed up."""
        return cast(Dict[str, Any], self._call("GET", _path(id)))

    def why(self, id: Words) -> Dict[str, Any]:
        """Why a job waits and when it should start, or how it ended."""
        return cast(Dict[str, Any], self._call("GET", _path(id, "/why")))

    def samples(self, id: Words, *, start: Optional[Moment] = None, end: Optional[Moment] = None,
                step: Duration = 0) -> Dict[str, Any]:
        """What a job used over time, at most one point every step."""
        return self._samples(_path(id, "/samples"), start, end, step)

    def gpu_samples(self, gpu: int, *, start: Optional[Moment] = None, end: Optional[Moment] = None,
                    step: Duration = 0) -> Dict[str, Any]:
        """What a GPU did over time."""
        return self._samples(f"/v1/gpus/{int(gpu)}/samples", start, end, step)

    def _samples(self, path: str, start: Optional[Moment], end: Optional[Moment], step: Duration) -> Dict[str, Any]:
        query = {"from": moment(start), "to": moment(end), "step": int(seconds(step)) or None}
        return cast(Dict[str, Any], self._call("GET", path, query=query))

    def gpus(self) -> List[Dict[str, Any]]:
        """The GPUs, their memory, and the jobs and processes on them."""
        return cast("List[Dict[str, Any]]", self._call("GET", "/v1/gpus"))

    def gpu_history(self, gpu: Optional[int] = None, *, since: Optional[Moment] = None, limit: int = 100) -> List[Dict[str, Any]]:
        """What happened to the GPUs, the latest first."""
        query = {"gpu": gpu, "since": moment(since), "limit": limit}
        return cast("List[Dict[str, Any]]", self._call("GET", "/v1/gpus/history", query=query))

    def history(self, *, user: Optional[str] = None, since: Optional[Moment] = None, limit: int = 100) -> List[JobView]:
        """Ended jobs, newest first."""
        query = {"state": sorted(OVER), "over": True, "newest": True, "user": user, "since": moment(since), "limit": limit}
        return cast("List[JobView]", self._call("GET", "/v1/jobs", query=query)["jobs"])

    def batches(self, *, file: Optional[str] = None, user: Optional[str] = None) -> List[Dict[str, Any]]:
        """Jobs files and arrays that have unfinished jobs, summed up."""
        return cast("List[Dict[str, Any]]", self._call("GET", "/v1/batches", query={"file": file, "user": user}))

    def sweeps(self, *, user: Optional[str] = None, all: bool = False) -> List[Dict[str, Any]]:
        """Sweeps with unfinished trials, summed up; with all, ended ones too."""
        return cast("List[Dict[str, Any]]", self._call("GET", "/v1/sweeps", query={"user": user, "all": all or None}))

    def trials(self, id: Words, *, metrics: Sequence[str] = ()) -> Dict[str, Any]:
        """The trials of a sweep or an array, with their parameters and what is
        picked from their logs."""
        return cast(Dict[str, Any], self._call("GET", "/v1/trials", query={"id": str(id), "metric": [*metrics]}))

    def stats(self, *, user: Optional[str] = None, since: Optional[Moment] = None,
              until: Optional[Moment] = None) -> Dict[str, Any]:
        """Waits, outcomes and GPU-hours: in total, by user and by day."""
        query = {"user": user, "since": moment(since), "until": moment(until)}
        return cast(Dict[str, Any], self._call("GET", "/v1/stats", query=query))

    def status(self) -> Dict[str, Any]:
        """The daemon itself. This never starts one."""
        return cast(Dict[str, Any], self._wire.call("GET", "/v1/status"))

    def logs(self, id: Words, *, follow: bool = False, lines: int = 0, attempt: int = 0,
             tap: Optional[Tap] = None) -> Iterator[str]:
        """The lines of a job's output. With follow, until the job ends, through
        restarts of the daemon: no byte is lost or repeated."""
        return streams.lines(self.log_bytes(id, follow=follow, lines=lines, attempt=attempt, tap=tap))

    def log_bytes(self, id: Words, *, follow: bool = False, lines: int = 0, attempt: int = 0,
                  tap: Optional[Tap] = None) -> Iterator[bytes]:
        """The same as bytes, as they arrive."""
        query = {"attempt": attempt or None, "lines": lines or None, "follow": follow or None}
        return streams.log_bytes(self._wire, _path(id, "/log"), query, tap or Tap())

    def events(self, *, since: int = -1, follow: bool = True, job: Optional[Words] = None, gpus: bool = False,
               tap: Optional[Tap] = None) -> Iterator[Event]:
        """Events from now on (since=-1), or after an event: its seq, or 0 for
        the oldest one kept. Continues through restarts of the daemon; without
        follow it ends when the daemon does."""
        query = {"job": None if job is None else str(job), "gpus": gpus or None, "since": since}
        return streams.events(self._wire, query, tap or Tap(), follow)

    # Waiting

    def wait(self, *ids: Words, timeout: Optional[Duration] = None) -> List[int]:
        """Wait for jobs to end, and return their statuses: the exit code,
        128 + the signal, 124 for a time limit, else 1. They are in the order
        of the ids; the jobs of a range or an array are in numeric order.
        Raises TimeoutError if they do not end in time. The daemon may restart
        in the meantime."""
        return [exit_status(job) for job in self._ended([str(i) for i in ids], timeout)]

    def _ended(self, ids: Sequence[str], timeout: Optional[Duration], any: bool = False) -> List[JobView]:
        """Wait for jobs to end, or for one of them, and return all."""
        most = limit(timeout)
        if any and not ids:
            return []
        reply = self._wait_until(words(ids), most, "end", any)
        if not reply["done"]:
            raise TimeoutError(f"not finished after {most:g} s: {', '.join(words(ids))}")
        jobs = {job["id"]: job for job in cast("List[JobView]", reply["jobs"])}
        return [jobs[id] for id in ids] if set(ids) == set(jobs) else [*jobs.values()]

    def _wait_until(self, ids: Sequence[str], timeout: Optional[float], what: str, any: bool = False) -> Dict[str, Any]:
        """Wait for what, through restarts of the daemon; not done: it took too long."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        reply = self._wait(ids, _AT_ONCE, what, any, self._call)
        while not reply["done"] and time.monotonic() < end:
            try:
                reply = self._wait(ids, max(_AT_ONCE, min(60.0, end - time.monotonic())), what, any)
            except BerthError as err:
                if err.kind not in PASSING:
                    raise
                time.sleep(PAUSE)
                self._wire.revive(err)
        return reply

    def _wait(self, ids: Sequence[str], seconds: float, what: str, any: bool = False,
              call: Optional[Callable[..., Any]] = None) -> Dict[str, Any]:
        asked = {"select": {"ids": [*ids]}, "timeout_s": seconds, "for": what, "any": any}
        return cast(Dict[str, Any], (call or self._wire.call)("POST", "/v1/jobs/wait", asked))

    def _views(self, ids: Sequence[str], call: Optional[Callable[..., Any]] = None) -> List[JobView]:
        """Jobs in the order of their ids; those that are gone are left out."""
        found: Dict[str, JobView] = {}
        short = words(ids)
        for at in range(0, len(short), _WORDS):
            query: Dict[str, Any] = {"id": short[at:at + _WORDS], "over": True}
            while True:
                page = (call or self._call)("GET", "/v1/jobs", query=query)
                found.update((job["id"], job) for job in page["jobs"])
                if not page.get("next"):
                    break
                query["after"] = page["next"]
        return [found[id] for id in ids if id in found]

    def _as_completed(self, ids: Sequence[str], timeout: Optional[float] = None) -> Iterator[JobView]:
        """Jobs as they end, from the one stream of events."""
        ends = self._watch.add(ids)
        try:
            for end in concurrent.futures.as_completed(ends.values(), timeout):
                yield end.result()
        except concurrent.futures.TimeoutError:
            left = words([id for id, end in ends.items() if not end.done()])
            raise TimeoutError(f"not finished after {timeout:g} s: {', '.join(left)}") from None
        finally:
            self._watch.forget(ends)

    # Acting

    def cancel(self, *ids: Words, all: bool = False, grace: Optional[Duration] = None) -> List[Acted]:
        """Cancel jobs, running or not. grace is the time between SIGTERM and
        SIGKILL."""
        return self._act("cancel", ids, all, grace_s=limit(grace))

    def hold(self, *ids: Words) -> List[Acted]:
        """Keep queued jobs from starting."""
        return self._act("hold", ids)

    def release(self, *ids: Words) -> List[Acted]:
        """Let held jobs start."""
        return self._act("release", ids)

    def park(self, *ids: Words, timeout: Duration = 0, until: Optional[Moment] = None) -> List[Acted]:
        """Take running jobs off their GPUs without losing their work, until a
        time, or in how long: "2h". With a timeout, wait until they are parked or
        the driver refused: the results then say what became of them."""
        return self._parked(self._act("park", ids, until=moment(until, ahead=True)), "parked", seconds(timeout))

    def unpark(self, *ids: Words, timeout: Duration = 0) -> List[Acted]:
        """Bring parked jobs back to their GPUs. With a timeout, wait until they
        run."""
        return self._parked(self._act("unpark", ids), "running", seconds(timeout))

    def _parked(self, acted: List[Acted], state: str, timeout: float) -> List[Acted]:
        """Wait for jobs to be parked or back, and say which are."""
        told = [one["id"] for one in acted if one["done"]]
        if not told or timeout <= 0:
            return acted
        self._wait_until(told, timeout, state)
        now = {view["id"]: view for view in self._wait(told, _AT_ONCE, state)["jobs"]}
        for one in acted:
            view = now.get(one["id"])
            if view is not None:
                one["state"], one["done"] = view["state"], view["state"] == state
                if not one["done"]:
                    one["what"] = view["park_refused"] or f"it is {view['state']}"
        return acted

    def requeue(self, *jobs: Words, **changes: Unpack[Fields]) -> List[Acted]:
        """Run jobs again from the beginning; those that have ended, with changes
        if you like."""
        return self._act("requeue", jobs, changes={"set": submission.sized([wire(changes)])[0]} if changes else None)

    def edit(self, id: Words, **changes: Unpack[Fields]) -> Dict[str, Any]:
        """Change fields of a job that has not started."""
        return cast(Dict[str, Any], self._call("PATCH", _path(id), {"set": submission.sized([wire(changes)])[0]}))

    def adopt(self, pid: int, *, gpus: Sequence[int] = (), vram: Union[int, str, None] = None,
              name: Optional[str] = None) -> Dict[str, Any]:
        """Account for a process that berth did not start, without touching it."""
        body = {"pid": pid, "gpus": [*gpus], "vram": str(vram or ""), "name": name or ""}
        return cast(Dict[str, Any], self._call("POST", "/v1/adopt", body))

    def pause(self, gpu: int) -> Dict[str, Any]:
        """Start no new jobs on a GPU; running ones continue."""
        return cast(Dict[str, Any], self._call("POST", f"/v1/gpus/{int(gpu)}/pause"))

    def resume(self, gpu: int) -> Dict[str, Any]:
        """Allow jobs on a GPU again."""
        return cast(Dict[str, Any], self._call("POST", f"/v1/gpus/{int(gpu)}/resume"))

    def drain(self, gpu: int, *, park: bool = False) -> Dict[str, Any]:
        """Pause a GPU, and with park also park its jobs."""
        return cast(Dict[str, Any], self._call("POST", f"/v1/gpus/{int(gpu)}/drain", {"park": park}))

    def groups(self, user: Optional[str] = None) -> List[Dict[str, Any]]:
        """Groups that are limited or paused or have unfinished jobs: one's own, or another user's."""
        return cast("List[Dict[str, Any]]", self._call("GET", "/v1/groups", query={"user": user}))

    def set_group(self, name: str, limit: Union[int, str, None] = None, paused: Optional[bool] = None) -> Dict[str, Any]:
        """Set how many jobs of a group run at a time (a number or "none"), or pause and resume it."""
        change: Dict[str, Any] = {}
        if limit is not None:
            change["limit"] = limit
        if paused is not None:
            change["paused"] = paused
        return cast(Dict[str, Any], self._call("POST", f"/v1/groups/{quote(name, safe='')}", change))

    def remove_group(self, name: str) -> None:
        """Forget a group's limit."""
        self._call("DELETE", f"/v1/groups/{quote(name, safe='')}")

    def _act(self, action: str, ids: Sequence[Words], all: bool = False, **more: Any) -> List[Acted]:
        body: Dict[str, Any] = {"action": action, "select": {"ids": [str(i) for i in ids], "all": all}}
        body.update((key, value) for key, value in more.items() if value is not None)
        acted = cast("List[Acted]", self._call("POST", "/v1/jobs/act", body)["jobs"])
        if acted and not any(one["done"] or one.get("state") for one in acted):
            raise no_job(one["id"] for one in acted)
        return acted


def _path(id: Words, under: str = "") -> str:
    """The URL path of a job, with its id escaped."""
    return f"/v1/jobs/{quote(str(id), safe='')}{under}"
