"""The examples, on simulated GPUs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import unittest

from .support import PYTHON, REPOSITORY, Served

EXAMPLES = REPOSITORY / "examples" / "python"


def needs(*modules: str) -> object:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return unittest.skipIf(missing, f"{', '.join(missing)} is not installed")


class Examples(Served):
    def example(self, *words: str) -> str:
        path = os.pathsep.join([str(PYTHON), str(EXAMPLES), os.getcwd(), *(p for p in sys.path if p.endswith("-packages"))])
        done = subprocess.run([sys.executable, *words], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_grid(self) -> None:
        self.assertEqual(self.example(str(EXAMPLES / "grid.py")).splitlines()[-1], "best: 0.001 64")
        self.assertEqual(len(self.client.array("1")), 6)

    def test_random_search(self) -> None:
        said = self.example(str(EXAMPLES / "random_search.py"))
        self.assertEqual(len(re.findall("'loss'", said)), 8)
        self.assertIn("best: 0.000538", said)

    def test_ask_and_tell_stops_a_bad_trial(self) -> None:
        said = self.example(str(EXAMPLES / "ask_tell.py"))
        self.assertRegex(said, r"lr=1\.00e-05 .* stopped early")
        states = [job["state"] for job in self.client.list(over=True)]
        self.assertEqual(len(states), 9)
        self.assertIn("cancelled", states)

    @needs("optuna")  # type: ignore[misc, operator, unused-ignore]
    def test_optuna(self) -> None:
        self.assertRegex(self.example(str(EXAMPLES / "optuna_study.py")), r"best: \{'lr': .*\} [\d.]+ of 12")

    @needs("submitit")  # type: ignore[misc, operator, unused-ignore]
    def test_submitit(self) -> None:
        said = self.example(str(EXAMPLES / "submitit_jobs.py"))
        self.assertEqual(re.findall(r"^1_(\d) .*'lr': ([\d.]+)", said, re.M), [("0", "0.01"), ("1", "0.001"), ("2", "0.0001")])
        self.assertEqual({job["vram_mib"] for job in self.client.array("1").jobs()}, {2048})

    @needs("submitit")  # type: ignore[misc, operator, unused-ignore]
    def test_submitit_requeues_from_a_checkpoint(self) -> None:
        (self.dir / "again.py").write_text("""
import time, submitit

class Train:
    def __init__(self, start=0): self.steps = start
    def __call__(self):
        while not self.steps or self.steps < 10_000:
            self.steps += 1
            time.sleep(0.01)
        return self.steps
    def checkpoint(self):
        return submitit.helpers.DelayedSubmission(Train(10_000))

def fail(): raise ValueError("from the job")

if __name__ == "__main__":
    executor = submitit.AutoExecutor(folder="logs", cluster="berth")
    executor.update_parameters(timeout_min=1, berth_timeout=12, berth_signal_delay_s=4)
    train, bad = executor.submit(Train()), executor.submit(fail)
    print(train.result(), train.state, train.job_id, bad.exception())
    print("stderr:", bad.stderr())
    waiting = executor.submit(Train())
    waiting.cancel()
""")
        said = self.example("again.py")
        self.assertIn("10000 ", said)
        self.assertIn("ValueError: from the job", said)
        self.assertRegex(said, "stderr: .*")
        self.assertGreaterEqual(self.client.show("1")["attempt"], 2)
        self.assertIsNotNone(self.client.show("1")["checkpoints"]["saved_at"])
        self.assertEqual(self.client.job("3").wait(check=False), 1)

    @needs("submitit", "hydra_plugins.hydra_submitit_launcher")  # type: ignore[misc, operator, unused-ignore]
    def test_hydra(self) -> None:
        shutil.copytree(EXAMPLES / "hydra", "app")
        os.chdir("app")
        self.example("app.py", "--multirun", "lr=1e-2,1e-3", "width=32,64", "hydra/launcher=berth", "hydra.launcher.vram=2G")
        self.assertEqual(self.client.array("1").wait(), [0] * 4)
        self.assertEqual({row["name"][:3] for row in self.client.array("1").table()}, {"app"})
