"""The log files of a GPUScheduler: its own, and one per job."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import time
from pathlib import Path
from typing import Any, Mapping, Union

MAIN_LOG = "kairos.log"
_MAX_BYTES = 10 * 1024 * 1024
_BACKUPS = 5
_NAME_BYTES = 128
_FORMAT = "%(asctime)s - %(levelname)s - %(message)s"


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
        handler.setFormatter(logging.Formatter(_FORMAT))
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
