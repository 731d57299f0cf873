"""submitit on berth: pip install submitit and berth's package; python submitit_jobs.py"""

import submitit
from trial import train

executor = submitit.AutoExecutor(folder="submitit_logs", cluster="berth")
executor.update_parameters(timeout_min=10, name="submitit", gpus_per_node=1, berth_vram="2G")
jobs = executor.map_array(train, [1e-2, 1e-3, 1e-4])
for job in jobs:
    print(job.job_id, job.result())
