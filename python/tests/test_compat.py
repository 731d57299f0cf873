"""The modules of other schedulers, as their manuals type them."""

from __future__ import annotations

import ast
import subprocess
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
