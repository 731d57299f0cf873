"""Handles of jobs, arrays and batches."""

from __future__ import annotations

import io
import pickle
import threading
import unittest
from contextlib import redirect_stderr
from datetime import datetime, timedelta, timezone
from typing import List
from unittest import mock

import berth
from berth import BerthError, JobFailed, JobSpec, NotFound, Refused
from berth.fields import wire
from berth.handles import words
from berth.streams import lines
from berth.times import moment, seconds

from .support import Served, until


class Handles(Served):
    def specs(self, *commands: str) -> List[JobSpec]:
        return [{"command": command, "vram": "100M"} for command in commands]  # a job without a GPU counts as a CPU

    def test_a_failed_job_raises_what_became_of_it(self) -> None:
        with self.assertRaises(JobFailed) as caught:
            self.client.submit("exit 3", gpus=0, name="bad").wait()
        self.assertEqual([job["name"] for job in caught.exception.jobs], ["bad"])
        self.assertIn("exit:3", caught.exception.problem)
        self.assertIn("berth logs", caught.exception.hint)
        with self.assertRaisesRegex(JobFailed, "2 jobs did not succeed"):
            self.client.submit_all(self.specs("exit 1", "true", "exit 2")).wait()

    def test_a_batch_is_one_request_and_ends_as_its_jobs_do(self) -> None:
        with mock.patch.object(self.client._wire, "call", wraps=self.client._wire.call) as call:
            batch = self.client.submit_all(self.specs(self.gate("second"), self.gate("first"), "exit 4"))
        self.assertEqual([one.args[:2] for one in call.call_args_list], [("GET", "/v1/status"), ("POST", "/v1/jobs")])
        self.assertEqual(batch.wait(any=True, check=False), [None, None, 4])
        ended = batch.as_completed(timeout="1m")
        self.assertEqual(next(ended).id, batch[2].id)
        self.open("first")
        self.assertEqual(next(ended).id, batch[1].id)
        with self.assertRaises(TimeoutError):
            batch.wait(timeout=0.05, check=False)
        self.open("second")
        self.assertEqual([job.id for job in ended], [batch[0].id])
        self.assertEqual(batch.wait(check=False), [0, 0, 4])
        self.assertEqual(batch.counts(), {"finished": 2, "failed": 1})
        self.assertEqual([(row["id"], row["status"]) for row in batch.table()], [(job.id, status) for job, status in zip(batch, (0, 0, 4))])
        self.assertIsInstance(batch.table()[0]["seconds"], float)
        until(lambda: not [one for one in threading.enumerate() if one.name == "berth watch"])

    def test_an_array_is_its_tasks(self) -> None:
        array = self.client.submit("echo $BERTH_ARRAY_INDEX; exit $BERTH_ARRAY_INDEX", array=range(3), gpus=0)
        self.assertEqual(array.wait(check=False), [0, 1, 2])
        self.assertEqual([task.id for task in array.tasks], [f"{array}_{i}" for i in range(3)])
        self.assertEqual(sorted(task.id for task in array.as_completed()), [task.id for task in array])
        self.assertEqual((array.state, [*array.logs()]), ("failed", ["0", "1", "2"]))
        self.assertEqual(self.client.array(array.id).counts(), {"finished": 1, "failed": 2})
        self.assertEqual([job.id for job in self.client.jobs(array)], [task.id for task in array])
        with self.assertRaisesRegex(BerthError, "is not an array"):
            self.client.array(self.client.submit("true", gpus=0))

    def test_ends_are_seen_through_the_loss_of_the_daemon(self) -> None:
        batch = self.client.submit_all(self.specs(self.gate("a"), self.gate("b")))
        ended = batch.as_completed()
        got: List[str] = []
        reader = threading.Thread(target=lambda: got.extend(job.id for job in ended))
        missed = threading.Event()
        with mock.patch("berth.watch.await_daemon", lambda _: missed.wait(60)):
            reader.start()
            until(lambda: [job["state"] for job in batch.jobs()] == ["running", "running"] and self.client._watch.ticket())
            self._reap(self.daemon)
            self.open("a")
            self.serve()
            until(lambda: batch.jobs()[0]["state"] == "finished")  # and no event tells of it any more
            missed.set()
            until(lambda: got)
        self.open("b")
        reader.join(60)
        self.assertEqual(got, [job.id for job in batch])

    def test_jobs_that_do_not_exist_are_not_waited_for(self) -> None:
        nobody = berth.Batch(self.client, [berth.Handle(self.client, "99", "x")])
        with self.assertRaises(NotFound):
            list(nobody.as_completed())
        with self.assertRaises(NotFound):
            nobody.wait()
        with self.assertRaises(NotFound):
            nobody.cancel()

    def test_a_handle_does_what_the_command_does(self) -> None:
        job = self.client.submit("true", hold=True, gpus=0)
        self.assertEqual(job.state, "queued")
        self.assertIn("held", job.why()["text"])
        job.edit(priority=3)
        job.release()
        self.assertEqual(job.wait(), 0)
        with self.assertRaisesRegex(Refused, job.id):
            job.hold()
        job.cancel()  # it has ended: nothing to do, and no error
        job.requeue(vram="20G", gpus=1)
        self.assertEqual((job.wait(), job.show()["vram_mib"], job.show()["attempt"]), (0, 20480, 2))
        self.assertEqual(job.samples(step="1m", start="1h")["job"], job.id)
        self.assertEqual(self.client.job(job.id).name, job.name)

    def test_a_batch_is_told_in_one_request(self) -> None:
        batch = self.client.submit_all(self.specs(*["true"] * 3))
        batch.wait()
        batch = self.client.submit_all([{"command": "true", "hold": True}] * 3)
        with mock.patch.object(self.client._wire, "call", wraps=self.client._wire.call) as call:
            batch.release()
        self.assertEqual(call.call_count, 1)
        self.assertEqual(batch.wait(), [0, 0, 0])
        self.assertEqual([one["done"] for one in batch.requeue()], [True] * 3)
        self.assertEqual(batch.wait(), [0, 0, 0])

    def test_a_time_may_be_written_in_every_form(self) -> None:
        job = self.client.submit("true", hold=True, timeout=timedelta(hours=2), grace="5s", begin="2h")
        shown = job.show()
        self.assertEqual(shown["time_limit_s"], 7200)
        begin = datetime.fromisoformat(shown["not_before"][:19]).replace(tzinfo=timezone.utc)
        self.assertAlmostEqual(begin.timestamp(), datetime.now().timestamp() + 7200, delta=120)
        job.edit(begin=datetime(2031, 3, 1, 16, tzinfo=timezone.utc))
        self.assertEqual(job.show()["not_before"][:16], "2031-03-01T16:00")
        job.cancel()
        self.assertEqual([one["id"] for one in self.client.history(since="1h")], [job.id])
        self.assertEqual(self.client.history(since=timedelta(seconds=-5)), [])
        with self.assertRaises(TimeoutError):
            self.client.submit(self.gate(), gpus=0).wait(timeout=timedelta(milliseconds=50))

    def test_notebooks_show_tables_and_a_bar(self) -> None:
        job = self.client.submit("true", gpus=0, name="<b>&")
        batch = self.client.submit_all(self.specs("exit 1", "true"))
        said = io.StringIO()
        with redirect_stderr(said):
            batch.progress(timeout="1m")
        self.assertIn("] 2 of 2 ended, 1 failed\n", said.getvalue())
        for shown in (self.client, job, batch, batch.table()):
            page = shown._repr_html_()
            self.assertIn("<table>", page)
            self.assertNotIn("<b>", page)
        self.assertIn("&lt;b&gt;&amp;", job._repr_html_())
        self.assertIn(self.client.address, self.client._repr_html_())
        with self.assertRaises(TimeoutError), redirect_stderr(said):
            self.client.submit_all(self.specs(self.gate())).progress(timeout=0.05)


