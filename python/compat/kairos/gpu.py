"""kairos's view of a GPU's memory, from nvidia-smi. berth itself reads the GPUs
more often and in other ways; this is for programs that ask."""

from __future__ import annotations

import logging
import subprocess
import time
from typing import Optional, Tuple

_FRACTION = 0.95  # of a GPU's memory, for its jobs

logger = logging.getLogger(__name__)


def get_gpu_memory_usage(gpu_id: int) -> Tuple[Optional[float], Optional[float]]:
    """Used and total memory of a GPU in MiB; (None, None) if it cannot be read."""
    command = ["nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,nounits,noheader", "-i", str(gpu_id)]
    try:
        used, total = subprocess.check_output(command).decode().split(",")
        return float(used), float(total)
    except (OSError, subprocess.SubprocessError, ValueError) as err:
        logger.error("GPU %s cannot be read: %s", gpu_id, err)
        return None, None


def calculate_memory_percentage(used: float, total: float) -> float:
    """Memory in use, in per cent; 100 if the GPU has none."""
    return 100 * used / total if total else 100.0


def calculate_per_job_memory(total_memory: float, jobs_per_gpu: int) -> float:
    """The memory that a job needs free on a GPU."""
    return total_memory * _FRACTION / jobs_per_gpu


def wait_for_gpu_memory(gpu_id: int, jobs_per_gpu: int, check_interval: float, logger: logging.Logger) -> None:
    """Return when a GPU has the memory for one job. A GPU that cannot be read is
    waited for."""
    while True:
        used, total = get_gpu_memory_usage(gpu_id)
        if used is None or total is None:
            logger.error(f"Could not get memory usage for GPU {gpu_id}")
        else:
            free, needed = total - used, calculate_per_job_memory(total, jobs_per_gpu)
            if free >= needed:
                return
            logger.info(f"GPU {gpu_id} has {free:.1f}MB free, needs {needed:.1f}MB, waiting...")
        time.sleep(check_interval)
