"""The client for asyncio, with the same names. Nothing is decided here: each
call is the one of Client or of a handle, in a thread for as long as one request
takes. Waiting takes no thread: all waits of a client share its one stream of
events."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import (TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Iterable, Iterator, List, Mapping, Optional, Sequence,
                    TypeVar, Union, overload)

from .client import Client
from .fields import Command, JobSpec
from .handles import Array, Batch, Group, Handle, Jobs, Params, Sweep, Table, Words, raise_failed
from .statuses import exit_status
from .streams import Tap
from .times import Duration, limit
from .views import OVER, Event, JobView

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec, Unpack

    from .fields import Fields

    P = ParamSpec("P")

R = TypeVar("R")
T = TypeVar("T")


def _later(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], Awaitable[R]]:
    """The same method of the blocking object, without blocking."""
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return asyncio.to_thread(method, self._it, *args, **kwargs)
    functools.update_wrapper(call, method)
    return call


class AsyncClient:
    """A Client whose methods are awaited. It takes the same arguments."""

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None, autostart: bool = True) -> None:
        self._it = Client(address, token=token, autostart=autostart)

    @property
    def address(self) -> str:
        return self._it.address

    show = _later(Client.show)
    why = _later(Client.why)
    samples = _later(Client.samples)
    gpu_samples = _later(Client.gpu_samples)
    gpus = _later(Client.gpus)
    gpu_history = _later(Client.gpu_history)
    history = _later(Client.history)
    batches = _later(Client.batches)
    sweeps = _later(Client.sweeps)
    trials = _later(Client.trials)
    stats = _later(Client.stats)
    status = _later(Client.status)
    cancel = _later(Client.cancel)
    hold = _later(Client.hold)
    release = _later(Client.release)
    park = _later(Client.park)
    unpark = _later(Client.unpark)
    requeue = _later(Client.requeue)
    edit = _later(Client.edit)
    adopt = _later(Client.adopt)
    pause = _later(Client.pause)
    resume = _later(Client.resume)
    drain = _later(Client.drain)
    groups = _later(Client.groups)
    set_group = _later(Client.set_group)
    remove_group = _later(Client.remove_group)
    list = _later(Client.list)

    @overload
    async def submit(self, command: Command, *, array: Union[int, str, Sequence[int], range],
                     environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> AsyncArray: ...
    @overload
    async def submit(self, command: Command, *, array: None = None,
                     environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> AsyncHandle: ...
    async def submit(self, command: Command, *, array: Any = None, environ: Optional[Mapping[str, str]] = None,
                     **fields: Unpack[Fields]) -> Union[AsyncHandle, AsyncArray]:
        made: Union[Handle, Array] = await asyncio.to_thread(
            lambda: self._it.submit(command, array=array, environ=environ, **fields))
        return AsyncArray(made) if isinstance(made, Array) else AsyncHandle(made)

    async def sweep(self, command: Command, params: Params, *, metrics: Sequence[str] = (),
                    environ: Optional[Mapping[str, str]] = None, **fields: Unpack[Fields]) -> AsyncSweep:
        return AsyncSweep(await asyncio.to_thread(
            lambda: self._it.sweep(command, params, metrics=metrics, environ=environ, **fields)))

    async def submit_all(self, specs: Iterable[JobSpec], *, environ: Optional[Mapping[str, str]] = None) -> AsyncBatch:
        return AsyncBatch(await asyncio.to_thread(self._it.submit_all, specs, environ=environ))

    async def job(self, id: Words) -> AsyncHandle:
        return AsyncHandle(await asyncio.to_thread(self._it.job, id))

    async def array(self, id: Words) -> AsyncArray:
        found = await asyncio.to_thread(self._it.array, id)
        return AsyncSweep(found) if isinstance(found, Sweep) else AsyncArray(found)

    async def jobs(self, *ids: Words) -> AsyncBatch:
        return AsyncBatch(await asyncio.to_thread(self._it.jobs, *ids))

    async def wait(self, *ids: Words, timeout: Optional[Duration] = None) -> List[int]:
        found = [job["id"] for job in await self.list(*ids, over=True, reasons=False)]
        return [exit_status(job) for job in await _ended(self._it, found, timeout)]

    def logs(self, id: Words, *, follow: bool = False, lines: int = 0, attempt: int = 0) -> AsyncIterator[str]:
        return _stream(lambda tap: self._it.logs(id, follow=follow, lines=lines, attempt=attempt, tap=tap))

    def events(self, *, since: int = -1, follow: bool = True, job: Optional[Words] = None, gpus: bool = False) -> AsyncIterator[Event]:
        return _stream(lambda tap: self._it.events(since=since, follow=follow, job=job, gpus=gpus, tap=tap))


class _AsyncJobs:
    cancel = _later(Jobs.cancel)
    hold = _later(Jobs.hold)
    release = _later(Jobs.release)
    park = _later(Jobs.park)
    unpark = _later(Jobs.unpark)
    requeue = _later(Jobs.requeue)


class _AsyncNamed(_AsyncJobs):
    def __init__(self, it: Union[Handle, Array]) -> None:
        self._it: Any = it
        self.id = it.id
        self.name = it.name
        self.notes = it.notes

    def __str__(self) -> str:
        return self.id

    show = _later(Handle.show)
    why = _later(Handle.why)
    edit = _later(Handle.edit)

    async def state(self) -> str:
        return str((await self.show())["state"])


class AsyncHandle(_AsyncNamed):
    """A Handle whose methods are awaited."""

    samples = _later(Handle.samples)

    async def wait(self, timeout: Optional[Duration] = None, *, check: bool = True) -> int:
        jobs = await _ended(self._it._client, [self.id], timeout)
        if check:
            raise_failed(jobs)
        return exit_status(jobs[0])

    def logs(self, follow: bool = False, *, lines: int = 0, attempt: int = 0) -> AsyncIterator[str]:
        return _stream(lambda tap: self._it.logs(follow, lines=lines, attempt=attempt, tap=tap))


class _AsyncGroup(_AsyncJobs):
    """A Group whose methods are awaited."""

    _it: Any

    jobs = _later(Group.jobs)
    counts = _later(Group.counts)
    table = _later(Group.table)

    async def tasks(self) -> List[AsyncHandle]:
        return [AsyncHandle(task) for task in await asyncio.to_thread(lambda: self._it.tasks)]

    async def wait(self, timeout: Optional[Duration] = None, *, any: bool = False, check: bool = True) -> List[Optional[int]]:
        ids = [task.id for task in await self.tasks()]
        await _ended(self._it._client, ids, timeout, any)
        jobs = await self.jobs()
        if check:
            raise_failed(jobs)
        return [exit_status(job) if job["state"] in OVER else None for job in jobs]

    async def as_completed(self, timeout: Optional[Duration] = None) -> AsyncIterator[AsyncHandle]:
        by_id = {task.id: task for task in await self.tasks()}
        client = self._it._client
        ends = await asyncio.to_thread(client._watch.add, [*by_id])
        try:
            for end in asyncio.as_completed([asyncio.wrap_future(end) for end in ends.values()], timeout=limit(timeout)):
                yield by_id[(await end)["id"]]
        except asyncio.TimeoutError:
            raise TimeoutError("not finished in time") from None
        finally:
            client._watch.forget(ends)

    def logs(self, follow: bool = False) -> AsyncIterator[str]:
        return _stream(lambda tap: self._it.logs(follow, tap=tap))


class AsyncBatch(_AsyncGroup):
    """A Batch whose methods are awaited."""

    def __init__(self, it: Batch) -> None:
        self._it = it


class AsyncArray(_AsyncGroup, _AsyncNamed):
    """An Array whose methods are awaited."""


class AsyncSweep(AsyncArray):
    """A Sweep whose methods are awaited."""

    add = _later(Sweep.add)
    retry = _later(Sweep.retry)

    async def table(self, *metrics: str) -> Table:
        return await asyncio.to_thread(self._it.table, *metrics)


async def _ended(client: Client, ids: Sequence[str], timeout: Optional[Duration], any: bool = False) -> List[JobView]:
    """The jobs when they have ended, or when one has."""
    ends = await asyncio.to_thread(client._watch.add, ids)
    waits = {id: asyncio.wrap_future(end) for id, end in ends.items()}
    try:
        when = asyncio.FIRST_COMPLETED if any else asyncio.ALL_COMPLETED
        done, left = await asyncio.wait(waits.values(), timeout=limit(timeout), return_when=when)
        if left and not (any and done):
            raise TimeoutError(f"not finished in time: {', '.join(id for id, wait in waits.items() if not wait.done())}")
        return [wait.result() for wait in waits.values() if wait.done()]
    finally:
        client._watch.forget(ends)


async def _stream(open: Callable[[Tap], Iterator[T]]) -> AsyncIterator[T]:
    """An iterator that blocks, read by a thread of its own; the reader's pace
    holds the thread back."""
    loop, tap = asyncio.get_running_loop(), Tap()
    queue: asyncio.Queue[Any] = asyncio.Queue(256)
    over = object()

    def put(item: Any) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

    def pump() -> None:
        try:
            for item in open(tap):
                if tap.closed:
                    return
                put((item, None))
            put((over, None))
        except BaseException as err:
            if not tap.closed and not loop.is_closed():
                put((over, err))

    threading.Thread(target=pump, name="berth stream", daemon=True).start()
    try:
        while True:
            item, error = await queue.get()
            if error is not None:
                raise error
            if item is over:
                return
            yield item
    finally:
        tap.close()
        while not queue.empty():  # let the thread see that it is over
            queue.get_nowait()
