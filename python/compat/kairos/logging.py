"""kairos's logs, for programs that write to them."""

from berth.joblog import JobLogger

__all__ = ["JobLogger"]
