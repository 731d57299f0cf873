"""The daemon's HTTP: JSON requests, logs and events."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from typing import Any, BinaryIO, Callable, Iterator, Mapping, Optional, Union
from urllib.parse import urlencode, urlsplit

from .errors import BerthError

_REPLY_SECONDS = 90.0  # a wait is answered within a minute
_REVIVE_SECONDS = 10.0  # between two attempts to start a daemon


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]) -> None:
        super().__init__("berth")
        self._path = path
        self._seconds = timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._seconds)
        try:
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


class Wire:
    """One daemon's address. Each request has its own connection, so that threads
    can share a client and a restart of the daemon affects no later request."""

    def __init__(self, address: str, token: Optional[str] = None, ca: Optional[str] = None) -> None:
        self.address = address
        self._token = token
        self._ca = ca
        self.start: Optional[Callable[[], None]] = None  # starts the daemon; None: somebody else does
        self._revived = float("-inf")

    def call(self, method: str, path: str, body: Any = None, query: Optional[Mapping[str, Any]] = None) -> Any:
        """One request, one JSON reply."""
        with self.open(method, path, body, query, timeout=_REPLY_SECONDS) as reply:
            try:
                return json.loads(reply.response.read())
            except (OSError, ValueError, http.client.HTTPException) as err:
                raise self._unreachable(err) from err

    def open(self, method: str, path: str, body: Any = None, query: Optional[Mapping[str, Any]] = None,
             timeout: Optional[float] = None, headers: Optional[Mapping[str, str]] = None) -> Reply:
        """One request; the caller reads the reply and closes it."""
        data = None if body is None else _json(body)
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        conn = self._connection(timeout)
        try:
            try:
                conn.request(method, path + _query(query), body=data, headers=sent)
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before it was read to the end; the reply says why
            opened = conn.sock  # http.client forgets it where the reply ends the connection
            response = conn.getresponse()
            if response.status >= 400:
                raise _problem(response)
        except (OSError, http.client.HTTPException) as err:
            conn.close()
            raise self._unreachable(err) from err
        except BaseException:
            conn.close()
            raise
        return Reply(conn, opened, response)

    def revive(self, err: BerthError) -> None:
        """Start the daemon again if it was killed, for whoever waits. One that was
        stopped has removed its socket, and stays away."""
        if self.start and isinstance(err.__cause__, ConnectionRefusedError) and time.monotonic() - self._revived > _REVIVE_SECONDS:
            self._revived = time.monotonic()
            with contextlib.suppress(BerthError):
                self.start()

    def _connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        url = urlsplit(self.address)
        if url.scheme == "http":
            raise BerthError(f"{self.address} is refused: without TLS the token would go to whoever listens there",
                             "use https://, or the path of a socket", "invalid")
        if url.scheme == "https":
            return http.client.HTTPSConnection(url.netloc, timeout=timeout, context=ssl.create_default_context(cafile=self._ca))
        return _UnixConnection(self.address, timeout)

    def _unreachable(self, err: Exception) -> BerthError:
        return BerthError(f"no daemon answers at {self.address}: {err}",
                          "start one with berth serve, or use another address", "unreachable")


class Reply:
    """A reply that is still arriving. trailers is complete after chunks()."""

    def __init__(self, conn: http.client.HTTPConnection, opened: socket.socket,
                 response: http.client.HTTPResponse) -> None:
        self._conn = conn
        self._socket = opened
        self.response = response
        self.trailers: dict[str, str] = {}

    def __enter__(self) -> Reply:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()
        self._conn.close()

    def cut(self) -> None:
        """Wake the thread that reads it, as if the connection were lost."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def chunks(self) -> Iterator[bytes]:
        """The body as it arrives. http.client would drop the trailers, which say
        whether the stream is complete."""
        source: Union[BinaryIO, Any] = self.response.fp
        if not self.response.chunked:
            raise http.client.HTTPException("expected a chunked reply")
        while True:
            line = source.readline(1024)
            if not line.endswith(b"\n"):
                raise http.client.IncompleteRead(line)
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            yield from self._chunk(source, size)
            source.readline(2)  # the line end after the chunk
        for name, value in http.client.parse_headers(source).items():
            self.trailers[name.lower()] = value

    @staticmethod
    def _chunk(source: Any, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = source.read1(min(size, 65536))
            if not piece:
                raise http.client.IncompleteRead(b"", size)
            size -= len(piece)
            yield piece


def _json(body: Any) -> bytes:
    """A request's body. JSON cannot hold bytes that are not UTF-8, and a
    replacement would be another command or path."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as err:
        found = text[max(0, err.start - 20):err.end]
        raise BerthError(f"expected UTF-8, found {found!r}", "", "invalid") from err


def _query(query: Optional[Mapping[str, Any]]) -> str:
    """A query string: lists repeat their key, None is left out."""
    pairs = []
    for key, value in (query or {}).items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                pairs.append((key, str(one).lower() if isinstance(one, bool) else str(one)))
    return "?" + urlencode(pairs) if pairs else ""


def _problem(response: http.client.HTTPResponse) -> BerthError:
    try:
        error = json.loads(response.read(1 << 20))
        return BerthError(error["problem"], error.get("hint", ""), error["kind"])
    except (ValueError, KeyError, TypeError):
        return BerthError(f"unexpected answer: HTTP {response.status} {response.reason}",
                          "check that a berth daemon listens at this address")
