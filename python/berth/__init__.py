"""berth from Python: a client for its daemon, and kairos's scheduler.

    from berth import Client
    status = Client().submit("python train.py", gpus=2, vram="18G").wait()

    from berth import BerthExecutor
    results = BerthExecutor(gpus=1).map(train, rates)

    from berth import GPUScheduler, Job
    statuses = GPUScheduler(n_gpus=4, jobs_per_gpu=2).run_jobs([Job("python train.py")])

It needs Python 3.9 or newer, the berth program, and nothing else.
"""

from .aio import AsyncArray, AsyncBatch, AsyncClient, AsyncHandle, AsyncSweep
from .client import Client
from .errors import (BerthError, Forbidden, Invalid, JobFailed, MissingProgram, NotFound, Refused, TooMuch, Unavailable,
                     Unreachable)
from .executor import BerthExecutor, BerthFuture, Call
from .fields import Fields, JobSpec
from .handles import Array, Batch, Handle, Sweep, Table
from .kairos import GPUScheduler, GPUSlot, Job
from .statuses import exit_status
from .views import Event, JobView

__version__ = "0.2.0"
__all__ = ["Array", "AsyncArray", "AsyncBatch", "AsyncClient", "AsyncHandle", "AsyncSweep", "Batch", "BerthError", "BerthExecutor", "BerthFuture", "Call", "Client", "Event", "Fields", "Forbidden", "GPUScheduler", "GPUSlot", "Handle", "Invalid",
           "Job", "JobFailed", "JobSpec", "JobView", "MissingProgram", "NotFound", "Refused", "Sweep", "Table", "TooMuch", "Unavailable",
           "Unreachable", "exit_status"]
