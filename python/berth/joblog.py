"""The log files of a GPUScheduler: its own, and one for each job."""

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
    """Two schedulers may share a directory: when the other one has rotated
    the file, this one goes on in the new file, not in the old."""

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
            self.stream.seek(0, os.SEEK_END)  # its size is the other one's doing too
        return bool(super().shouldRollover(record))


def level_number(level: Union[str, int]) -> int:
    """A level by its name, in any case, or its number."""
    number = logging.getLevelName(level.upper()) if isinstance(level, str) else level
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"log_level: found {level!r}, allowed DEBUG, INFO, WARNING, ERROR, CRITICAL, or a number")
    return number


def open_main_log(log_dir: Path, level: int) -> logging.Logger:
    """A logger that belongs to nobody else: it is not in logging's registry,
    and writes to the directory's kairos.log and to standard error."""
    log = logging.Logger("kairos", level)
    for handler in (_MainLog(log_dir / MAIN_LOG, maxBytes=_MAX_BYTES, backupCount=_BACKUPS, encoding="utf-8"),
                    logging.StreamHandler()):
        handler.setFormatter(logging.Formatter(_FORMAT))
        log.addHandler(handler)
    return log


def close_main_log(log: logging.Logger) -> None:
    """Let go of the files."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()


def plain_name(name: str) -> str:
    """A job's name as a part of a file's: no directory, no control character,
    no byte that is no text, and not too long."""
    name = re.sub(r"[/\x00-\x1f\x7f-\x9f\ud800-\udfff]", "_", name)
    return name.encode()[:_NAME_BYTES].decode(errors="ignore") or "_"


def create_job_log(log_dir: Path, name: str) -> Path:
    """A new, empty log. Jobs of one name and one second get files of their
    own, whichever process they belong to."""
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
    """Add one line of JSON, on a line of its own whatever the job printed
    last. Like the job itself it only appends, so neither can hurt the other."""
    with open(path, "ab+") as log:
        cut = log.tell() > 0 and _last_byte(log) != b"\n"
        log.write((b"\n" if cut else b"") + json.dumps(entry).encode() + b"\n")


def _last_byte(log: Any) -> bytes:
    log.seek(-1, os.SEEK_END)
    return bytes(log.read(1))
