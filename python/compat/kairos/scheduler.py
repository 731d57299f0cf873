"""kairos's scheduler."""

from . import GPUScheduler

__all__ = ["GPUScheduler"]
