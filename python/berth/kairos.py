"""kairos's interface: many commands on the GPUs of this machine.

    from berth import GPUScheduler, Job

    scheduler = GPUScheduler(n_gpus=4, jobs_per_gpu=2)
    statuses = scheduler.run_jobs([Job("python train.py --seed 1"), Job("python train.py --seed 2")])

berth decides what runs when and where: each call starts a private daemon,
submits the jobs to it and ends it.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Union

from .batch import Batch, Gpus
from .ending import terminated_as_interrupted
from .joblog import JobLogger, job_name, level_number

_SHARE_OF_CARD = 0.95  # the part of a GPU's memory that berth's shares divide


@dataclass
class Job:
    """A command for bash, and what it needs.

    env is added to this process's environment, for this job only. A relative
    venv_path is relative to working_dir, which is the current directory by
    default. A job without a name is called job_0, job_1 … by its position.
    """

    command: str
    env: Optional[Mapping[str, str]] = None
    venv_path: Optional[Union[str, "os.PathLike[str]"]] = None
    working_dir: Optional[Union[str, "os.PathLike[str]"]] = None
    job_name: Optional[str] = None


@dataclass
class GPUSlot:
    """A slot for one job on a GPU."""

    gpu_id: int
    slot_id: int


class GPUScheduler:
    """The first n_gpus GPUs of this machine, with jobs_per_gpu jobs on each.

    A job starts when memory_fraction of a GPU's memory divided by
    jobs_per_gpu is free, which is checked every check_interval seconds: with
    24 GB and two jobs per GPU that is 11.4 GB. Logs go to log_dir.

    logger is the main log and job_logger writes to it in kairos's words;
    total_jobs is the length of the last list, and completed_jobs how many jobs
    have ended.
    """

    def __init__(self, n_gpus: int, jobs_per_gpu: int, log_dir: Union[str, "os.PathLike[str]"] = "logs",
                 check_interval: float = 5.0, log_level: Union[str, int] = "INFO",
                 memory_fraction: float = _SHARE_OF_CARD) -> None:
        self.n_gpus = _count("n_gpus", n_gpus, 1024)
        self.jobs_per_gpu = _count("jobs_per_gpu", jobs_per_gpu, 1000)
        self.check_interval = _number("check_interval", check_interval, 86400, "seconds")
        self.memory_fraction = _number("memory_fraction", memory_fraction, 1, "a fraction")
        level = level_number(log_level)
        # A later change of directory moves neither logs nor jobs.
        self.log_dir = Path(log_dir).expanduser().absolute()
        self.job_logger = JobLogger(self.log_dir, level)
        self.logger: logging.Logger = self.job_logger.logger
        self.total_jobs = 0
        self.completed_jobs = 0

    @property
    def gpu_slots(self) -> List[GPUSlot]:
        """The slots: at most this many jobs run at a time."""
        return [GPUSlot(gpu, slot) for gpu in range(self.n_gpus) for slot in range(self.jobs_per_gpu)]

    def run_job(self, gpu_slot: GPUSlot, job: Job, job_index: int) -> int:
        """Run one job on the GPU of a slot, and return its exit status. In its
        logs it has this index."""
        _check(job, job_index)
        if not 0 <= gpu_slot.gpu_id < self.n_gpus:
            raise ValueError(f"gpu_slot: expected a GPU from 0 to {self.n_gpus - 1}, found {gpu_slot.gpu_id!r}")
        return self._run([job], Gpus(range(gpu_slot.gpu_id, gpu_slot.gpu_id + 1), self.jobs_per_gpu), job_index)[0]

    def run_jobs(self, jobs: Iterable[Job]) -> List[int]:
        """Run all jobs in order, and return their exit statuses in the same
        order: minus the number of a signal that ended one, 127 for one that
        never started.

        A failed job does not stop the others. Ctrl-C stops all of them, and so
        does SIGTERM unless the program handles it. If this process is killed,
        queued jobs still run.
        """
        todo = list(jobs)
        self.total_jobs = self.job_logger.total_jobs = len(todo)
        for index, job in enumerate(todo):
            _check(job, index)
        return self._run(todo, Gpus(range(self.n_gpus), self.jobs_per_gpu), 0, self._completed) if todo else []

    def _completed(self) -> None:
        self.completed_jobs += 1

    def _run(self, jobs: Sequence[Job], gpus: Gpus, first: int, completed: Callable[[], None] = lambda: None) -> List[int]:
        """Run jobs; first is the index of the first of them."""
        options = ["--jobs-per-gpu", str(self.jobs_per_gpu), "--policy", "fifo", "--placement", "spread",
                   "--poll", f"{max(self.check_interval, 0.01):f}", "--margin", "0", "--spike-buffer", "0"]
        batch = Batch(self.log_dir, self.logger, self.check_interval, options, gpus, completed)
        with terminated_as_interrupted():
            return batch.run([_spec(job) for job in jobs], [job_name(job, i) for i, job in enumerate(jobs, first)], first,
                             lambda cards: self._fit(cards, gpus))

    def _fit(self, cards: Sequence[Mapping[str, Any]], gpus: Gpus) -> Mapping[str, Any]:
        """The request that all jobs share, for the GPUs of this machine."""
        indices = {card["index"] for card in cards}
        if not indices.issuperset(range(self.n_gpus)):
            raise ValueError(f"n_gpus is {self.n_gpus}, but this machine has {len(indices)} "
                             f"GPU{'' if len(indices) == 1 else 's'}")
        asks: dict[str, Any] = {"allow": f"{gpus.ids[0]}-{gpus.ids[-1]}"}
        if self.memory_fraction != _SHARE_OF_CARD:
            # berth's shares divide a fixed part of the memory, so another one is
            # declared in MiB. The largest GPU counts: that is never too little.
            total = max(card["total_mib"] for card in cards if card["index"] in gpus.ids)
            asks["vram"] = max(1, math.floor(total * self.memory_fraction / self.jobs_per_gpu))
            asks["gpus"] = 1 / self.jobs_per_gpu
            asks["exclusive"] = self.jobs_per_gpu == 1
        return asks


def _check(job: Job, index: int) -> None:
    """Refuse a bad job before anything runs."""
    if not hasattr(job, "command"):
        raise TypeError(f"job {index}: expected a Job, found {job!r}")
    if not isinstance(job.command, str) or not job.command.strip():
        raise ValueError(f"job {index}: command: expected a line for bash, found {job.command!r}")
    if job.env is not None and (not isinstance(job.env, Mapping) or None in job.env.values()):
        raise ValueError(f"job {index}: env: expected names with values, found {job.env!r}")


def _spec(job: Job) -> dict[str, Any]:
    directory = os.path.abspath(os.path.expanduser(job.working_dir or "."))
    spec: dict[str, Any] = {"command": job.command, "dir": directory}
    if job.env:
        spec["env"] = {str(k): str(v) for k, v in job.env.items()}
    if job.venv_path:
        spec["venv"] = os.path.join(directory, os.path.expanduser(job.venv_path))
    return spec


def _count(name: str, value: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"{name}: expected a whole number from 1 to {most}, found {value!r}")
    return value


def _number(name: str, value: float, most: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise ValueError(f"{name}: expected {what} above 0 and up to {most:g}, found {value!r}")
    return float(value)
