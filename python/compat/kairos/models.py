"""kairos's data: jobs, and slots on GPUs."""

from . import GPUSlot, Job

__all__ = ["GPUSlot", "Job"]
