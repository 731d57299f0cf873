"""Functions as jobs: a concurrent.futures.Executor.

    with BerthExecutor(gpus=1, vram="18G") as executor:
        for loss in executor.map(train, [1e-3, 1e-4]):
            print(loss)
"""

from __future__ import annotations

import concurrent.futures
import io
import os
import pickle
import secrets
import shutil
import site
import socket
import sys
import sysconfig
import threading
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, cast

from . import worker
from .client import Client
from .errors import BerthError, JobFailed
from .fields import wire
from .handles import Handle, raise_failed, words
from .places import state_home
from .streams import PAUSE
from .times import Duration, limit, seconds
from .views import JobView

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, Unpack

    from .fields import Fields

    P = ParamSpec("P")

R = TypeVar("R")
_Arguments = Tuple[Tuple[Any, ...], Mapping[str, Any]]
_CALLS = "BERTH_CALLS"  # where a job finds its call, and others its result
_SIGNAL = "USR2"
_WORKER = os.path.abspath(worker.__file__)
_KEEP_SECONDS = 30 * 86400.0  # results in the default folder


class Call:
    """A call to make: what a checkpoint method returns."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs


class BerthFuture(concurrent.futures.Future):  # type: ignore[type-arg, unused-ignore]
    """The result of a job. job is its handle; its id is all that another process
    needs: BerthExecutor.collect(id)."""

    def __init__(self, job: Handle, directory: str, index: int) -> None:
        super().__init__()
        self.job = job
        self._directory = directory
        self._index = index
        self._began = False
        self._unwanted = False  # its end may be heard of before the reply to a cancel
        self._settling = threading.Lock()

    def __repr__(self) -> str:
        return f"<{'done' if self.done() else 'unfinished'} future of berth job {self.job.id}>"

    def running(self) -> bool:
        """Whether the job has started, and has not ended."""
        return self._began and not self.done()

    def cancel(self) -> bool:
        """Cancel the job, running or not. False: it has ended already."""
        if self.done():
            return self.cancelled()
        self._unwanted = True
        if not any(one["done"] for one in self.job.cancel()):
            return False
        return self._cancelled()

    def _cancelled(self) -> bool:
        """The job was cancelled. False: it has ended otherwise."""
        with self._settling:
            if not self.done() and super().cancel():
                self.set_running_or_notify_cancel()
            return self.cancelled()

    def _start(self, _: JobView) -> None:
        self._began = True

    def _end(self, ended: concurrent.futures.Future[JobView]) -> None:
        """The job has ended, or will not be heard of again."""
        try:
            job = ended.result()
            if self._unwanted and job["state"] == "cancelled":
                self._cancelled()
                return
            value, error = self._read(job), None
        except BaseException as err:
            value, error = None, err
        with self._settling:
            if self.done() or not self.set_running_or_notify_cancel():
                return
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)

    def _read(self, job: JobView) -> Any:
        """What the call returned or raised; if it did neither, how its job ended."""
        try:
            with open(worker.result_file(self._directory, self._index), "rb") as file:
                well, value, *shown = pickle.load(file)
        except FileNotFoundError:
            raise_failed([job])
            raise JobFailed(f"job {job['id']} ({job['name']}) ended without a result", f"berth logs {job['id']}", jobs=(job,)) from None
        if well:
            return value
        raise value from _Remote(shown[0])


class _Remote(Exception):
    """The traceback of an exception in a job, as its cause."""

    def __init__(self, shown: str) -> None:
        super().__init__(shown)

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class BerthExecutor(concurrent.futures.Executor):
    """Runs functions as jobs. Keywords are the fields of a job (berth help
    jobspec) that all of them share.

    A function and its arguments are pickled, with cloudpickle if it is
    installed; else the function has to be in a module that the job can import.
    They are in folder, and so are the results (default: in the user's state
    directory, for 30 days). max_running limits how many calls of one map run at
    a time. python is the interpreter of the jobs.

    If a callable has a method checkpoint, it is called with the arguments of the
    call, checkpoint_before the time limit or a preemption. Then the job is
    queued again, and makes the call that the method returned.
    """

    def __init__(self, *, client: Optional[Client] = None, folder: Optional[os.PathLike[str]] = None, python: Optional[str] = None,
                 max_running: Optional[int] = None, checkpoint_before: Duration = 60, **fields: Unpack[Fields]) -> None:
        self._client = client or Client()
        if "://" in self._client.address:
            raise BerthError(f"a function cannot be sent to {self._client.address}: its job would not find it there",
                             "submit a command instead", "invalid")
        self._folder = Path(folder).absolute() if folder else _default_folder()
        self._python = python or sys.executable
        self._max_running = max_running
        self._warning = max(1, round(seconds(checkpoint_before)))
        wire(fields)  # a wrong field is an error here
        self._fields = fields
        self._lock = threading.Lock()
        self._unfinished: Dict[str, BerthFuture] = {}
        self._quiet = threading.Condition(self._lock)
        self._open = True
        self._reached = False  # a daemon has answered, so that it is worth waiting for the next one
        self._client._watch.open()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> BerthFuture:
        """Queue fn(*args, **kwargs) as a job. When this returns, it is on disk."""
        return self._queue(fn, [(args, kwargs)], None)[0]

    def map(self, fn: Callable[..., R], *iterables: Iterable[Any], timeout: Optional[Duration] = None,
            chunksize: int = 1, **_: Any) -> Iterator[R]:
        """fn of each element, as one array of jobs. Results come in the order of
        the elements; with chunksize, one job makes that many calls."""
        if chunksize < 1:
            raise ValueError("chunksize: expected a number from 1")
        rows = list(zip(*iterables))
        if not rows:
            return iter(())
        most = limit(timeout)
        end = None if most is None else time.monotonic() + most
        if chunksize > 1:
            chunks: List[_Arguments] = [((fn, rows[at:at + chunksize]), {}) for at in range(0, len(rows), chunksize)]
            futures = self._queue(_chunk, chunks, self._max_running, named=fn)
        else:
            futures = self._queue(fn, [(row, {}) for row in rows], self._max_running)

        def results() -> Iterator[R]:
            try:
                for future in futures:
                    value = future.result(None if end is None else end - time.monotonic())
                    if chunksize > 1:
                        yield from value
                    else:
                        yield value
            finally:
                self._cancel_queued(futures)  # if the caller stopped early
        return results()

    def _cancel_queued(self, futures: Iterable[BerthFuture]) -> None:
        """Cancel, in one request, the jobs that have not started."""
        left = {future.job.id: future for future in futures if not future.done()}
        if left:
            for future in left.values():
                future._unwanted = True
            select = {"ids": words([*left]), "states": ["queued"]}
            for one in self._client._call("POST", "/v1/jobs/act", {"action": "cancel", "select": select})["jobs"]:
                if one["done"] and one["id"] in left:
                    left[one["id"]]._cancelled()

    @classmethod
    def collect(cls, *jobs: Any, client: Optional[Client] = None) -> List[BerthFuture]:
        """Futures of jobs that an executor submitted, perhaps one whose process is
        gone: of ids, ranges, an array's id."""
        client = client or Client()
        futures = []
        shown: Dict[str, str] = {}
        for job in client._named(jobs):
            array, _, index = job["id"].partition("_")
            if array not in shown:
                shown[array] = str((client.show(job["id"]).get("env") or {}).get(_CALLS, ""))
            if not shown[array]:
                raise BerthError(f"job {job['id']} is no call of a function", "berth logs shows what it printed", "invalid")
            futures.append(BerthFuture(Handle(client, job["id"], job["name"]), shown[array], int(index or 0)))
        _follow(client, futures, 0)
        return futures

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls. Without wait, the jobs go on by themselves."""
        with self._lock:
            was, self._open = self._open, False
            left = list(self._unfinished.values())
        if cancel_futures:
            self._cancel_queued(left)
        if wait:
            with self._quiet:
                while self._unfinished:
                    self._quiet.wait()
        if was:
            self._client._watch.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Optional[bool]:
        if isinstance(error, KeyboardInterrupt):
            self.shutdown(wait=False)  # the jobs go on; berth cancel stops them
            return False
        return super().__exit__(kind, error, trace)

    def _queue(self, fn: Callable[..., Any], calls: Sequence[_Arguments], most: Optional[int],
               named: Optional[Callable[..., Any]] = None) -> List[BerthFuture]:
        """Submit calls of one function: a job, or an array of them."""
        with self._lock:
            if not self._open:
                raise RuntimeError("cannot schedule new futures after shutdown")
        token = f"{time.strftime('%Y%m%d_%H%M%S')}_{secrets.token_hex(6)}"
        directory = str(self._folder / token)
        os.makedirs(directory, mode=0o700)
        try:
            path = pickle.dumps(_own_path(), worker.PROTOCOL)
            for index, (args, kwargs) in enumerate(calls):
                worker.write(worker.call_file(directory, index), path, _dump((fn, args, dict(kwargs))))
            ticket = self._client._watch.ticket()
            array = None if len(calls) == 1 else f"0-{len(calls) - 1}" + (f"%{most}" if most else "")
            job = self._submit(_name(named or fn), directory, array, getattr(fn, "checkpoint", None) is not None)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        futures = [BerthFuture(Handle(self._client, job.id if array is None else f"{job.id}_{index}", job.name), directory, index)
                   for index in range(len(calls))]
        with self._lock:
            self._unfinished.update((future.job.id, future) for future in futures)
        for future in futures:
            future.add_done_callback(self._forget)
        _follow(self._client, futures, ticket)
        return futures

    def _submit(self, name: str, directory: str, array: Optional[str], checkpoint: bool) -> Handle:
        """Submit once, also if the daemon is killed before it replies: the name
        of the directory tells whether it had accepted the jobs."""
        fields: Dict[str, Any] = {"name": name, **self._fields}
        fields["env"] = {**(fields.get("env") or {}), _CALLS: directory}
        if checkpoint:
            fields["env"]["BERTH_CHECKPOINT_SIGNAL"] = _SIGNAL
            fields.setdefault("signal", f"{_SIGNAL}@{self._warning}")
            if "requeue" in str(fields.setdefault("preemptible", "requeue")):
                fields.setdefault("checkpoint", "term")  # it saves at the signal
            if fields.get("timeout") is not None:
                fields.setdefault("on_timeout", "requeue")
        command = [self._python, _WORKER, directory]
        lost = False
        while True:
            try:
                found = self._find(directory) if lost else None
                job = found or cast(Handle, self._client.submit(command, array=array, **fields))
                self._reached = True
                return job
            except BerthError as err:
                if err.kind != "unreachable" or not self._reached or isinstance(err.__cause__, socket.timeout):
                    raise  # after a timeout, the daemon may still accept them
                lost = True
                time.sleep(PAUSE)

    def _find(self, directory: str) -> Optional[Handle]:
        """The job or array with these calls, if the daemon has it."""
        newest = self._client._call("GET", "/v1/jobs", query={"over": True, "newest": True, "limit": 1000})
        for job in newest["jobs"]:
            if directory in (job["command"] or ""):
                return Handle(self._client, job["id"].partition("_")[0], job["name"])
        return None

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._quiet:
            self._unfinished.pop(cast(BerthFuture, future).job.id, None)
            if not self._unfinished:
                self._quiet.notify_all()


def _follow(client: Client, futures: Sequence[BerthFuture], ticket: int) -> None:
    """Settle futures when their jobs end."""
    by_id = {future.job.id: future for future in futures}
    ends = client._watch.add(by_id, ticket, lambda job: by_id[job["id"]]._start(job))
    for id, end in ends.items():
        end.add_done_callback(by_id[id]._end)


def _own_path() -> List[str]:
    """Where this program finds its modules, besides those of Python itself."""
    python = {os.path.realpath(place) for place in [*sysconfig.get_paths().values(), site.getusersitepackages()]}
    inside = tuple(place + os.sep for place in python)
    entries = [os.path.abspath(entry) for entry in sys.path]
    return [entry for entry in entries if os.path.realpath(entry) not in python and not os.path.realpath(entry).startswith(inside)]


def _chunk(fn: Callable[..., R], rows: Sequence[Tuple[Any, ...]]) -> List[R]:
    return [fn(*row) for row in rows]


def _name(fn: Callable[..., Any]) -> str:
    name = getattr(fn, "__qualname__", None) or getattr(getattr(fn, "func", None), "__qualname__", None) or type(fn).__qualname__
    return str(name).replace("<", "").replace(">", "")[:100]


def _default_folder() -> Path:
    """The user's own, without what has not been touched for long."""
    folder = state_home() / "berth" / "calls"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in folder.iterdir():
        try:
            if time.time() - old.stat().st_mtime > _KEEP_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
        except FileNotFoundError:
            continue  # another process was faster
    return folder


def _dump(call: Tuple[Any, ...]) -> bytes:
    """A call as bytes. Without cloudpickle, what the job cannot import is refused
    here, and not in the job."""
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        pass
    else:
        return bytes(cloudpickle.dumps(call, worker.PROTOCOL))
    into = io.BytesIO()
    try:
        _Importable(into, worker.PROTOCOL).dump(call)
    except (pickle.PicklingError, AttributeError, TypeError) as err:
        raise BerthError(f"{call[0]!r} and its arguments cannot be sent to a job: {err}",
                         "install cloudpickle, or use a function from a module", "invalid") from err
    return into.getvalue()


class _Importable(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is in the script itself, which the job does not import")
        return NotImplemented
