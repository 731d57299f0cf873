"""The fields of a job (berth help jobspec), for type checkers and for the API."""

from __future__ import annotations

import difflib
import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, TypedDict, Union

from .times import Duration, is_duration, seconds

if TYPE_CHECKING:
    from typing_extensions import Literal

    from .handles import Handle

Path = Union[str, "os.PathLike[str]"]
Command = Union[str, Sequence[Path]]
"""A shell line, or a program and its arguments."""

_DURATIONS = ("timeout", "grace", "park_timeout")


class Fields(TypedDict, total=False):
    """Every field of a job but its command and its array. None leaves a field out."""

    name: Optional[str]
    gpus: Union[int, float, str, None]
    type: Optional[str]
    vram: Union[int, str, None]
    ids: Union[Sequence[int], int, str, None]
    allow: Union[Sequence[int], int, str, None]
    exclusive: Optional[bool]
    cpus: Optional[int]
    mem: Union[int, str, None]
    pin: Optional[bool]
    inject_gpus: Union[str, bool, None]
    priority: Optional[int]
    timeout: Optional[Duration]
    signal: Optional[str]
    on_timeout: Optional[Literal["kill", "requeue", "park"]]
    max_requeues: Optional[int]
    retries: Optional[int]
    retry_on: Optional[Literal["oom", "fail"]]
    after: Union[str, int, Handle, Sequence[Union[str, int, Handle]], None]
    begin: Union[str, datetime, timedelta, None]  # "16:00", or in how long: "2h"
    hold: Optional[bool]
    dir: Optional[Path]
    env: Optional[Mapping[str, object]]
    export: Union[str, Sequence[str], None]
    venv: Optional[Path]
    conda: Optional[str]
    setup: Optional[str]
    output: Optional[Path]
    pty: Optional[bool]
    dedup: Optional[bool]
    requeue: Optional[bool]
    grace: Optional[Duration]
    preemptible: Union[bool, str, None]
    checkpoint: Union[Duration, Literal["term"], None]
    checkpoint_file: Optional[str]
    no_park: Optional[bool]
    park_timeout: Optional[Duration]
    slurm_env: Optional[bool]
    to: Optional[Literal["local", "slurm"]]
    slurm: Optional[str]
    cap: Optional[Literal["none", "soft", "mps"]]
    group: Optional[str]
    notify: Union[str, Sequence[str], None]
    snapshot: Union[bool, Path, None]
    max: Optional[int]  # of an array or a sweep


class _Command(TypedDict):
    command: Command


class JobSpec(Fields, _Command, total=False):
    """One job of submit_all."""

    array: Union[int, str, Sequence[int], range, None]


KEYS = (*JobSpec.__annotations__, "sweep")  # which Client.sweep makes


def wire(given: Mapping[str, Any]) -> Dict[str, Any]:
    """A spec in the form of the API."""
    return {key: _value(key, value) for key, value in given.items() if _known(key) and value is not None}


def _known(key: str) -> bool:
    if key in KEYS:
        return True
    near = difflib.get_close_matches(key, KEYS, n=1)
    raise TypeError(f"a job has no field {key!r}" + (f"; did you mean {near[0]}?" if near else " (berth help jobspec)"))


def _value(key: str, value: Any) -> Any:
    if key == "command":
        return _command(value)
    if key == "sweep":
        return value
    if key == "env":
        return {k: str(v) for k, v in value.items()}
    if key in _DURATIONS:
        return seconds(value)
    if key == "begin" and is_duration(value):
        return f"now+{seconds(value):f}"
    if isinstance(value, datetime):
        return value.astimezone().isoformat()
    if isinstance(value, (list, tuple, range)):
        return ("\n" if key == "notify" else ",").join(str(v) for v in value)
    return value if isinstance(value, (bool, int, float)) else str(value)


def _command(value: Any) -> Union[str, List[str]]:
    if isinstance(value, str):
        return value
    if callable(value):
        raise TypeError(f"command: expected a shell line or a list of words, found {value!r}; "
                        "berth.BerthExecutor().submit(function, ...) runs a function as a job")
    if isinstance(value, (bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise TypeError(f"command: expected a shell line or a list of words, found {value!r}")
    return [os.fsdecode(word) for word in value]
