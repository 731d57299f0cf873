"""kairos's main log, for programs that write to it."""

from __future__ import annotations

import logging
from pathlib import Path

from berth.joblog import open_main_log


class JobLogger:
    """The main log of a directory. The logs of jobs are berth's."""

    def __init__(self, log_dir: Path) -> None:
        self.log_dir = Path(log_dir)
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.logger = open_main_log(self.log_dir, logging.INFO)

    def log_scheduler_event(self, message: str, level: str = "info") -> None:
        """Write a message to the main log."""
        getattr(self.logger, level.lower())(message)
