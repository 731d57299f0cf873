"""The errors of this package."""

from __future__ import annotations

from typing import Any, ClassVar, Dict, Iterable, Tuple, Type


class BerthError(Exception):
    """A problem, a hint how to solve it, and a kind for programs.

    Kinds are those of the HTTP API (berth help api): invalid, forbidden,
    not_found, refused, too_much, unavailable; and of this client: unreachable
    (no daemon answers), missing (there is no berth program) and failed (a job
    did). Each has a class, so that `except NotFound` is enough.
    """

    _kinds: ClassVar[Dict[str, Type[BerthError]]] = {}

    def __init_subclass__(cls, kind: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if kind:
            BerthError._kinds[kind] = cls

    def __new__(cls, problem: str = "", hint: str = "", kind: str = "unavailable", *_: Any, **__: Any) -> BerthError:
        """An error of the class of its kind, as OSError is one of that of its number."""
        return super().__new__(cls._kinds.get(kind, cls) if cls is BerthError else cls)

    def __init__(self, problem: str, hint: str = "", kind: str = "unavailable") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.problem, self.hint, self.kind), self.__dict__

    @classmethod
    def from_stderr(cls, text: str, otherwise: str) -> BerthError:
        """The error that berth printed, with its hint."""
        problem, hint = [], ""
        for line in text.splitlines():
            if line.startswith("hint: "):
                hint = line[len("hint: "):]
            elif line.strip():
                problem.append(line[len("berth: "):] if line.startswith("berth: ") else line)
        return BerthError("\n".join(problem) or otherwise, hint, "refused")


class Invalid(BerthError, kind="invalid"):
    """The request makes no sense."""


class Forbidden(BerthError, kind="forbidden"):
    """You may not do this."""


class NotFound(BerthError, kind="not_found"):
    """There is no such job, GPU or group."""


class Refused(BerthError, kind="refused"):
    """Not possible now, or on this machine."""


class TooMuch(BerthError, kind="too_much"):
    """A limit is reached."""


class Unavailable(BerthError, kind="unavailable"):
    """The daemon cannot do it now."""


class Unreachable(BerthError, kind="unreachable"):
    """No daemon answers."""


class MissingProgram(BerthError, kind="missing"):
    """There is no berth program."""


class JobFailed(BerthError, kind="failed"):
    """Jobs that were waited for did not succeed. jobs has them, as list()
    returns them."""

    def __init__(self, problem: str, hint: str = "", kind: str = "failed", jobs: Tuple[Any, ...] = ()) -> None:
        super().__init__(problem, hint, kind)
        self.jobs = tuple(jobs)


def no_job(ids: Iterable[str]) -> BerthError:
    """The error for ids of which no job exists."""
    return NotFound("there is no job " + ", ".join(ids), "berth list --all shows all jobs", "not_found")
