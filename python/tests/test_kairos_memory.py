"""When a kairos job may start, and what is logged while it waits."""

from __future__ import annotations

import inspect
import os
import threading
from pathlib import Path
from typing import List

from berth import GPUScheduler, Job

from .support import Lab, Running, until

SMI = """#!/bin/sh
[ -e {dir}/broken ] && {{ echo "Unable to determine the device handle: GPU is lost."; exit 15; }}
case "$*" in
*--query-gpu=index,uuid,name*) echo "0, GPU-11111111-1111-1111-1111-111111111111, NVIDIA A100, 40000, 0, 0, 0" ;;
*--query-gpu=uuid,pci.bus_id*) echo "GPU-11111111-1111-1111-1111-111111111111, 00000000:07:00.0" ;;
"-q -d PIDS") printf 'GPU 00000000:07:00.0\\n    Processes                             : None\\n' ;;
*) exit 2 ;;
esac
"""


class Memory(Lab):
    def test_two_jobs_on_24_gb_need_eleven_point_four_each(self) -> None:
        # seeds: K13 K14 K15
        run = Running(self, self.scheduler(1, 2, log_level="DEBUG"), [Job(self.gate()), Job(self.gate()), Job("true", job_name="last")])
        until(lambda: run.states() == ["running", "running", "queued"])
        # It waits for a slot, not for memory.
        until(lambda: "Job 2 (last) waits for GPU 0: " in self.main_log())
        self.assertNotIn("needed (", self.main_log())
        # 24576 MiB × 0.95 / 2 = 11673; one MiB less than that stays free.
        external = self.foreign(run.client, 0, 24576 - 11672)
        self.open()
        waits = r"Job 2 \(last\) waits for GPU 0: 11672 MiB free, 11673 MiB needed"
        until(lambda: self.main_log().count("11672 MiB free, 11673 MiB needed") >= 2)
        self.assertRegex(self.main_log(), waits)
        self.assertEqual(run.states(), ["finished", "finished", "queued"])
        external.kill()
        external.wait()
        self.assertEqual(run.result(), [0, 0, 0])

    def test_exactly_enough_is_enough(self) -> None:
        # seeds: K14
        run = Running(self, self.scheduler(1, 2), [Job(self.gate()), Job(self.gate()), Job("true")])
        until(lambda: run.states() == ["running", "running", "queued"])
        self.foreign(run.client, 0, 24576 - 11673)
        self.open()
        self.assertEqual(run.result(), [0, 0, 0])

    def test_a_job_goes_to_the_card_that_has_memory(self) -> None:
        # seeds: R27
        run = Running(self, self.scheduler(2, 1), [Job(self.gate()), Job(self.gate()), Job("true"), Job("true")])
        until(lambda: run.states()[:2] == ["running"] * 2)
        self.foreign(run.client, 0, 20000)
        self.open()
        self.assertEqual(run.result(), [0] * 4)
        self.assertRegex(self.main_log(), r"Starting job 2 \(job_2\) on GPU 1")
        self.assertRegex(self.main_log(), r"Starting job 3 \(job_3\) on GPU 1")

    def test_another_part_of_the_card_can_be_asked_for(self) -> None:
        # seeds: K21
        run = Running(self, self.scheduler(1, 2, memory_fraction=0.5), [Job(self.gate()) for _ in range(3)])
        until(lambda: run.states() == ["running", "running", "queued"])
        self.assertEqual(run.client.list()[0]["vram_mib"], 24576 // 4)
        self.open()
        self.assertEqual(run.result(), [0, 0, 0])
        self.assertEqual(GPUScheduler(1, 1).memory_fraction, 0.95)
        for wrong in (0, 1.01, -1, float("nan"), "0.5"):
            with self.assertRaisesRegex(ValueError, "memory_fraction"):
                self.scheduler(memory_fraction=wrong)

    def test_the_whole_card_can_be_divided(self) -> None:
        # seeds: K21
        run = Running(self, self.scheduler(1, 2, memory_fraction=1), [Job(self.gate()) for _ in range(2)])
        until(lambda: run.states() == ["running", "running"])
        self.assertEqual(run.client.list()[0]["vram_mib"], 24576 // 2)
        self.open()
        self.assertEqual(run.result(), [0, 0])

    def test_a_smaller_part_puts_no_second_job_on_a_card_for_one(self) -> None:
        # seeds: K2 K21
        run = Running(self, self.scheduler(1, 1, memory_fraction=0.3), [Job(self.gate()), Job("true")])
        until(lambda: run.states() == ["running", "queued"])
        self.foreign(run.client, 0, 16000)  # 8576 MiB are left, 7372 are needed
        self.open()
        self.assertEqual(run.result(), [0, 0])

    def test_the_cards_are_looked_at_as_often_as_asked(self) -> None:
        # seeds: K3
        self.assertEqual(inspect.signature(GPUScheduler).parameters["check_interval"].default, 5.0)
        run = Running(self, self.scheduler(check_interval=0.25), [Job(self.gate())])
        words = Path(f"/proc/{run.client.status()['pid']}/cmdline").read_text().split("\0")
        self.assertEqual(float(words[words.index("--poll") + 1]), 0.25)
        first = run.client.gpus()[0]["read_at"]
        until(lambda: run.client.gpus()[0]["read_at"] != first)
        self.open()
        run.result()
        for wrong in (0, -1, "5", float("inf")):
            with self.assertRaisesRegex(ValueError, "check_interval"):
                self.scheduler(check_interval=wrong)

    def test_memory_is_told_of_at_each_start_and_at_each_look(self) -> None:
        # seeds: K28
        run = Running(self, self.scheduler(log_level="DEBUG"), [Job("berth simjob --vram 3000 --hold 600")])
        until(lambda: "GPU 0: 21576 MiB free of 24576 MiB" in self.main_log())
        run.client.cancel("all", grace=0)
        run.result()
        self.assertRegex(self.main_log(), r"INFO - Starting job 0 .* 23347 MiB allocated to jobs, 0 MiB used by other processes")
        self.assertIn("peak memory 3000 MiB", self.main_log())


class Unreadable(Lab):
    def setUp(self) -> None:
        super().setUp()
        self.results: List[int] = []

    def test_cards_that_cannot_be_read_start_nothing(self) -> None:
        # seeds: K16 R29
        run = Running(self, self.scheduler(), [Job(self.gate()), Job("touch ran")])
        until(lambda: run.states() == ["running", "queued"])
        fault = Path(run.client.status()["sim_dir"], "fault")
        fault.write_text("unreadable\n")
        until(lambda: run.client.gpus()[0]["stale"])
        self.open()
        until(lambda: run.states()[0] == "finished")

        def told() -> int:
            return self.main_log().count("WARNING - Job 1 (job_1) cannot start: ")
        before = told()
        until(lambda: told() >= before + 2)
        self.assertEqual(run.states(), ["finished", "queued"])
        self.assertFalse(os.path.exists("ran"))
        fault.unlink()
        self.assertEqual(run.result(), [0, 0])

    def smi(self) -> None:
        del os.environ["BERTH_SIM"]
        tool = self.dir / "tools" / "nvidia-smi"
        tool.parent.mkdir()
        tool.write_text(SMI.format(dir=self.dir))
        tool.chmod(0o755)
        os.environ["PATH"] = f"{tool.parent}:{os.environ['PATH']}"
        os.environ["BERTH_GPU_HELPER"] = "/nonexistent"

    def test_nvidia_smi_is_all_that_is_needed(self) -> None:
        # seeds: K25
        self.smi()
        self.assertEqual(self.scheduler().run_jobs([Job("echo card $CUDA_VISIBLE_DEVICES")]), [0])
        self.assertIn("card 0", self.job_log("job_0"))
        self.assertIn("GPU 0: 40000 MiB free of 40000 MiB", self.main_log())

    def test_an_nvidia_smi_that_fails_in_between_starts_nothing(self) -> None:
        # seeds: K16 R29
        self.smi()
        run = Running(self, self.scheduler(), [Job(self.gate()), Job("touch ran")])
        until(lambda: run.states() == ["running", "queued"])
        self.open("broken")
        until(lambda: run.client.gpus()[0]["stale"])
        self.open()
        until(lambda: self.main_log().count("WARNING - Job 1 (job_1) cannot start: ") >= 2)
        self.assertFalse(os.path.exists("ran"))
        os.unlink("broken")
        self.assertEqual(run.result(), [0, 0])

    def test_cards_that_cannot_be_read_at_the_start_are_waited_for(self) -> None:
        # seeds: K16 R29
        # kairos logs an error and starts the job all the same.
        self.smi()
        self.open("broken")
        run = threading.Thread(target=lambda: self.results.extend(self.scheduler().run_jobs([Job("exit 3")])))
        run.start()
        self.addCleanup(run.join)
        self.addCleanup(lambda: Path("broken").unlink(missing_ok=True))
        until(lambda: self.main_log().count("WARNING - No job can start, looking again in 0.1 s: no NVIDIA GPU can be read") >= 2)
        self.assertEqual(list(self.logs.glob("job_0_*")), [])
        os.unlink("broken")
        run.join(60)
        self.assertEqual(self.results, [3])

    def test_so_are_cards_that_the_daemon_knows_of(self) -> None:
        # seeds: K16 R29
        os.environ["BERTH_SIM_DIR"] = str(self.dir / "box")
        fault = self.dir / "box" / "fault"
        fault.parent.mkdir()
        fault.write_text("unreadable\n")
        run = threading.Thread(target=lambda: self.results.extend(self.scheduler().run_jobs([Job("exit 3")])))
        run.start()
        self.addCleanup(run.join)
        self.addCleanup(lambda: fault.unlink(missing_ok=True))
        until(lambda: self.main_log().count("No job can start, looking again in 0.1 s: the GPUs cannot be read") >= 2)
        fault.unlink()
        run.join(60)
        self.assertEqual(self.results, [3])

    def test_without_any_way_to_the_cards_it_is_an_error_that_says_so(self) -> None:
        # seeds: K16 K25 R29
        del os.environ["BERTH_SIM"]
        os.environ["BERTH_GPU_HELPER"] = "/nonexistent"
        os.environ["PATH"] = "/usr/bin:/bin"
        if os.path.exists("/usr/bin/nvidia-smi"):
            self.skipTest("this machine has cards")
        with self.assertRaisesRegex(ValueError, "n_gpus is 1, but this machine has 0 GPUs"):
            self.scheduler().run_jobs([Job("touch ran")])
        self.assertFalse(os.path.exists("ran"))