class Words(unittest.TestCase):
    def test_many_ids_are_few_words(self) -> None:
        self.assertEqual(words(["1", "2", "3", "7", "17_0", "17_1", "a-name", "9"]), ["1-3", "7", "17_0-1", "a-name", "9"])
        self.assertEqual(words([]), [])

    def test_lines_are_decoded_as_they_arrive(self) -> None:
        whole = "é\nzwei\n\nend".encode()
        self.assertEqual(list(lines(whole[i:i + 1] for i in range(len(whole)))), ["é", "zwei", "", "end"])
        self.assertEqual(list(lines([b"a\xff\n"])), ["a\ufffd"])

    def test_durations_are_read_as_the_command_line_reads_them(self) -> None:
        for written, meant in (("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("1d", 86400), ("1:30", 90), ("1:30:00", 5400), (2, 2)):
            self.assertEqual(seconds(written), meant)
        for wrong in ("soon", "", None, True, "1:2:3:4"):
            with self.assertRaisesRegex(BerthError, "expected a duration"):
                seconds(wrong)  # type: ignore[arg-type]
        self.assertEqual(moment("2026-03-01T14:00:00Z"), "2026-03-01T14:00:00Z")
        self.assertEqual(wire({"begin": "16:00", "timeout": "2h", "notify": ["a", "b"], "after": [1, "x"], "name": None}),
                         {"begin": "16:00", "timeout": 7200, "notify": "a\nb", "after": "1,x"})

    def test_an_error_has_the_class_of_its_kind_and_survives_pickling(self) -> None:
        error = BerthError("no", "try", "not_found")
        self.assertIs(type(error), NotFound)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.kind), (NotFound, "no\nhint: try", "not_found"))
        failed = pickle.loads(pickle.dumps(JobFailed("x", jobs=({"id": "1"},))))
        self.assertEqual(failed.jobs, ({"id": "1"},))
