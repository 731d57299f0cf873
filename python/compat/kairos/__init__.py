"""kairos's names, served by berth: `from kairos import GPUScheduler, Job`."""

import sys
from pathlib import Path

try:
    import berth  # noqa: F401
except ModuleNotFoundError:  # not installed: it is beside this directory
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from berth import GPUScheduler, GPUSlot, Job

__version__ = "0.1.0"
__all__ = ["GPUScheduler", "GPUSlot", "Job"]
