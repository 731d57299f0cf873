"""The modules of other schedulers, as their manuals type them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from .support import PYTHON, Lab, berth


class Packages(unittest.TestCase):
    def test_python_3_9_can_read_all_of_it(self) -> None:
        files = [*PYTHON.glob("berth/*.py"), *PYTHON.glob("compat/*/*.py")]
        self.assertGreater(len(files), 10)
        for path in files:
            ast.parse(path.read_text(), str(path), feature_version=(3, 9))

    def test_both_packages_have_the_programs_version(self) -> None:
        version = (PYTHON.parent / "VERSION").read_text().strip()
        self.assertIn(f'version = "{version}"\n', (PYTHON / "compat" / "pyproject.toml").read_text())


KAIROS = """
import inspect
from pathlib import Path
import kairos
from kairos.gpu import calculate_memory_percentage, calculate_per_job_memory, get_gpu_memory_usage, wait_for_gpu_memory
from kairos.logging import JobLogger
from kairos.models import GPUSlot, Job
from kairos.scheduler import GPUScheduler

print(list(inspect.signature(GPUScheduler).parameters)[:4])
scheduler = GPUScheduler(2, 1, "mine", 0.1)
print(scheduler.n_gpus, scheduler.jobs_per_gpu, Path(scheduler.log_dir).name, scheduler.check_interval)
print(scheduler.total_jobs, scheduler.completed_jobs, scheduler.gpu_slots)
scheduler.logger.info("a word of the program")
print(scheduler.run_jobs([Job("true"), Job("exit 4"), Job("true")]), scheduler.total_jobs, scheduler.completed_jobs)
print(scheduler.run_job(scheduler.gpu_slots[1], Job("echo on $CUDA_VISIBLE_DEVICES; exit 5"), 7))
print(scheduler.total_jobs, scheduler.completed_jobs)
JobLogger(scheduler.log_dir).log_scheduler_event("another", "warning")
print(calculate_memory_percentage(1, 4), calculate_memory_percentage(1, 0), round(calculate_per_job_memory(24000, 2)))
print(get_gpu_memory_usage(0), kairos.GPUSlot is GPUSlot, kairos.Job is Job, kairos.GPUScheduler is GPUScheduler)
"""

# What kairos 0.1.0 itself prints, with the nvidia-smi of this test.
KAIROS_SAYS = """\
['n_gpus', 'jobs_per_gpu', 'log_dir', 'check_interval']
2 1 mine 0.1
0 0 [GPUSlot(gpu_id=0, slot_id=0), GPUSlot(gpu_id=1, slot_id=0)]
[0, 4, 0] 3 3
5
3 3
25.0 100.0 11400
(1000.0, 24000.0) True True True
"""

KAIROS_LOGS = """
import subprocess
from kairos import GPUScheduler, Job
from kairos.logging import JobLogger

scheduler = GPUScheduler(1, 1, "mine", 0.1)
mine = scheduler.job_logger
print(isinstance(mine, JobLogger), mine.logger is scheduler.logger, mine.total_jobs)
mine.total_jobs = 2
for index, job in enumerate([Job("echo hello", job_name="named"), Job("exit 7", working_dir="/")]):
    log, path = mine.get_job_logger(job, index)
    print(path.parent.name, path.name.partition("_20")[0], log.name)
    mine.log_job_start(log, job, index, 3, 1)
    ran = subprocess.run(job.command, shell=True, stdout=subprocess.PIPE, text=True)
    log.info(ran.stdout)
    mine.log_job_completion(log, job, index, 3, ran.returncode)
