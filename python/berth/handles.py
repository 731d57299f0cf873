"""Submitted jobs: one, an array, several."""

from __future__ import annotations

import collections
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union, cast, overload

from . import notebook
from .errors import BerthError, JobFailed, Refused
from .statuses import exit_status
from .times import Duration, Moment, limit
from .views import OVER, Acted, JobView

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    from .aio import AsyncArray, AsyncHandle
    from .client import Client
    from .fields import Fields
    from .streams import Tap

Words = Union[str, int, "Handle", "Array", "AsyncHandle", "AsyncArray"]
"""A job or several: 17, "1-3,7", "@", a Handle."""


class Jobs:
    """What one job or several can be told to do."""

    _client: Client

    def _words(self) -> List[str]:
        """The jobs, as a command names them."""
        raise NotImplementedError

    def cancel(self, grace: Optional[Duration] = None) -> List[Acted]:
        """Cancel what has not ended, running or not. grace is the time between
        SIGTERM and SIGKILL."""
        return self._client.cancel(*self._words(), grace=grace)

    def hold(self) -> List[Acted]:
        """Keep what is queued from starting."""
        return _done(self._client.hold(*self._words()))

    def release(self) -> List[Acted]:
        """Let what is held start."""
        return _done(self._client.release(*self._words()))

    def park(self, timeout: Duration = 0, *, until: Optional[Moment] = None) -> List[Acted]:
        """Take what runs off its GPUs without losing its work (see Client.park)."""
        return _done(self._client.park(*self._words(), timeout=timeout, until=until))

    def unpark(self, timeout: Duration = 0) -> List[Acted]:
        """Bring what is parked back to its GPUs."""
        return _done(self._client.unpark(*self._words(), timeout=timeout))

    def requeue(self, **changes: Unpack[Fields]) -> List[Acted]:
        """Run it again from the beginning; what has ended, with changes if you
        like: requeue(vram="20G")."""
        return _done(self._client.requeue(*self._words(), **changes))


class _Named(Jobs):
    """What has an id: a job or an array."""

    def __init__(self, client: Client, id: str, name: str, notes: Sequence[str] = ()) -> None:
        self._client = client
        self.id = id
        self.name = name
        self.notes = list(notes)

    def __str__(self) -> str:
        return self.id

    def _words(self) -> List[str]:
        return [self.id]

    @property
    def state(self) -> str:
        """queued, running, parked, finished, failed or cancelled."""
        return str(self.show()["state"])

    def show(self) -> Dict[str, Any]:
        """Everything about it."""
        return self._client.show(self.id)

    def why(self) -> Dict[str, Any]:
        """Why it waits, or how it ended."""
        return self._client.why(self.id)

    def edit(self, **changes: Unpack[Fields]) -> Dict[str, Any]:
        """Change fields of what has not started."""
        return self._client.edit(self.id, **changes)


class Handle(_Named):
    """A submitted job."""

    def __repr__(self) -> str:
        return f"<berth job {self.id} ({self.name})>"

    def _repr_html_(self) -> str:
        return notebook.table_html(Table([_row(self._client._views([self.id])[0])]))

    def wait(self, timeout: Optional[Duration] = None, *, check: bool = True) -> int:
        """Wait for it to end, and return its exit status (see Client.wait). A job
        that did not succeed raises JobFailed, unless check is False."""
        jobs = self._client._ended([self.id], timeout)
        if check:
            raise_failed(jobs)
        return max(exit_status(job) for job in jobs)

    def samples(self, *, start: Optional[Moment] = None, end: Optional[Moment] = None, step: Duration = 0) -> Dict[str, Any]:
        """What it used over time."""
        return self._client.samples(self.id, start=start, end=end, step=step)

    def logs(self, follow: bool = False, *, lines: int = 0, attempt: int = 0, tap: Optional[Tap] = None) -> Iterator[str]:
        """The lines of its output; with follow, until it has ended."""
        return self._client.logs(self.id, follow=follow, lines=lines, attempt=attempt, tap=tap)


