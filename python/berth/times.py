"""Times as users write them: a number of seconds, "2h", a timedelta, a datetime."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Optional, Union

from .errors import BerthError

Duration = Union[int, float, str, timedelta]
"""90, 1.5, "90s", "15m", "2h", "1d", "1:30" (m:s), "1:30:00", timedelta(hours=2)."""

Moment = Union[str, datetime, timedelta]
"""A datetime (without a zone: local time), an RFC 3339 time, or how long ago: "2h", timedelta(hours=2)."""

_UNIT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(value: Duration) -> float:
    """A duration in seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    found = _written(value) if isinstance(value, str) else None
    if found is None:
        raise BerthError(f"expected a duration such as 90, \"15m\", \"2h\" or \"1:30:00\", found {value!r}", "", "invalid")
    return found


def limit(value: Optional[Duration]) -> Optional[float]:
    """A time to wait at most, in seconds; None: for ever."""
    return None if value is None else seconds(value)


def moment(value: Optional[Moment], ahead: bool = False) -> Optional[str]:
    """A time in the form of the API. A duration means that long ago, or from now
    on if the time lies ahead."""
    if isinstance(value, str):
        if not is_duration(value):
            return value  # the daemon reads RFC 3339
        value = timedelta(seconds=seconds(value))
    if isinstance(value, timedelta):
        value = datetime.now().astimezone() + (value if ahead else -value)
    return None if value is None else value.astimezone().isoformat()


def is_duration(value: object) -> bool:
    """Whether it is a duration and no time of day: 1:30 could be both."""
    return isinstance(value, timedelta) or isinstance(value, str) and _UNIT.fullmatch(value.strip().lower()) is not None


def _written(text: str) -> Optional[float]:
    unit = _UNIT.fullmatch(text.strip().lower())
    if unit:
        return float(unit[1]) * _UNITS[unit[2]]
    clock = re.fullmatch(r"(?:(\d+):)?(\d+):(\d+)", text.strip())
    return None if clock is None else int(clock[1] or 0) * 3600.0 + int(clock[2]) * 60 + int(clock[3])
