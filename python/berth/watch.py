"""The ends of many jobs, from one stream of events."""

from __future__ import annotations

import http.client
import threading
from collections import OrderedDict
from concurrent.futures import Future
from typing import Callable, Dict, Iterable, List, Mapping, Optional

from .errors import BerthError, no_job
from .streams import PASSING, Tap, await_daemon, open_events, read_events
from .views import OVER, Event, JobView
from .wire import Wire

Ends = Dict[str, "Future[JobView]"]

_RECENT = 4096  # jobs that ended before anybody asked; a ticket says whether one can be among them


class Watch:
    """Resolves a future for each job that ends. One thread reads the stream, as
    long as there is a future to resolve or somebody holds the watch open.

    After each connection, and at each heartbeat that finds the queue quiet,
    the daemon is asked about all jobs that are waited for: an end that no event
    told of is found too.
    """

    def __init__(self, wire: Wire, ask: Callable[[List[str]], List[JobView]]) -> None:
        self._wire = wire
        self._ask = ask  # the jobs with these ids
        self._lock = threading.Condition()
        self._waiting: Dict[str, List[Future[JobView]]] = {}
        self._recent: OrderedDict[str, JobView] = OrderedDict()
        self._holders = 0
        self._tap: Optional[Tap] = None  # of the running thread
        self._connections = 0  # so far
        self._connection = 0  # the number of the present one; 0: none
        self._started: Dict[str, Callable[[JobView], None]] = {}

    def open(self) -> None:
        """Keep the stream open until close(), so that ticket() is cheap to use."""
        with self._lock:
            self._holders += 1
            self._run()

    def close(self) -> None:
        with self._lock:
            self._holders -= 1
            self._rest()

    def ticket(self) -> int:
        """What add() needs to know about jobs that are submitted next."""
        with self._lock:
            return self._connection

    def add(self, ids: Iterable[str], ticket: int = 0, started: Optional[Callable[[JobView], None]] = None) -> Ends:
        """Futures for the ends of jobs. With a ticket from before they were
        submitted, the daemon is only asked if the stream broke meanwhile."""
        ends: Ends = {}
        with self._lock:
            known = ticket != 0 and ticket == self._connection
            for id in ids:
                ends[id] = Future()
                if known and id in self._recent:
                    ends[id].set_result(self._recent[id])
                    continue
                self._waiting.setdefault(id, []).append(ends[id])
                if started is not None:
                    self._started[id] = started
            self._run()
        if not known:
            try:
                self._look([id for id, end in ends.items() if not end.done()])
            except BerthError as err:
                if err.kind not in PASSING:
                    self.forget(ends)
                    raise
        return ends

    def forget(self, ends: Mapping[str, "Future[JobView]"]) -> None:
        """Nobody waits for these any more."""
        with self._lock:
            for id, end in ends.items():
                kept = [one for one in self._waiting.get(id, ()) if one is not end]
                if kept:
                    self._waiting[id] = kept
                else:
                    self._waiting.pop(id, None)
                    self._started.pop(id, None)
            self._rest()

    def _run(self) -> None:
        if self._tap is None and (self._waiting or self._holders):
            self._tap = Tap()
            threading.Thread(target=self._listen, args=(self._tap,), name="berth watch", daemon=True).start()

    def _rest(self) -> None:
        if self._tap is not None and not self._waiting and not self._holders:
            self._tap.close()
            self._tap, self._connection = None, 0
            self._recent.clear()

    def _listen(self, tap: Tap) -> None:
        while not tap.closed:
            try:
                self._read(tap)
            except (OSError, ValueError, http.client.HTTPException):
                pass
            except BerthError as err:
                if err.kind not in PASSING:
                    self._fail(tap, err)
                    return
            with self._lock:
                if tap is self._tap:
                    self._connection = 0
            if not tap.closed:
                await_daemon(self._wire)

    def _read(self, tap: Tap) -> None:
        query = {"since": -1}
        with open_events(self._wire, query) as reply:
            tap.opened(reply)
            begun = False
            for event in read_events(reply, query):
                if event is not None:
                    self._observe(event)
                elif begun and tap is self._tap:
                    self._look(list(self._waiting))
                if not begun and tap is self._tap:
                    begun = True
                    with self._lock:
                        self._recent.clear()
                        self._connections += 1
                        self._connection = self._connections
                    self._look(list(self._waiting))

    def _observe(self, event: Event) -> None:
        kind = event["event"]
        if kind == "ended":
            self._ended(event["job"])
        elif kind in ("started", "resumed"):
            self._began(event["job"])

    def _began(self, job: JobView) -> None:
        tell = self._started.get(job["id"])
        if tell is not None:
            tell(job)

    def _look(self, ids: List[str]) -> None:
        if not ids:
            return
        missing = set(ids)
        for job in self._ask(ids):
            missing.discard(job["id"])
            if job["state"] in OVER:
                self._ended(job)
            elif job["state"] != "queued":
                self._began(job)
        for id in missing:
            self._resolve(id, lambda end, id=id: end.set_exception(no_job([id])))  # type: ignore[misc]

    def _ended(self, job: JobView) -> None:
        with self._lock:
            self._recent[job["id"]] = job
            if len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        self._resolve(job["id"], lambda end: end.set_result(job))

    def _resolve(self, id: str, settle: Callable[[Future[JobView]], None]) -> None:
        with self._lock:
            ends = self._waiting.pop(id, [])
            self._started.pop(id, None)
        for end in ends:  # without the lock: they have callbacks
            if end.set_running_or_notify_cancel():
                settle(end)
        with self._lock:
            self._rest()

    def _fail(self, tap: Tap, err: BerthError) -> None:
        """Nothing more will come: reconnecting would not help."""
        with self._lock:
            if tap is not self._tap:
                return
            self._tap, self._connection = None, 0
            waiting = list(self._waiting)
        for id in waiting:
            self._resolve(id, lambda end: end.set_exception(err))