class Group(Jobs):
    """Several jobs."""

    @property
    def tasks(self) -> List[Handle]:
        """A handle for each job, in order."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Handle]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, at: int) -> Handle:
        return self.tasks[at]

    def _ids(self) -> List[str]:
        return [task.id for task in self.tasks]

    def jobs(self) -> List[JobView]:
        """The jobs as they are now, in the order of tasks."""
        return self._client._views(self._ids())

    def counts(self) -> Dict[str, int]:
        """How many jobs are in each state."""
        return dict(collections.Counter(job["state"] for job in self.jobs()))

    @overload
    def wait(self, timeout: Optional[Duration] = ..., *, any: Literal[False] = ..., check: bool = ...) -> List[int]: ...
    @overload
    def wait(self, timeout: Optional[Duration] = ..., *, any: bool, check: bool = ...) -> List[Optional[int]]: ...
    def wait(self, timeout: Optional[Duration] = None, *, any: bool = False, check: bool = True) -> Any:
        """Wait for all jobs to end, or with any for one of them, and return their
        exit statuses in order, None for those that have not ended. If one did
        not succeed it raises JobFailed, unless check is False."""
        jobs = self._client._ended(self._ids(), timeout, any)
        if check:
            raise_failed(jobs)
        return [exit_status(job) if job["state"] in OVER else None for job in jobs]

    def as_completed(self, timeout: Optional[Duration] = None) -> Iterator[Handle]:
        """The jobs as they end, those that have ended first. Raises TimeoutError
        when the time is up."""
        by_id = {task.id: task for task in self.tasks}
        for job in self._client._as_completed(list(by_id), limit(timeout)):
            yield by_id[job["id"]]

    def logs(self, follow: bool = False, *, tap: Optional[Tap] = None) -> Iterator[str]:
        """The lines of one job after the other."""
        for task, job in zip(self.tasks, self.jobs()):
            if follow or job["attempt"]:
                yield from task.logs(follow, tap=tap)

    def table(self) -> Table:
        """A row for each job: how it went, and what it used."""
        return Table(map(_row, self.jobs()))

    def progress(self, timeout: Optional[Duration] = None) -> None:
        """Show a bar that fills as jobs end, until all have: in a notebook, on a
        terminal, or as lines of text."""
        notebook.progress(self, limit(timeout))

    def _repr_html_(self) -> str:
        jobs = self.jobs()
        return notebook.bar_html(collections.Counter(job["state"] for job in jobs)) + notebook.table_html(Table(map(_row, jobs)))


class Batch(Group):
    """Jobs that were submitted together."""

    def __init__(self, client: Client, tasks: Iterable[Handle]) -> None:
        self._client = client
        self._tasks = list(tasks)

    def __repr__(self) -> str:
        return f"<berth batch of {len(self._tasks)} jobs>"

    def _words(self) -> List[str]:
        return words(self._ids())

    @property
    def tasks(self) -> List[Handle]:
        return self._tasks


class Array(Group, _Named):
    """A submitted array."""

    _tasks: Optional[List[Handle]] = None

    def __repr__(self) -> str:
        return f"<berth array {self.id} ({self.name})>"

    @property
    def tasks(self) -> List[Handle]:
        if self._tasks is None:
            self._tasks = [Handle(self._client, job["id"], job["name"])
                           for job in self._client.list(self.id, over=True, reasons=False)]
        return self._tasks


Params = Union[Mapping[str, Iterable[object]], Sequence[Mapping[str, object]]]
"""{"lr": [1e-3, 1e-4], "seed": range(5)}: every combination; or the trials one by one:
[{"lr": 1e-3, "seed": 0}, …]."""


class Sweep(Array):
    """A submitted sweep: an array whose tasks are trials."""

    def __repr__(self) -> str:
        return f"<berth sweep {self.id} ({self.name})>"

    def table(self, *metrics: str) -> Table:
        """A row for each trial: its parameters, how it went, and the metrics of
        the sweep, or these ("val_acc", "max:val_acc", "loss=([0-9.]+)")."""
        found = self._client.trials(self.id, metrics=metrics)
        return Table({"id": row["id"], "name": row["name"], "state": row["state"], "outcome": row["outcome"], **row["params"],
                      **row["metrics"], "seconds": row["seconds"], "peak_vram_mib": row["peak_vram_mib"], "attempt": row["attempt"]}
                     for row in found["trials"])

    def add(self, params: Params) -> List[Dict[str, Any]]:
        """Add values of some parameters, each combined with what the sweep has of
        the others. Returns the new trials; those it had stay as they are."""
        self._tasks = None
        added = self._client._call("POST", f"/v1/jobs/{self.id}/trials", {"axes": axes(params)})
        return cast("List[Dict[str, Any]]", added["trials"])

    def retry(self, **changes: Unpack[Fields]) -> List[Acted]:
        """Run the trials again that failed or were cancelled."""
        failed = [job["id"] for job in self.jobs() if job["state"] in ("failed", "cancelled")]
        return self._client.requeue(*words(failed), **changes) if failed else []


def axes(params: Params) -> List[Dict[str, Any]]:
    """Parameters in the form of the API."""
    if isinstance(params, Mapping):
        return [{"names": [name], "rows": [[str(value)] for value in _values(name, values)]} for name, values in params.items()]
    names = list(params[0]) if params else []
    for row in params:
        if set(row) != set(names):
            raise BerthError(f"expected the parameters {', '.join(names)} in each trial, found {', '.join(row)}", "", "invalid")
    return [{"names": names, "rows": [[str(row[name]) for name in names] for row in params]}]


def _values(name: str, values: Iterable[object]) -> Iterable[object]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name}: expected a list of values, found {values!r}")
    return values


class Table(List[Dict[str, Any]]):
    """Rows as dictionaries with the same keys."""

    def __init__(self, rows: Iterable[Dict[str, Any]] = ()) -> None:
        super().__init__(rows)

    def pandas(self) -> Any:
        """A pandas.DataFrame; pandas has to be installed."""
        import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        return notebook.table_html(self)


def words(ids: Sequence[str]) -> List[str]:
    """The same jobs in few words: 1-2000, 17_0-99."""
    found: List[str] = []
    prefix, first, last = "", -1, -1
    for id in [*ids, ""]:
        match = re.fullmatch(r"(\d+_)?(\d+)", id)
        if match and (match[1] or "") == prefix and int(match[2]) == last + 1 and first >= 0:
            last += 1
            continue
        if first >= 0:
            found.append(f"{prefix}{first}-{last}" if last > first else f"{prefix}{first}")
        if match:
            prefix, first = match[1] or "", int(match[2])
            last = first
        else:
            first = -1
            if id:
                found.append(id)
    return found


def raise_failed(jobs: Iterable[JobView]) -> None:
    """Raise JobFailed if one of them has ended without success."""
    failed = [job for job in jobs if job["state"] in ("failed", "cancelled")]
    if not failed:
        return
    first = failed[0]
    how = f"{first['outcome'] or first['state']}" + (f", {first['reason']}" if first["reason"] else "")
    problem = f"job {first['id']} ({first['name']}) did not succeed: {how}"
    if len(failed) > 1:
        problem = f"{len(failed)} jobs did not succeed; the first is {first['id']} ({first['name']}): {how}"
    raise JobFailed(problem, f"berth logs {first['id']}", jobs=tuple(failed))


def _done(acted: List[Acted]) -> List[Acted]:
    """What was done to a job; an error if it was not."""
    if acted and not any(one["done"] for one in acted):
        raise Refused(f"job {acted[0]['id']}: {acted[0]['what']}", kind="refused")
    return acted


def _row(job: JobView) -> Dict[str, Any]:
    peaks = job["peak_vram_mib"] or {}
    return {"id": job["id"], "name": job["name"], "state": job["state"], "outcome": job["outcome"],
            "status": exit_status(job) if job["state"] in OVER else None, "attempt": job["attempt"],
            "gpu_ids": job["gpu_ids"], "started_at": job["started_at"], "ended_at": job["ended_at"],
            "seconds": _ran(job), "peak_vram_mib": max(peaks.values(), default=None)}


def _ran(job: JobView) -> Optional[float]:
    """Its run time in seconds, without the time that it was parked."""
    if not job["started_at"]:
        return None
    begin = _time(job["started_at"])
    end = _time(job["ended_at"]) if job["ended_at"] else datetime.now(begin.tzinfo)
    return round((end - begin).total_seconds() - job["parked_s"], 3)


def _time(written: str) -> datetime:
    """An RFC 3339 time. Python 3.9 reads neither Z nor all fractions."""
    whole, fraction, zone = re.fullmatch(r"([^.Zz+]+?)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", written).groups()  # type: ignore[union-attr]
    return datetime.fromisoformat(whole + f"{fraction or '.0':0<7}"[:7] + ("+00:00" if zone in "Zz" else zone))
