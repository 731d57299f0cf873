"""Logs and events as they arrive, through restarts of the daemon."""

from __future__ import annotations

import codecs
import http.client
import json
import time
from typing import Any, Dict, Iterable, Iterator, Optional, cast

from .errors import BerthError
from .views import Event
from .wire import Reply, Wire

_EVENT_SILENCE = 50.0  # three missed heartbeats
PASSING = ("unreachable", "unavailable", "too_much")  # kinds of errors that a stream outlasts
PAUSE = 0.2  # between attempts to reach a lost daemon


class Tap:
    """Closes a stream from another thread than the one that reads it."""

    def __init__(self) -> None:
        self._reply: Optional[Reply] = None
        self.closed = False

    def opened(self, reply: Reply) -> None:
        self._reply = reply
        if self.closed:
            reply.cut()

    def close(self) -> None:
        self.closed = True
        if self._reply is not None:
            self._reply.cut()


def log_bytes(wire: Wire, path: str, query: Dict[str, Any], tap: Tap) -> Iterator[bytes]:
    """A log as it arrives: no byte is lost or repeated."""
    query["pieces"] = True
    while not tap.closed:
        try:
            with wire.open("GET", path, query=query) as reply:
                tap.opened(reply)
                yield from _read_log(reply, query)
                if reply.trailers.get("berth-log-end") != "gap":
                    return
        except _Cut:
            if tap.closed:
                return
            if not query.get("follow"):
                raise
            await_daemon(wire)


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """The lines of a text, without their ends. A character may be split between
    two chunks."""
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    for chunk in chunks:
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from whole
    rest += decoder.decode(b"", final=True)
    if rest:
        yield rest


def events(wire: Wire, query: Dict[str, Any], tap: Tap, follow: bool) -> Iterator[Event]:
    """Events, each once."""
    while not tap.closed:
        try:
            with open_events(wire, query) as reply:
                tap.opened(reply)
                yield from (event for event in read_events(reply, query) if event is not None)
        except (OSError, ValueError, http.client.HTTPException):
            pass
        except BerthError as err:
            if err.kind not in PASSING:
                raise
        if not follow:
            return
        if not tap.closed:
            await_daemon(wire)


def open_events(wire: Wire, query: Dict[str, Any]) -> Reply:
    """A stream of events."""
    return wire.open("GET", "/v1/events", query=query, timeout=_EVENT_SILENCE)


def await_daemon(wire: Wire) -> None:
    """Wait until the daemon answers again, however long that takes."""
    while True:
        time.sleep(PAUSE)
        try:
            wire.call("GET", "/v1/status")
            return
        except BerthError as err:
            if err.kind != "unreachable":
                return
            wire.revive(err)


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


def read_events(reply: Reply, query: Dict[str, Any]) -> Iterator[Optional[Event]]:
    """The events that one connection delivers, and None for its heartbeats.
    query is advanced to the last event."""
    kind, rest = "", b""
    for piece in reply.chunks():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
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
            elif not field:
                yield None
