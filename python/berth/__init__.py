"""berth from Python: a client for its daemon, and kairos's scheduler.

    from berth import Client
    status = Client().submit("python train.py", gpus=2, vram="18G").wait()

    from berth import GPUScheduler, Job
    statuses = GPUScheduler(n_gpus=4, jobs_per_gpu=2).run_jobs([Job("python train.py")])

It needs Python 3.9 or newer, the berth program, and nothing else.
"""

from .client import Client, Handle, exit_status
from .errors import BerthError
from .kairos import GPUScheduler, GPUSlot, Job
from .views import Event, JobView

__version__ = "0.2.0"
__all__ = ["BerthError", "Client", "Event", "GPUScheduler", "GPUSlot", "Handle", "Job", "JobView", "exit_status"]
