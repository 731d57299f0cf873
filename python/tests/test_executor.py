"""Functions as jobs."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import threading
import unittest
from collections import Counter
from typing import Any, List
from unittest import mock

from berth import BerthError, BerthExecutor, Client, Invalid, JobFailed, NotFound

from . import calls
from .support import PATIENCE, PYTHON, Served, until

CHEAP: Any = {"vram": "100M"}  # many fit; a job without a GPU counts as a CPU


class Executor(Served):
    def executor(self, **more: Any) -> BerthExecutor:
        executor = BerthExecutor(**{**CHEAP, **more})
        self.addCleanup(executor.shutdown, wait=False)
        return executor

    def made(self) -> "Counter[str]":
        return Counter((self.dir / "calls").read_text().split())


class Calls(Executor):
    """What depends on the Python."""

    def test_calls_return_and_raise_as_here(self) -> None:
        with self.executor(name="calls") as executor:
            well, odd = executor.submit(calls.add, 1, y=2, z=3), executor.submit(calls.fail, "odd")
            bad, gone, back = (executor.submit(calls.fail, kind) for kind in ("bad", "exit", "unpicklable"))
            self.assertEqual((well.result(PATIENCE), well.exception(), well.job.name), (6, None, "calls"))
            with self.assertRaises(ValueError) as caught:
                bad.result(PATIENCE)
            self.assertEqual(caught.exception.args, ("bad", 3))
            self.assertIn("raise ValueError(kind, 3)", str(caught.exception.__cause__))
            self.assertIn("ValueError: ('bad', 3)", "\n".join(bad.job.logs()))
            with self.assertRaisesRegex(RuntimeError, "Odd: one"):
                odd.result(PATIENCE)
            with self.assertRaisesRegex(JobFailed, "exit:7"):
                gone.result(PATIENCE)
            if not has_cloudpickle():
                with self.assertRaisesRegex(TypeError, "cannot be pickled"):
                    back.result(PATIENCE)
        self.assertEqual([future.job.wait(check=False) for future in (well, odd, bad, gone)], [0, 1, 1, 7])

    def test_results_are_collected_after_the_parent_died(self) -> None:
        said, _ = self.python("-c", "from berth import BerthExecutor\nfrom tests import calls\nimport os\n"
                              f"executor = BerthExecutor(vram='100M')\nresults = executor.map(calls.gate, [{str(self.dir)!r}] * 3, [1, 2, 3])\n"
                              f"print(executor.submit(calls.fail, 'late').job, flush=True)\nos.kill(os.getpid(), 9)",
                              env={**os.environ, "PYTHONPATH": str(PYTHON)}).communicate()
        self.open()
        self.assertEqual([future.result(PATIENCE) for future in BerthExecutor.collect("1")], [1, 4, 9])
        late = BerthExecutor.collect(said.strip())[0]
        self.assertIsInstance(late.exception(PATIENCE), ValueError)
        with self.assertRaisesRegex(Invalid, "no call of a function"):
            BerthExecutor.collect(self.client.submit("true", gpus=0))
        with self.assertRaises(NotFound):
            BerthExecutor.collect(99)

    def test_a_checkpoint_is_taken_before_the_time_limit(self) -> None:
        with self.executor(timeout=12, checkpoint_before=4) as executor:  # eight seconds for Python to start
            future, stubborn = executor.submit(calls.Train(), str(self.dir)), executor.submit(calls.Stubborn())
            with self.assertRaisesRegex(RuntimeError, "checkpoint returned None"):
                stubborn.result(PATIENCE)
            self.assertEqual(future.result(PATIENCE), int(next(iter(self.made()))))
            self.assertEqual(future.job.show()["attempt"], 2)

    def test_a_checkpoint_is_taken_before_a_preemption(self) -> None:
        executor = self.executor(gpus=2, vram=None, checkpoint_before=4, grace=5)  # on a busy machine too
        future = executor.submit(calls.Train(), str(self.dir))
        until((self.dir / "began").exists)
        urgent = self.client.submit(f"cat {self.dir}/calls", gpus=2, priority=10)
        urgent.wait()
        (saved,) = self.made()
        self.assertEqual((list(urgent.logs()), future.result(PATIENCE)), ([saved], int(saved)))
        again = future.job.show()
        self.assertEqual((again["attempt"], again["preemptions"]), (2, 1))
        self.assertEqual(again["checkpoints"]["lost_s"], 0)

    def test_what_a_job_cannot_import_is_refused_here(self) -> None:
        script = self.dir / "script.py"
        script.write_text("from berth import BerthExecutor\n"
                          "def mine(x): return x + 1\n"
                          "with BerthExecutor(vram='100M') as executor:\n"
                          "    try: print(executor.submit(mine, 1).result())\n"
                          "    except Exception as err: print(type(err).__name__, err)\n")
        said, _ = self.python(str(script), env={**os.environ, "PYTHONPATH": str(PYTHON)}).communicate()
        if has_cloudpickle():
            self.assertEqual(said.strip(), "2")
        else:
            self.assertIn("Invalid", said)
            self.assertIn("mine is in the script itself", said)
            self.assertIn("hint: install cloudpickle", said)


class Jobs(Executor):
    """What depends on berth."""

    def test_a_map_is_one_array_in_order(self) -> None:
        with self.executor(max_running=3) as executor:
            self.assertEqual(list(executor.map(calls.square, range(6), timeout=PATIENCE)), [0, 1, 4, 9, 16, 25])
            self.assertEqual(list(executor.map(calls.add, range(5), [10] * 5, chunksize=2)), [10, 11, 12, 13, 14])
            self.assertEqual(list(executor.map(calls.square, [])), [])
        array = self.client.array("1")
        self.assertEqual((len(array), array.show()["tasks"]["limit"], array.name), (6, 3, "square"))
        self.assertEqual(len([job for job in self.client.list(over=True) if job["name"].startswith("add")]), 3)

    def test_a_call_is_cancelled_waiting_or_running(self) -> None:
        executor = self.executor()
        running = executor.submit(calls.gate, str(self.dir), 1)
        until(running.running)
        self.assertTrue(running.cancel())
        with self.assertRaises(concurrent.futures.CancelledError):
            running.result()
        self.assertEqual(running.job.wait(check=False), 1)
        outside = executor.submit(calls.gate, str(self.dir), 1)
        outside.job.cancel()
        with self.assertRaisesRegex(JobFailed, "cancelled"):
            outside.result(PATIENCE)
        with self.assertRaises(concurrent.futures.TimeoutError):
            executor.submit(calls.gate, str(self.dir), 1).result(timeout=0.05)
        over = executor.submit(calls.square, 2)
        self.assertEqual((over.result(PATIENCE), over.cancel(), over.running()), (4, False, False))
        held = BerthExecutor(hold=True, client=executor._client)
        waiting = [held.submit(calls.square, 2) for _ in range(2)]
        held.shutdown(cancel_futures=True)
        self.assertEqual([future.cancelled() for future in waiting], [True, True])
        with self.assertRaisesRegex(RuntimeError, "after shutdown"):
            held.submit(calls.square, 2)
        self.open()

    def test_an_end_may_be_heard_of_before_the_reply_to_a_cancel(self) -> None:
        executor = self.executor(hold=True)
        futures = [executor.submit(calls.square, 2) for _ in range(2)]
        heard = iter(futures)
        call = executor._client._wire.call

        def late(method: str, path: str, *more: Any, **named: Any) -> Any:
            reply = call(method, path, *more, **named)
            if path == "/v1/jobs/act":
                until(next(heard).done)
            return reply

        with mock.patch.object(executor._client._wire, "call", late):
            self.assertTrue(futures[0].cancel())
            executor.shutdown(cancel_futures=True)
        self.assertTrue(futures[1].cancelled())

    def test_a_map_that_is_left_cancels_what_waits(self) -> None:
        (self.dir / "two").mkdir()
        with self.executor(max_running=1) as executor:
            results = executor.map(calls.gate, [str(self.dir)] * 3, range(3))
            self.assertEqual(next(results), 0)
            until(lambda: self.made()["1"])
            results.close()  # type: ignore[attr-defined]
            self.assertEqual([job["state"] for job in self.client.array("1").jobs()], ["finished", "running", "cancelled"])
            self.open()

    def test_two_thousand_calls_take_one_thread(self) -> None:
        python = self.dir / "python"  # as much as the parent sees of a Python, but it starts at once
        python.write_text(f"#!/bin/sh\ncp {self.dir}/result \"$2/$BERTH_ARRAY_INDEX.result\"\n")
        python.chmod(0o755)
        from berth import worker
        worker.write(str(self.dir / "result"), worker._pickle((True, "well")))
        before = threading.active_count()
        with self.executor(python=str(python), vram="10M", gpus=1) as executor:
            futures = executor._queue(calls.square, [((i,), {}) for i in range(2000)], None)
            self.assertEqual(threading.active_count(), before + 1)
            self.assertEqual(Counter(future.result(600) for future in futures), {"well": 2000})

    def test_the_daemon_is_killed_in_the_middle_of_a_map(self) -> None:
        with self.executor(max_running=4) as executor:
            results = executor.map(calls.gate, [str(self.dir)] * 30, range(30))
            until(lambda: (self.dir / "calls").exists() and len(self.made()) >= 4)
            self._reap(self.daemon)  # with -9
            self.open()
            self.serve()
            self.assertEqual(list(results), [i * i for i in range(30)])
        self.assertEqual(self.made(), Counter(str(i) for i in range(30)))

    def test_a_reply_that_is_lost_submits_nothing_twice(self) -> None:
        with self.executor() as executor:
            self.assertEqual(executor.submit(calls.square, 2).result(PATIENCE), 4)
            call = executor._client._wire.call
            lost: List[str] = []

            def cut(method: str, path: str, *more: Any, **named: Any) -> Any:
                reply = call(method, path, *more, **named)
                if (method, path) == ("POST", "/v1/jobs") and not lost:
                    lost.append(path)
                    raise BerthError("the connection was cut", kind="unreachable")
                return reply

            with mock.patch.object(executor._client._wire, "call", cut):
                self.assertEqual(list(executor.map(calls.witness, [str(self.dir)] * 3, range(3))), [0, 1, 4])
        self.assertEqual((lost, self.made()), (["/v1/jobs"], Counter("012")))
        self.assertEqual(len(self.client.list(over=True)), 1 + 3)

    def test_another_machine_is_refused(self) -> None:
        with self.assertRaisesRegex(Invalid, "cannot be sent to https"):
            BerthExecutor(client=Client("https://gpu1.example.org:7878", token="x"))


def has_cloudpickle() -> bool:
    return subprocess.run([sys.executable, "-c", "import cloudpickle"], stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    unittest.main()
