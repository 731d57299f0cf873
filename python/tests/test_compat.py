"""The modules of other schedulers, as their manuals type them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .support import Lab, berth


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
        self.assertIn("BERTH_SIM_DIR is not set", said)

    def test_the_module_is_the_command(self) -> None:
        said, _ = self.python("-m", "gpusched", "--help").communicate()
        command = subprocess.run([berth(), "compat", "gpusched", "--help"], stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual(said, command.stdout)
        self.assertIn("gpusched", said)
