"""Types of the JSON objects (berth help json), for type checkers."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

OVER = ("finished", "failed", "cancelled")


class SlurmView(TypedDict):
    """Where a job is on a Slurm cluster. What is not known yet is None."""

    id: Optional[str]
    node: Optional[str]
    gpu_ids: Optional[List[int]]


class CheckpointsView(TypedDict):
    """Sums up the earlier attempts of a job that saves its own work."""

    every_s: Optional[float]
    ran_s: float
    lost_s: float
    grace_s: float
    stopping_s: float
    saved_at: Optional[str]


class JobView(TypedDict):
    """A job. Absent values are None; times are RFC 3339."""

    id: str
    name: str
    user: str
    state: str
    outcome: Optional[str]
    reason: Optional[str]
    priority: int
    command: Optional[str]
    gpus: int
    share: Optional[float]
    vram_mib: Optional[int]
    gpu_ids: Optional[List[int]]
    attempt: int
    submitted_at: str
    started_at: Optional[str]
    ended_at: Optional[str]
    exit_code: Optional[int]
    signal: Optional[str]
    peak_vram_mib: Optional[Dict[str, int]]
    avg_util: Optional[float]
    charged_gpus: Optional[float]
    log: Optional[str]
    slurm: Optional[SlurmView]
    asked_ids: Optional[List[int]]
    idle_since: Optional[str]
    preemptions: int
    held: bool
    group: Optional[str]
    batch: Optional[str]
    parkings: int
    parked_s: float
    parked_since: Optional[str]
    host_mib: Optional[int]
    parking: Optional[str]
    park_refused: Optional[str]
    checkpoints: Optional[CheckpointsView]
    sweep: Optional[str]
    params: Optional[Dict[str, str]]


class _ActedAlways(TypedDict):
    id: str
    done: bool
    what: str


class Acted(_ActedAlways, total=False):
    """What was done to a job, or why not."""

    state: str
    host_mib: int
    took_s: float


class _EventAlways(TypedDict):
    time: str
    event: str


class Event(_EventAlways, total=False):
    """One event."""

    seq: int
    job: JobView
    text: str
    gpus: List[Dict[str, Any]]
    gpu: int
    by: str
    bad: bool
