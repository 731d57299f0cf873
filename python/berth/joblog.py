"""The log files of a GPUScheduler: its own, and one per job."""

from __future__ import annotations

import datetime
import json
import logging
import logging.handlers
import os
import re
import time
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple, Union

MAIN_LOG = "kairos.log"
_MAX_BYTES = 10 * 1024 * 1024
_BACKUPS = 5
_NAME_BYTES = 128
_FORMAT = "%(asctime)s - %(levelname)s - %(message)s"
_JOB_FORMAT = "%(asctime)s - %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"


class _MainLog(logging.handlers.RotatingFileHandler):
    """A rotated log that two schedulers can share: when the other one has
    rotated the file, this one continues in the new file."""

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # type: ignore[override, unused-ignore]
        if self.stream is not None:
            mine = os.fstat(self.stream.fileno())
            try:
                there = os.stat(self.baseFilename)
            except FileNotFoundError:
                there = None
            if there is None or there.st_ino != mine.st_ino:
                self.stream.close()
                self.stream = self._open()
            self.stream.seek(0, os.SEEK_END)  # the other one writes to it too
        return bool(super().shouldRollover(record))


def level_number(level: Union[str, int]) -> int:
    """A level, given as a name in any case or as a number."""
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"log_level: expected DEBUG, INFO, WARNING, ERROR, CRITICAL or a number, found {level!r}")
    return number


def open_main_log(log_dir: Path, level: int) -> logging.Logger:
    """A logger outside logging's registry, which writes to the directory's
    kairos.log and to standard error."""
    log = logging.Logger("kairos.scheduler", level)
    for handler in (_MainLog(log_dir / MAIN_LOG, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, encoding="utf-8"),
                    logging.StreamHandler()):
        handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
        log.addHandler(handler)
    return log


def close_main_log(log: logging.Logger) -> None:
    """Close the file. The next record opens it again."""
    for handler in log.handlers:
        handler.close()


def plain_name(name: str) -> str:
    """A job's name as part of a file name: no slash, no control character,
    valid UTF-8, and not too long."""
    name = re.sub(r"[/\x00-\x1f\x7f-\x9f\ud800-\udfff]", "_", name)
    return name.encode()[:_NAME_BYTES].decode(errors="ignore") or "_"


def create_job_log(log_dir: Path, name: str) -> Path:
    """A new, empty log. Jobs with the same name and second get separate files,
    even from different processes."""
    stem = f"{plain_name(name)}_{time.strftime('%Y%m%d_%H%M%S')}"
    count = 0
    while True:
        path = log_dir / (f"{stem}_{count}.log" if count else f"{stem}.log")
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            count += 1


def append_json(path: Path, entry: Mapping[str, Any]) -> None:
    """Add JSON on a separate line, whatever the job printed last. Like the job
    it only appends, so neither overwrites the other."""
    with open(path, "ab+") as log:
        unfinished = log.tell() > 0 and _last_byte(log) != b"\n"
        log.write((b"\n" if unfinished else b"") + json.dumps(entry).encode() + b"\n")


def _last_byte(log: Any) -> bytes:
    log.seek(-1, os.SEEK_END)
    return bytes(log.read(1))


def job_name(job: Any, index: int) -> str:
    """A job's name, or the one by its position."""
    return f"job_{index}" if job.job_name in (None, "") else str(job.job_name)


class JobLogger:
    """kairos's logs, for programs that write to them: the main log of a
    directory, and a log per job for jobs that the program runs itself. The jobs
    of a GPUScheduler have theirs from berth."""

    def __init__(self, log_dir: Union[str, "os.PathLike[str]"], level: int = logging.INFO) -> None:
        self.log_dir = Path(log_dir)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.logger: logging.Logger = open_main_log(self.log_dir, level)
        close_main_log(self.logger)  # one that writes nothing holds no file open
        self.total_jobs = 0

    def get_job_logger(self, job: Any, job_index: int) -> Tuple[logging.Logger, Path]:
        """A logger for one job, and the new file that it writes to."""
        path = create_job_log(self.log_dir, job_name(job, job_index))
        logger = logging.Logger(f"kairos.job.{job_name(job, job_index)}.{job_index}", logging.INFO)
        handler = logging.FileHandler(path, encoding="utf-8", delay=True)
        handler.setFormatter(logging.Formatter(_JOB_FORMAT, _TIME))
        logger.addHandler(handler)
        return logger, path

    def log_job_start(self, logger: logging.Logger, job: Any, job_index: int, gpu_id: int, slot_id: int) -> None:
        """Write the start of a job to its log, and a line to the main log."""
        name = job_name(job, job_index)
        self.logger.info(f"Starting job {job_index}/{self.total_jobs} ({name}) on GPU {gpu_id} slot {slot_id}")
        _log_json(logger, "Job configuration", {
            "event": "job_start", "job_index": job_index, "job_name": name, "gpu_id": gpu_id, "slot_id": slot_id,
            "command": job.command, "working_dir": str(job.working_dir), "start_time": _now()})

    def log_job_completion(self, logger: logging.Logger, job: Any, job_index: int, gpu_id: Optional[int],
                           return_code: int) -> None:
        """Write the end of a job to its log, and a line to the main log."""
        name, status = job_name(job, job_index), "Success" if return_code == 0 else "Failed"
        self.logger.info(f"Job {job_index}/{self.total_jobs} ({name}) completed with status: {status}")
        _log_json(logger, "Job completed", {
            "event": "job_completion", "job_index": job_index, "job_name": name, "gpu_id": gpu_id, "end_time": _now(),
            "return_code": return_code, "status": status})

    def log_gpu_wait(self, gpu_id: int, usage: float, threshold: float) -> None:
        """Write to the main log that a GPU is waited for; both in per cent."""
        self.logger.info(f"Waiting for GPU {gpu_id} memory usage to drop below {threshold}% (currently {usage:.1f}%)")

    def log_scheduler_event(self, message: str, level: str = "info") -> None:
        """Write a message to the main log."""
        getattr(self.logger, level.lower())(message)


def _log_json(logger: logging.Logger, title: str, entry: Mapping[str, Any]) -> None:
    logger.info(f"{title}: {json.dumps(entry, indent=2)}")


def _now() -> str:
    return datetime.datetime.now().isoformat()
