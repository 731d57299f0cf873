"""The arguments of a kairos job, and its result."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from berth import BerthError, GPUScheduler, Job

from .support import Lab, Running, until


class Jobs(Lab):
    def test_statuses_are_in_the_order_of_the_jobs_and_a_failure_stops_no_other(self) -> None:
        # seeds: K12 K22
        statuses = self.scheduler(2).run_jobs(
            [Job("exit 3"), Job("true", job_name="good"), Job("kill -9 $$"), Job("no-such-program"), Job("exit 0")])
        self.assertEqual(statuses, [3, 0, -9, 127, 0])
        self.assertRegex(self.main_log(), r"ERROR - Job 0 \(job_0\) completed with status: Failed")
        self.assertRegex(self.main_log(), r"INFO - Job 1 \(good\) completed with status: Success")

    def test_a_command_is_a_line_for_bash(self) -> None:
        # seeds: K5
        self.assertEqual(self.scheduler().run_jobs(
            [Job('[[ abc == a* ]] && echo "version ${BASH_VERSION%%.*}" | tr v V && x=(1 2); exit ${#x[@]}')]), [2])
        self.assertRegex(self.job_log("job_0"), r"(?m)^Version \d+$")
        with self.assertRaises(TypeError):
            Job()  # type: ignore[call-arg]
        with self.assertRaisesRegex(ValueError, "job 1: command: expected .*, found ' '"):
            self.scheduler().run_jobs([Job("true"), Job(" ")])
        with self.assertRaisesRegex(TypeError, "job 0: expected a Job, found 'true'"):
            self.scheduler().run_jobs(["true"])  # type: ignore[list-item]

    def test_a_command_that_berth_cannot_be_told_runs_nothing_and_is_no_other(self) -> None:
        for wrong, why in (("echo \udcff", "expected UTF-8"), ("true " + "x" * 200_000, "an argument of the command has"),
                           ("true " + "x" * 3_000_000, "takes more than")):
            with self.assertRaisesRegex(BerthError, why) as caught:
                self.scheduler().run_jobs([Job("touch ran"), Job(wrong)])
            self.assertNotEqual(caught.exception.kind, "unreachable")
        self.assertFalse(os.path.exists("ran"))
        self.assertEqual([path.name for path in self.logs.iterdir()], ["kairos.log"])

    def test_variables_are_inherited_and_those_of_a_job_are_its_own(self) -> None:
        # seeds: K6
        os.environ["OUTER"] = "from outside"
        self.assertEqual(self.scheduler().run_jobs(
            [Job('echo "<$OUTER|$MINE>"', env={"MINE": "it's \"mine\""}), Job('echo "<$OUTER|$MINE>"')]), [0, 0])
        self.assertIn("<from outside|it's \"mine\">", self.job_log("job_0"))
        self.assertIn("<from outside|>", self.job_log("job_1"))
        self.assertNotIn("MINE", os.environ)

    def test_variables_may_be_what_has_a_text(self) -> None:
        # seeds: K6
        self.assertEqual(self.scheduler().run_jobs(
            [Job('[[ $A == 5 && $B == /x && $C == $\'two\\nlines\' && -z ${D-unset} ]]',
                 env={"A": 5, "B": Path("/x"), "C": "two\nlines", "D": ""})]), [0])  # type: ignore[dict-item]
        for wrong in ({"A": None}, ["A=1"]):
            with self.assertRaisesRegex(ValueError, "job 0: env: expected .*, found"):
                self.scheduler().run_jobs([Job("true", env=wrong)])  # type: ignore[arg-type]

    def test_the_card_that_was_given_wins_over_the_jobs_own_variable(self) -> None:
        # seeds: K10
        os.environ["CUDA_VISIBLE_DEVICES"] = "6"
        self.assertEqual(self.scheduler(2).run_jobs([
            Job(f'echo "<$CUDA_VISIBLE_DEVICES>"; touch {i}; until [ -e 0 ] && [ -e 1 ]; do sleep 0.05; done',
                env={"CUDA_VISIBLE_DEVICES": "7"}) for i in range(2)]), [0, 0])
        seen = {re.findall(r"(?m)^<(.*)>$", self.job_log(f"job_{i}"))[0] for i in range(2)}
        self.assertEqual(seen, {"0", "1"})

    def test_a_virtual_environment_is_activated_first(self) -> None:
        # seeds: K7
        os.makedirs("project")
        made = subprocess.run([sys.executable, "-m", "venv", "--without-pip", "project/.venv"], check=False)
        if made.returncode != 0:
            self.skipTest("python3 -m venv does not work here")
        show = "python -c 'import sys; print(sys.prefix)'; echo \"<$CUDA_VISIBLE_DEVICES>\""
        whole = str(self.dir / "project" / ".venv")
        self.assertEqual(self.scheduler().run_jobs(
            [Job(show, venv_path=whole), Job(show, venv_path=".venv", working_dir="project")]), [0, 0])
        for name in ("job_0", "job_1"):
            self.assertIn(f"{whole}\n<0>", self.job_log(name))

    def test_a_missing_environment_fails_that_job_alone(self) -> None:
        # seeds: K7
        self.assertEqual(self.scheduler().run_jobs([Job("touch ran", venv_path="nowhere"), Job("true")]), [127, 0])
        self.assertFalse(os.path.exists("ran"))
        self.assertIn("cannot read", self.job_log("job_0"))

    def test_a_job_runs_in_its_directory_or_in_the_current_one(self) -> None:
        # seeds: K8
        os.makedirs("elsewhere")
        self.assertEqual(self.scheduler().run_jobs([Job("pwd"), Job("pwd", working_dir="elsewhere")]), [0, 0])
        self.assertRegex(self.job_log("job_0"), rf"(?m)^{self.dir}$")
        self.assertRegex(self.job_log("job_1"), rf"(?m)^{self.dir}/elsewhere$")

    def test_a_bad_directory_fails_that_job_alone(self) -> None:
        # seeds: R26
        self.assertEqual(self.scheduler().run_jobs([Job("true", working_dir="/nowhere"), Job("exit 4")]), [127, 4])
        self.assertIn("no such file or directory", self.job_log("job_0"))

    def test_a_job_without_a_name_is_called_by_its_place(self) -> None:
        # seeds: K9
        self.scheduler().run_jobs([Job("echo first"), Job("echo second", job_name="mine"), Job("echo third")])
        self.assertIn("first", self.job_log("job_0"))
        self.assertIn("second", self.job_log("mine"))
        self.assertIn("third", self.job_log("job_2"))

    def test_any_name_makes_a_file_in_the_directory(self) -> None:
        # seeds: K18
        names = {"..": "..", "a/b": "a_b", "new\nline": "new_line", "名" * 100: "名" * 42, 5: "5", "%j": "%j", "\udcff": "_"}
        jobs = [Job(f"echo number {i}", job_name=name) for i, name in enumerate(names)]  # type: ignore[arg-type]
        self.assertEqual(self.scheduler().run_jobs(jobs), [0] * len(names))
        for i, stem in enumerate(names.values()):
            self.assertIn(f"number {i}\n", self.job_log(stem))

    def test_jobs_of_one_name_have_logs_of_their_own(self) -> None:
        # seeds: R28
        self.scheduler(2, 4).run_jobs([Job(f"echo number {i}", job_name="same/name") for i in range(8)])
        found = [re.findall(r"(?m)^number \d$", path.read_text()) for path in self.logs.glob("same_name_*.log")]
        self.assertEqual(sorted(found), [[f"number {i}"] for i in range(8)])

    def test_a_jobs_log_has_both_outputs_and_how_it_began_and_ended(self) -> None:
        # seeds: K18 K19
        self.assertEqual(self.scheduler().run_jobs([
            Job("echo out; echo err >&2; berth simjob --vram 5000 --hold 0.5; printf 'no end of line'; exit 9",
                job_name="talks")]), [9])
        path = next(self.logs.glob("talks_*.log"))
        self.assertRegex(path.name, r"^talks_\d{8}_\d{6}\.log$")
        begin, *printed, end = path.read_text().splitlines()
        self.assertEqual([printed[0], printed[1], printed[-1]], ["out", "err", "no end of line"])
        began, ended = json.loads(begin), json.loads(end)
        self.assertEqual({**began, "pid": 0, "start_time": "", "command": ""}, {
            "event": "job_start", "job_index": 0, "job_name": "talks", "command": "", "working_dir": str(self.dir),
            "gpu_id": 0, "slot_id": 0, "pid": 0, "start_time": ""})
        self.assertGreater(began["pid"], 0)
        self.assertTrue(began["command"].endswith("exit 9"))
        self.assertEqual({**ended, "start_time": "", "end_time": ""}, {
            "event": "job_completion", "job_index": 0, "job_name": "talks", "gpu_id": 0, "start_time": "",
            "end_time": "", "return_code": 9, "status": "Failed", "outcome": "exit:9", "reason": None,
            "peak_memory_mib": 5000})

    def test_slots_are_numbered_on_each_card_and_used_again(self) -> None:
        # seeds: K19
        jobs = [Job(f"echo i=$i; sleep 0.2; {self.gate() if n < 4 else 'true'}", env={"i": "mine"}) for n in range(4)]
        run = Running(self, self.scheduler(2, 2), jobs + [Job("true") for _ in range(6)])
        until(lambda: run.states()[:4] == ["running"] * 4)
        until(lambda: all("i=mine" in self.job_log(f"job_{n}") for n in range(4)))
        self.open()
        self.assertEqual(run.result(), [0] * 10)
        began = [json.loads(self.job_log(f"job_{n}").splitlines()[0]) for n in range(10)]
        self.assertEqual(sorted((b["gpu_id"], b["slot_id"]) for b in began[:4]), [(0, 0), (0, 1), (1, 0), (1, 1)])
        self.assertLessEqual({b["slot_id"] for b in began[4:]}, {0, 1})

    def test_a_large_output_is_whole(self) -> None:
        # seeds: K18
        self.assertEqual(self.scheduler().run_jobs([Job("seq 200000")]), [0])
        lines = self.job_log("job_0").splitlines()[1:-1]
        self.assertEqual((len(lines), lines[-1]), (200000, "200000"))


class Order(Lab):
    def test_jobs_start_one_after_the_other_as_places_become_free(self) -> None:
        # seeds: K11
        # After one of each has run, a policy that prefers short jobs would show here.
        jobs = [Job(f"echo {i} >> order; sleep {0.6 if i % 2 == 0 else 0}", job_name="odd" if i % 2 else "even")
                for i in range(8)]
        self.assertEqual(self.scheduler(1, 1).run_jobs(jobs), [0] * 8)
        with open("order") as order:
            self.assertEqual(order.read().split(), [str(i) for i in range(8)])

    def test_each_card_has_so_many_jobs_at_a_time_and_no_other_card_any(self) -> None:
        # seeds: K1 K2
        os.environ["BERTH_SIM"] = "4"
        scheduler = self.scheduler(2, 3)
        self.assertEqual(len(scheduler.gpu_slots), 6)
        run = Running(self, scheduler, [Job(self.gate()) for _ in range(8)])
        until(lambda: run.states().count("running") == 6)
        cards = sorted(job["gpu_ids"][0] for job in run.client.list(states=["running"]) if job["gpu_ids"])
        self.assertEqual(cards, [0, 0, 0, 1, 1, 1])
        self.assertEqual(run.states().count("queued"), 2)
        self.open()
        self.assertEqual(run.result(), [0] * 8)
        with self.assertRaises(TypeError):
            GPUScheduler()  # type: ignore[call-arg]
        with self.assertRaises(TypeError):
            GPUScheduler(n_gpus=1)  # type: ignore[call-arg]

    def test_more_cards_than_there_are_is_an_error_that_says_so(self) -> None:
        # seeds: K1
        with self.assertRaisesRegex(ValueError, "n_gpus is 5, but this machine has 2 GPUs"):
            self.scheduler(5).run_jobs([Job("true")])
        self.assertEqual(list(self.logs.glob("job_0*")), [])

    def test_no_job_goes_to_a_busy_card_while_another_is_free(self) -> None:
        # seeds: R27
        run = Running(self, self.scheduler(2, 2), [Job(self.gate()) for _ in range(2)])
        until(lambda: run.states() == ["running"] * 2)
        self.assertEqual([job["gpu_ids"] for job in run.client.list()], [[0], [1]])
        self.open()
        self.assertEqual(run.result(), [0, 0])


if __name__ == "__main__":
    unittest.main()
