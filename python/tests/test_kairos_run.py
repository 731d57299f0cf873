"""A whole run of kairos: its logs, its end, and what survives what."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import chain, repeat
from pathlib import Path
from unittest import mock

from berth import Client, GPUScheduler, Job, joblog, private

from .support import Lab, Running, until

KILLED = """
import sys
from kairos import GPUScheduler, Job
GPUScheduler(1, 1, check_interval=0.1).run_jobs([Job("touch began; " + sys.argv[1]), Job("touch second")])
"""

QUICK_START = '''
from kairos import GPUScheduler, Job

# Initialise scheduler with 4 GPUs, 2 jobs per GPU
scheduler = GPUScheduler(n_gpus=4, jobs_per_gpu=2)

# Define your jobs - in pracitce, probably dynamically
jobs = [
    Job(
        command="python train.py --config config1.yaml",
        venv_path=".venv",
        working_dir="{project}",
        job_name="train_model1"  # Optional name for better log identification
    ),
    Job(
        command="python train.py --config config2.yaml",
        env={{"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:5000"}},
        job_name="train_model2"
    )
]

# Run all jobs
results = scheduler.run_jobs(jobs)
print(results)
'''
TRAIN = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))\n"


class Whole(Lab):
    sim = 4

    def test_the_quick_start_works_as_it_is_typed(self) -> None:
        # seeds: K1 K2 K6 K7 K8 K23 K24
        project = self.dir / "project"
        project.mkdir()
        for place in (project, self.dir):
            (place / "train.py").write_text(TRAIN)
        if subprocess.run([sys.executable, "-m", "venv", "--without-pip", project / ".venv"], check=False).returncode:
            self.skipTest("python3 -m venv does not work here")
        # Without python on PATH, the activated environment's is used.
        Path("quick.py").write_text(QUICK_START.format(project=project))
        (self.dir / "bin").mkdir()
        (self.dir / "bin" / "python").symlink_to(sys.executable)
        os.environ["PATH"] = f"{self.dir}/bin:{os.environ['PATH']}"
        said, _ = self.python("quick.py").communicate()
        self.assertTrue(said.endswith("[0, 0]\n"), said)
        self.assertIn(f"['--config', 'config1.yaml'] {project} None", self.job_log("train_model1"))
        self.assertIn(f"['--config', 'config2.yaml'] {self.dir} max_split_size_mb:5000", self.job_log("train_model2"))

    def test_the_log_tells_of_the_cards_that_were_asked_for(self) -> None:
        # seeds: K1
        self.scheduler(2, log_level="DEBUG").run_jobs([Job("sleep 0.3")])
        self.assertIn("GPU 1: 24576 MiB free", self.main_log())
        self.assertNotIn("GPU 2", self.main_log())

    def test_logs_go_to_a_directory_that_is_made(self) -> None:
        # seeds: K4
        GPUScheduler(1, 1).run_jobs([Job("true")])
        self.assertTrue(Path("logs", "kairos.log").exists())
        self.scheduler(log_dir="deep/er").run_jobs([Job("true")])
        self.assertTrue(Path("deep", "er", "kairos.log").exists())

    def test_the_main_log_is_rotated_at_ten_mebibytes_and_five_are_kept(self) -> None:
        # seeds: K17
        self.logs.mkdir()
        log, other = (joblog.open_main_log(self.logs, logging.INFO) for _ in range(2))
        handler = log.handlers[0]
        assert isinstance(handler, logging.handlers.RotatingFileHandler)
        self.assertEqual((handler.maxBytes, handler.backupCount), (10 * 1024 * 1024, 5))
        joblog.close_main_log(log)
        joblog.close_main_log(other)
        with mock.patch.object(joblog, "_MAX_BYTES", 1000):
            log, other = (joblog.open_main_log(self.logs, logging.INFO) for _ in range(2))
        for i in range(200):
            (log if i % 2 else other).info("line %03d", i)
        joblog.close_main_log(log)
        joblog.close_main_log(other)
        files = sorted(path.name for path in self.logs.iterdir())
        self.assertEqual(files, ["kairos.log"] + [f"kairos.log.{i}" for i in range(1, 6)])
        kept = [line[-3:] for name in [*reversed(files[1:]), files[0]] for line in (self.logs / name).read_text().split("\n") if line]
        self.assertEqual(kept, [f"{i:03}" for i in range(200 - len(kept), 200)])
        self.assertLessEqual(max(path.stat().st_size for path in self.logs.iterdir()), 1000)

    def test_the_level_of_the_log_can_be_chosen(self) -> None:
        # seeds: K20
        jobs = [Job("true"), Job("exit 1")]
        self.scheduler(log_dir="quiet", log_level="warning").run_jobs(jobs)
        self.assertRegex(Path("quiet/kairos.log").read_text(), r"\A[^\n]* - ERROR - Job 1 [^\n]*\n\Z")
        self.scheduler(log_dir="usual").run_jobs(jobs)
        self.assertIn("INFO - Starting job 0", Path("usual/kairos.log").read_text())
        self.scheduler(log_dir="number", log_level=logging.CRITICAL).run_jobs(jobs)
        self.assertEqual(Path("number/kairos.log").read_text(), "")
        with self.assertRaisesRegex(ValueError, "log_level: expected .*, found 'LOUD'"):
            self.scheduler(log_level="LOUD")

    def test_it_leaves_no_trace_in_the_program_that_uses_it(self) -> None:
        # seeds: K24
        loggers, handlers = set(logging.root.manager.loggerDict), list(logging.root.handlers)
        threads, files = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
        self.assertEqual(self.scheduler().run_jobs(Job(f"exit {i}") for i in range(3)), [0, 1, 2])
        self.assertEqual(self.scheduler().run_jobs([]), [])
        self.assertEqual((set(logging.root.manager.loggerDict), logging.root.handlers), (loggers, handlers))
        self.assertEqual(set(threading.enumerate()), threads)
        self.assertEqual(len(os.listdir("/proc/self/fd")), len(files))
        self.assertEqual(list((self.dir / "state" / "berth" / "kairos").iterdir()), [])

    def test_two_schedulers_at_once_do_not_mix(self) -> None:
        # seeds: K24
        first = Running(self, self.scheduler(), [Job(self.gate(), job_name="x"), Job("exit 5", job_name="x")])
        self.assertEqual(self.scheduler().run_jobs([Job("exit 6", job_name="x")]), [6])
        self.open()
        self.assertEqual(first.result(), [0, 5])
        self.assertEqual(len(list(self.logs.glob("x_*.log"))), 3)


class Ends(Lab):
    def test_ctrl_c_stops_the_jobs_and_is_passed_on(self) -> None:
        process = self.python("-c", KILLED, "trap 'echo ended; exit' TERM; " + self.gate(),
                              start_new_session=True)
        until(lambda: os.path.exists("began"))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said, _ = process.communicate(timeout=60)
        self.assertTrue(said.rstrip().endswith("KeyboardInterrupt"), said)
        self.assertIn("ended", self.job_log("job_0"))
        self.assertNotIn("The daemon died", said)
        self.assertFalse(os.path.exists("second"))
        self.assertEqual(list((self.dir / "state" / "berth" / "kairos").iterdir()), [])

    def test_so_does_term_where_the_program_has_no_use_for_it(self) -> None:
        process = self.python("-c", KILLED, "trap 'echo ended; exit' TERM; " + self.gate())
        until(lambda: os.path.exists("began"))
        process.terminate()
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertNotIn("Traceback", said)
        self.assertIn("ended", self.job_log("job_0"))
        self.assertFalse(os.path.exists("second"))
        self.assertEqual(list((self.dir / "state" / "berth" / "kairos").iterdir()), [])

    def test_a_program_keeps_what_it_does_about_term(self) -> None:
        for mine in (signal.SIG_DFL, signal.SIG_IGN, lambda *_: None):
            before = signal.signal(signal.SIGTERM, mine)
            self.addCleanup(signal.signal, signal.SIGTERM, before)
            self.assertEqual(self.scheduler().run_jobs([Job("true")]), [0])
            self.assertIs(signal.getsignal(signal.SIGTERM), mine)

    def test_the_second_time_jobs_are_stopped_at_once(self) -> None:
        process = self.python("-c", KILLED, "trap '' TERM; " + self.gate())
        until(lambda: os.path.exists("began"))
        process.send_signal(signal.SIGINT)
        until(lambda: "Stopping all jobs" in self.main_log())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertIn('"return_code": -9', self.job_log("job_0"))

    def test_jobs_are_stopped_though_the_daemon_was_lost_just_then(self) -> None:
        run = Running(self, self.scheduler(), [Job("touch began; " + self.gate())])
        until(lambda: os.path.exists("began"))
        with mock.patch("berth.batch.Batch._report", side_effect=chain(map(self.lose, [run]), repeat(None))):
            with self.assertRaisesRegex(RuntimeError, "on purpose"):
                run.result()
        self.assertIn('"outcome": "cancelled"', self.job_log("job_0"))
        self.assertEqual(list((self.dir / "state" / "berth" / "kairos").iterdir()), [])

    @staticmethod
    def lose(run: Running) -> None:
        pid = run.client.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        raise RuntimeError("on purpose")

    def test_what_a_killed_python_queued_is_run_to_its_end(self) -> None:
        # seeds: K26
        process = self.python("-c", KILLED, self.gate())
        until(lambda: os.path.exists("began"))
        state = next((self.dir / "state" / "berth" / "kairos").iterdir())
        daemon = Client(str(state / "berth.sock")).status()["pid"]
        process.kill()
        process.wait()
        self.open()
        until(lambda: os.path.exists("second"))
        until(lambda: not os.path.exists(f"/proc/{daemon}"))  # and then the daemon ends by itself

    def test_a_killed_daemon_costs_no_job_and_no_status(self) -> None:
        # seeds: K26
        jobs = [Job(f"echo ran >> count0; {self.gate()}; exit 7"), Job("echo ran >> count1; exit 8")]
        run = Running(self, self.scheduler(), jobs)
        until(lambda: os.path.exists("count0"))
        os.kill(run.client.status()["pid"], signal.SIGKILL)
        until(lambda: "The daemon died" in self.main_log())
        self.open()
        self.assertEqual(run.result(), [7, 8])
        for name in ("count0", "count1"):
            self.assertEqual(Path(name).read_text(), "ran\n")

    def test_a_long_state_directory_is_no_obstacle(self) -> None:
        os.environ["XDG_STATE_HOME"] = str(self.dir / ("x" * 120))
        before = set(Path("/tmp").glob("berth-*"))
        show = f"readlink -e {self.dir}/x*/berth/kairos/*/berth.sock > socket; exit 2"
        self.assertEqual(self.scheduler().run_jobs([Job(show)]), [2])
        socket = Path(Path("socket").read_text().strip())
        self.assertNotIn(socket.parent, before)
        self.assertFalse(socket.parent.exists())

    def test_what_nobody_needs_any_more_is_removed_after_a_week(self) -> None:
        home = self.dir / "state" / "berth" / "kairos"
        process = self.python("-c", KILLED, self.gate())
        until(lambda: os.path.exists("began"))
        state = next(home.iterdir())
        daemon = Client(str(state / "berth.sock")).status()["pid"]
        process.kill()
        process.wait()
        self.sweep(state)
        self.assertTrue(state.exists(), "the daemon has it")
        os.kill(daemon, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{daemon}"))
        self.sweep(state)
        self.assertTrue(state.exists(), "the supervisor of a job has it")
        self.open()
        until(lambda: not any(private._held(lock) for lock in private._locks(state)))
        os.utime(state)
        self.scheduler().run_jobs([Job("true")])
        self.assertTrue(state.exists(), "it is not a week old")
        self.sweep(state)
        self.assertEqual(list(home.iterdir()), [])

    def sweep(self, state: Path) -> None:
        week_ago = time.time() - 8 * 86400
        os.utime(state, (week_ago, week_ago))
        self.assertEqual(self.scheduler().run_jobs([Job("true")]), [0])