mine.log_scheduler_event("a word", "WARNING")
mine.log_scheduler_event("another")
print(scheduler.run_jobs([Job("true"), Job("true"), Job("true")]), mine.total_jobs)
"""

# What kairos 0.1.0 itself prints.
KAIROS_LOGS_SAYS = """\
True True 0
mine named kairos.job.named.0
mine job_1 kairos.job.job_1.1
[0, 0, 0] 3
"""

# What it writes, without the times.
KAIROS_MAIN_LOG = """\
INFO - Starting job 0/2 (named) on GPU 3 slot 1
INFO - Job 0/2 (named) completed with status: Success
INFO - Starting job 1/2 (job_1) on GPU 3 slot 1
INFO - Job 1/2 (job_1) completed with status: Failed
WARNING - a word
INFO - another
"""
KAIROS_JOB_LOG = """\
Job configuration: {
  "event": "job_start",
  "job_index": 1,
  "job_name": "job_1",
  "gpu_id": 3,
  "slot_id": 1,
  "command": "exit 7",
  "working_dir": "/",
  "start_time": "TIME"
}

Job completed: {
  "event": "job_completion",
  "job_index": 1,
  "job_name": "job_1",
  "gpu_id": 3,
  "end_time": "TIME",
  "return_code": 7,
  "status": "Failed"
}
"""


class Kairos(Lab):
    def test_its_modules_and_its_positions_are_as_they_were(self) -> None:
        # seeds: K3 K4 K24
        tool = self.dir / "nvidia-smi"
        tool.write_text("#!/bin/sh\necho '1000, 24000'\n")
        tool.chmod(0o755)
        os.environ["PATH"] = f"{self.dir}:{os.environ['PATH']}"
        ran = subprocess.run([sys.executable, "-c", KAIROS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             check=False)
        self.assertEqual(ran.stdout, KAIROS_SAYS, ran.stderr)
        log = Path("mine", "kairos.log").read_text()
        self.assertIn(" - INFO - a word of the program\n", log)
        self.assertIn(" - WARNING - another\n", log)
        self.assertIn("on 1\n", next(Path("mine").glob("job_7_*.log")).read_text())

    def test_its_job_logger_writes_what_kairos_wrote(self) -> None:
        # seeds: K24
        ran = subprocess.run([sys.executable, "-c", KAIROS_LOGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, check=False)
        self.assertEqual(ran.stdout, KAIROS_LOGS_SAYS, ran.stderr)
        main = re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d - ", "", Path("mine", "kairos.log").read_text())
        self.assertIn(KAIROS_MAIN_LOG, main)
        own = sorted(Path("mine").glob("job_1_*.log"))[0].read_text()  # the scheduler's job of that name comes later
        own = re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d - ", "", own)
        self.assertEqual(re.sub(r'_time": "[-\dT:.]+"', '_time": "TIME"', own), KAIROS_JOB_LOG)

    def test_its_job_logger_tells_of_a_wait(self) -> None:
        # seeds: K24
        self.scheduler().job_logger.log_gpu_wait(2, 81.26, 50)
        self.assertIn(" - INFO - Waiting for GPU 2 memory usage to drop below 50% (currently 81.3%)\n", self.main_log())


class Gpusched(Lab):
    def test_the_simulated_job_uses_the_card_it_was_given(self) -> None:
        # seeds: G51
        Path("jobs.txt").write_text("[vram=8G] python3 -m gpusched.simjob --vram 8000 --ramp 0.2 --hold 0.5\n")
        run = subprocess.run([berth(), "run", "jobs.txt", "--sim", "2", "--poll", "0.1"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertRegex(run.stdout, r"peak vram gpu0:8000 MiB \| declared 8192 MiB")

    def test_its_exit_status_is_the_modules(self) -> None:
        process = self.python("-m", "gpusched.simjob", "--exit-code", "3")
        said, _ = process.communicate()
        self.assertEqual(process.returncode, 2)  # there is no simulated card outside a job
        self.assertIn("expected BERTH_SIM_DIR", said)

    def test_the_module_is_the_command(self) -> None:
        said, _ = self.python("-m", "gpusched", "--help").communicate()
        command = subprocess.run([berth(), "compat", "gpusched", "--help"], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(said, command.stdout)
        self.assertIn("gpusched", said)
