"""The client against a daemon that outlives it."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import List
from unittest import mock

import berth
from berth import BerthError, Client, Invalid, MissingProgram, NotFound, Refused, places

from .support import PATIENCE, PYTHON, REPOSITORY, Lab, Served, until
from .support import berth as program


class Asked(Served):
    def test_a_job_is_submitted_and_its_end_waited_for(self) -> None:
        job = self.client.submit(["sh", "-c", "echo $0 $MINE; pwd; exit 3", "two words"], name="mine",
                                 env={"MINE": "x"}, vram="2G", allow=[0, 1], dir=str(self.dir))
        self.assertEqual((job.wait(check=False), job.name, str(job)), (3, "mine", job.id))
        shown = job.show()
        self.assertEqual((shown["state"], shown["outcome"], shown["vram_mib"]), ("failed", "exit:3", 2048))
        self.assertEqual([*job.logs()], ["two words x", str(self.dir)])

    def test_a_snapshot_is_the_code_of_the_submission(self) -> None:
        code = self.dir / "tree" / "code"
        code.parent.mkdir()
        code.write_text("today")
        job = self.client.submit("cat code", snapshot=True, dir=str(code.parent), hold=True, name="kept", gpus=0)
        plain = self.client.submit("cat code", snapshot=False, dir=str(code.parent), hold=True, gpus=0)
        code.write_text("tomorrow")
        self.client.release(job, plain)
        self.assertEqual((job.wait(), plain.wait(), job.name), (0, 0, "kept"))
        self.assertEqual([[*j.logs()] for j in (job, plain)], [["today"], ["tomorrow"]])
        self.assertEqual(job.show()["snapshot"]["tree"], str(code.parent))
        with self.assertRaisesRegex(BerthError, "expected a directory"):
            self.client.submit("true", snapshot="nowhere")

    def test_what_is_no_command_is_refused(self) -> None:
        for command in (print, 17, b"true"):
            with self.assertRaisesRegex(TypeError, "expected a shell line or a list of words"):
                self.client.submit(command)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "BerthExecutor"):
            self.client.submit(print)  # type: ignore[call-overload]

    def test_statuses_are_in_the_order_that_was_asked_for(self) -> None:
        ids = [self.client.submit(line, gpus=0, timeout=limit).id
               for line, limit in (("exit 4", None), ("kill -TERM $$", None), ("sleep 60", 0.2), ("true", None))]
        self.assertEqual(self.client.wait(*reversed(ids)), [0, 124, 128 + signal.SIGTERM, 4])
        with self.assertRaises(TimeoutError):
            self.client.submit(self.gate(), gpus=0).wait(timeout=0.1)

    def test_a_job_that_waits_is_changed(self) -> None:
        job = self.client.submit("true", hold=True)
        self.assertEqual(self.client.edit(job, priority=5, vram="3G", name="later")["vram_mib"], 3072)
        shown = job.show()
        self.assertEqual((shown["priority"], shown["name"]), (5, "later"))
        with self.assertRaisesRegex(BerthError, "priority"):
            self.client.edit(job, priority="high")  # type: ignore[arg-type]

    def test_a_model_is_sized_where_its_files_are(self) -> None:
        for model in ("model", "a,b"):
            self.model(self.dir / model)
        small, large = (json.loads(subprocess.check_output([program(), "estimate", "model", "--json", *flags]))["high_mib"]
                        for flags in (["--context=2048"], ["--train=full", "--checkpointing", "--batch=8"]))
        self.assertLess(small, large)
        job = self.client.submit("true", vram="estimate:model,context=2048", hold=True)
        self.assertEqual(job.show()["vram_mib"], small)
        job.edit(vram="estimate:~/model,train=full,checkpointing,batch=8")
        self.assertEqual(job.show()["vram_mib"], large)
        job.cancel()
        job.requeue(vram="estimate:a,b,context=2048")
        self.assertEqual(job.show()["vram_mib"], small)
        with mock.patch("subprocess.run", side_effect=subprocess.run) as ran:
            jobs = self.client.submit_all({"command": "true", "vram": vram} for vram in ["estimate:model,context=2048"] * 3 + ["1G"])
        self.assertEqual([one.show()["vram_mib"] for one in jobs], [small, small, small, 1024])
        self.assertEqual(ran.call_count, 1)

    def test_a_model_may_be_in_the_table(self) -> None:
        Path("llm_config.json").write_text(json.dumps({"models": {"large": {"gpus": 1, "vram": "3G"}, "unknown": 1}}))
        self.assertEqual(self.client.submit("true", vram="estimate:large").show()["vram_mib"], 3072)
        with self.assertRaisesRegex(Invalid, "expected a size .berth estimate prints it"):
            self.client.submit("true", vram="estimate:unknown")

    def test_a_model_that_cannot_be_sized_is_an_error(self) -> None:
        self.model(self.dir / "model")
        for vram, problem in (("estimate:nowhere", "vram: nowhere: no such file or directory\nhint: expected a model's directory"),
                              ("estimate:-h", "vram: -h: no such file"), ("estimate:", "expected estimate:PATH"),
                              ("estimate:model,context=0", "model,context=0: no such file"), ("estimate:model,batch=x", "vram: .*batch.*x"),
                              ("estimate:model,train=half", "vram: .*half.*\nhint: ")):
            with self.subTest(vram), self.assertRaisesRegex(Invalid, problem):
                self.client.submit("true", vram=vram)
        self.assertEqual(self.client.list(over=True), [])

    @staticmethod
    def model(path: Path) -> None:
        path.mkdir()
        (path / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
            "intermediate_size": 512, "vocab_size": 10240, "max_position_embeddings": 8192}))
        header = json.dumps({"lm_head.weight": {"dtype": "BF16", "shape": [10240, 256], "data_offsets": [0, 5242880]}}).encode()
        (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(5242880))

    def test_rules_of_a_job_are_a_list(self) -> None:
        job = self.client.submit("true", gpus=0, hold=True, notify=["end,fail:mailto:ann@example.org", "oom:exec:echo a, b"])
        self.assertEqual(self.client.show(job.id)["settings"]["notify"],
                         "end,fail:mailto:ann@example.org\noom:exec:echo a, b")

    def test_a_group_is_limited_and_paused(self) -> None:
        self.assertEqual(self.client.set_group("io", limit=2)["limit"], 2)
        self.assertTrue(self.client.set_group("io", paused=True)["paused"])
        job = self.client.submit("true", group="io")
        self.assertIn("group io is paused", job.why()["text"])
        self.assertEqual([j["id"] for j in self.client.list(group="io")], [job.id])
        self.assertEqual(self.client.groups()[0]["queued"], 1)
        self.assertFalse(self.client.set_group("io", limit="none", paused=False)["paused"])
        self.assertEqual(job.wait(), 0)
        with self.assertRaises(BerthError):
            self.client.set_group("io", limit=0)

    def test_a_card_is_paused_and_used_again(self) -> None:
        self.assertTrue(self.client.pause(0)["paused"])
        job = self.client.submit("true", allow=[0])
        self.assertIn("paused", job.why()["text"])
        self.assertFalse(self.client.resume(0)["paused"])
        self.assertEqual(job.wait(), 0)
        with self.assertRaises(BerthError):
            self.client.pause(99)

    def test_what_is_over_is_told_and_summed_up(self) -> None:
        first, second = self.client.submit("true"), self.client.submit("exit 2")
        self.client.wait(first, second)
        self.assertEqual({j["id"] for j in self.client.history()}, {first.id, second.id})
        self.assertEqual(len(self.client.history(limit=1)), 1)
        self.assertEqual(self.client.history(user="nobody-at-all"), [])
        self.assertIn("2", str(self.client.stats()))

    def test_a_process_that_runs_already_is_accounted_for(self) -> None:
        other = subprocess.Popen(["sleep", "60"])
        self.addCleanup(self._reap, other)
        job = self.client.adopt(other.pid, gpus=[1], vram="2G", name="by-hand")
        self.assertEqual((job["name"], job["gpu_ids"]), ("by-hand", [1]))
        other.kill()
        other.wait()
        self.client.wait(job["id"])

    def test_the_verbs_do_what_they_say(self) -> None:
        job = self.client.submit("true", hold=True)
        self.assertIn("held", job.why()["text"])
        self.assertTrue(self.client.release(job)[0]["done"])
        self.assertEqual(job.wait(), 0)
        self.client.requeue(job)
        self.assertEqual(job.wait(), 0)
        self.assertEqual(job.show()["attempt"], 2)
        other = self.client.submit(self.gate())
        self.client.hold(self.client.submit("true", after=other.id))
        self.assertEqual([j["state"] for j in self.client.list()][-1], "queued")
        other.cancel(grace=0)
        self.assertEqual((other.wait(check=False), other.show()["state"]), (1, "cancelled"))
        self.assertEqual([gpu["index"] for gpu in self.client.gpus()], [0, 1])
        past = self.client.samples(job, start="2026-03-01T00:00:00Z", step=60)
        self.assertEqual((past["job"], past["parked"]), (job.id, []))
        self.assertEqual(self.client.gpu_samples(1)["gpu"], 1)
        self.assertEqual(len(self.client.list(over=True)), 3)
        self.assertEqual(len(self.client.list(1, "2")), 2)

    def test_an_array_has_the_logs_of_its_tasks(self) -> None:
        array = self.client.submit("echo task $BERTH_ARRAY_INDEX", array="0-2", gpus=0)
        self.assertEqual(["task 0", "task 1", "task 2"], [*array.logs(follow=True)])
        self.assertEqual(["task 0", "task 1", "task 2"], [*array.logs()])

    def test_acting_on_no_job_at_all_is_an_error(self) -> None:
        with self.assertRaises(BerthError) as caught:
            self.client.cancel(99, "100")
        self.assertEqual(("there is no job 99, 100", "not_found"), (caught.exception.problem, caught.exception.kind))
        with self.assertRaisesRegex(NotFound, "there is no job 99"):
            self.client.jobs(99)
        job = self.client.submit("true", hold=True)
        self.assertEqual([True, False], [one["done"] for one in self.client.cancel(job, 99)])

    def test_a_job_is_parked_and_comes_back(self) -> None:
        job = self.client.submit([program(), "simjob", "--vram", "8000", "--hold", "600"])
        until(lambda: any(g["used_mib"] >= 8000 for g in self.client.gpus()))
        self.assertEqual([("parked", True)], [(r["state"], r["done"]) for r in self.client.park(job, timeout=PATIENCE)])
        self.assertEqual([str(job)], [p["id"] for g in self.client.gpus() for p in g["parked"]])
        self.assertEqual([("running", True)], [(r["state"], r["done"]) for r in self.client.unpark(job, timeout=PATIENCE)])
        Path(self.client.status()["sim_dir"], "fault").write_text("park lock refuse once\n")
        refused = self.client.park(job, timeout=PATIENCE)[0]
        self.assertEqual((False, "running"), (refused["done"], refused["state"]))
        self.assertIn("801", refused["what"])
        self.client.cancel(job)

    def test_errors_have_a_problem_a_hint_and_a_kind(self) -> None:
        with self.assertRaises(Invalid) as invalid:
            self.client.submit("true", vram="much")
        self.assertIn("much", invalid.exception.problem)
        with self.assertRaises(NotFound) as missing:
            self.client.cancel(99999)
        self.assertEqual((missing.exception.kind, missing.exception.hint), ("not_found", "berth list --all shows all jobs"))
        with self.assertRaises(NotFound):
            self.client.show(99)
        for wrong in ("two words", "ü", "1?x=1"):
            with self.assertRaisesRegex(BerthError, "no job is named"):
                self.client.why(wrong)
        with self.assertRaises(Refused):
            self.client.submit("true", gpus=12)

    def test_a_wrong_field_is_named_with_the_right_one(self) -> None:
        for wrong in (lambda: self.client.submit("true", vrma=3),  # type: ignore[call-overload]
                      lambda: self.client.submit_all([{"command": "true", "vrma": 3}]),  # type: ignore[typeddict-unknown-key]
                      lambda: self.client.edit(1, vrma=3),  # type: ignore[call-arg]
                      lambda: berth.BerthExecutor(vrma=3)):  # type: ignore[call-arg]
            with self.assertRaisesRegex(TypeError, "no field 'vrma'; did you mean vram"):
                wrong()

    def test_a_log_is_followed_through_the_loss_of_the_daemon(self) -> None:
        job = self.client.submit(f"seq 1 1000; touch half; {self.gate()}; seq 1001 2000", gpus=0)
        got: List[str] = []
        reader = threading.Thread(target=lambda: got.extend(job.logs(follow=True)))
        until(lambda: os.path.exists("half"))
        reader.start()
        until(lambda: "1000" in got)
        self._reap(self.daemon)
        self.serve()
        self.open()
        reader.join(60)
        self.assertEqual(got, [str(i) for i in range(1, 2001)])

    def test_a_wait_goes_on_through_the_loss_of_the_daemon(self) -> None:
        job = self.client.submit(f"{self.gate()}; exit 5", gpus=0)
        got: List[int] = []
        waiter = threading.Thread(target=lambda: got.append(job.wait(check=False)))
        until(lambda: job.show()["state"] == "running")
        with mock.patch.object(self.client, "_wait", wraps=self.client._wait) as asked:
            waiter.start()
            until(lambda: asked.call_count > 1)  # it was answered once
        self._reap(self.daemon)
        self.serve()
        self.open()
        waiter.join(60)
        self.assertEqual(got, [5])

    def test_no_time_to_wait_is_no_minute(self) -> None:
        job = self.client.submit(self.gate(), gpus=0)
        with mock.patch.object(self.client._wire, "call", wraps=self.client._wire.call) as call:
            with self.assertRaises(TimeoutError):
                job.wait(timeout=0)
        self.assertTrue(all(0 < args[0][2]["timeout_s"] < 1 for args in call.call_args_list), call.call_args_list)

    def test_events_tell_of_a_job_as_it_goes(self) -> None:
        job = self.client.submit("true")
        kinds = []
        for event in self.client.events(since=0, job=job):
            kinds.append(event["event"])
            if event["event"] == "ended":
                break
        self.assertEqual(kinds[-2:], ["started", "ended"])

    def test_a_job_outlives_the_program_that_submitted_it(self) -> None:
        said, _ = self.python("-c", "import sys; sys.path.insert(0, sys.argv[1]); from berth import Client\n"
                              f"print(Client().submit({self.gate() + '; exit 6'!r}))",
                              os.path.dirname(os.path.dirname(berth.__file__))).communicate()
        self.open()
        self.assertEqual(self.client.wait(said.strip()), [6])

    @unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make a certificate")
    def test_http_needs_a_token(self) -> None:
        self._reap(self.daemon)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "tls.key", "-out", "tls.crt"],
                       check=True, stderr=subprocess.DEVNULL)
        with open("config.toml", "w", encoding="utf-8") as config:
            config.write('[http]\nlisten = "127.0.0.1:0"\n'
                         f'tls_cert = "{os.path.abspath("tls.crt")}"\ntls_key = "{os.path.abspath("tls.key")}"\n')
        os.environ["SSL_CERT_FILE"] = os.path.abspath("tls.crt")
        daemon = subprocess.Popen([program(), "serve", "--private", "--config", "config.toml"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self._reap, daemon)
        until(self.answers)
        assert daemon.stdout is not None
        url = "https://" + re.findall(r"127\.0\.0\.1:\d+", daemon.stdout.readline())[0]
        with self.assertRaises(BerthError) as caught:
            Client(url).status()
        self.assertEqual(caught.exception.kind, "forbidden")
        token = subprocess.run([program(), "token", "create", "--json"], stdout=subprocess.PIPE, check=True, text=True)
        secret = re.findall(r'"secret": ?"([^"]+)"', token.stdout)[0]
        self.assertEqual(Client(url, token=secret).submit("exit 3", gpus=0).wait(check=False), 3)
        with self.assertRaisesRegex(BerthError, "without TLS"):
            Client(url.replace("https", "http"), token=secret).status()


class Nobody(Lab):
    def answers(self, client: Client) -> bool:
        try:
            return bool(client.status())
        except BerthError:
            return False

    def test_the_host_of_the_environment_is_meant(self) -> None:
        os.environ.update(BERTH_HOST="gpu1.example.org:7878", BERTH_HOST_TOKEN="secret", BERTH_SOCKET="named.sock")
        self.assertEqual(Client().address, "https://gpu1.example.org:7878")
        hosts = self.dir / ".config" / "berth" / "hosts.toml"
        hosts.parent.mkdir(parents=True)
        hosts.write_text('[gpu1]\naddress = "unix:/tmp/gpu1.sock"\n')
        os.environ["BERTH_HOST"] = "gpu1"
        with self.assertRaisesRegex(Invalid, "other users can read"):
            Client()
        hosts.chmod(0o600)
        if sys.version_info < (3, 11):
            with self.assertRaisesRegex(Invalid, "needs Python 3.11"):
                Client()
            return
        self.assertEqual(Client().address, "/tmp/gpu1.sock")
        os.environ["BERTH_HOST"] = "gpu2"
        with self.assertRaisesRegex(Invalid, "expected an address or a name"):
            Client()

    def test_the_first_submission_starts_a_daemon(self) -> None:
        client = Client()
        job = client.submit("exit 3", gpus=0)
        self.assertEqual(job.wait(check=False), 3)
        os.kill(client.status()["pid"], signal.SIGKILL)
        until(lambda: not self.answers(client))
        self.assertEqual(client.show(job)["state"], "failed")  # there is state to read, so it is started again
        os.kill(client.status()["pid"], signal.SIGKILL)
        until(lambda: not self.answers(client))
        self.assertEqual(job.wait(check=False), 3)
        os.kill(client.status()["pid"], signal.SIGTERM)

    def test_a_killed_daemon_is_started_again_for_whoever_waits(self) -> None:
        client = Client()
        job = client.submit(self.gate(), gpus=0)
        waiting = threading.Thread(target=job.wait)
        waiting.start()
        until(lambda: job.state == "running")
        killed = client.status()["pid"]
        os.kill(killed, signal.SIGKILL)
        look = Client(autostart=False)
        until(lambda: self.answers(look) and look.status()["pid"] != killed)
        self.open()
        waiting.join(PATIENCE)
        self.assertEqual(job.wait(), 0)
        os.kill(client.status()["pid"], signal.SIGTERM)

    def test_or_it_says_that_there_is_none(self) -> None:
        os.environ["BERTH_NO_AUTOSTART"] = "1"
        with self.assertRaisesRegex(BerthError, "autostart is off"):
            Client().submit("true")
        self.assertEqual(Client().list(), [])  # there is nothing to read, and nothing is started for it
        for client in (Client(autostart=False), Client("nowhere.sock")):
            with self.assertRaises(BerthError) as caught:
                client.submit("true")
            self.assertEqual(caught.exception.kind, "unreachable")
        os.environ["BERTH_SOCKET"] = "named.sock"
        self.assertEqual(Client().address, "named.sock")

    def test_a_missing_program_is_named(self) -> None:
        os.environ["BERTH_BINARY"] = "/nowhere/berth"
        with self.assertRaisesRegex(BerthError, "/nowhere/berth cannot be run"):
            self.scheduler().run_jobs([berth.Job("true")])

    def test_a_virtual_environment_that_is_not_activated_has_its_own(self) -> None:
        ours = self.dir / "venv" / "bin"
        ours.mkdir(parents=True)
        (ours / "python").symlink_to(sys.executable)
        (ours / "berth").symlink_to(program())
        ask = [str(ours / "python"), "-c", "from berth.places import program; print(program())"]
        for path, named, expected in (("", "", ours / "berth"), (str(ours.parent), "", ours / "berth"),
                                      (os.path.dirname(program()), "", program()), ("", program(), program())):
            found = subprocess.run(ask, env={"PYTHONPATH": str(PYTHON), "PATH": path, "BERTH_BINARY": named},
                                   stdout=subprocess.PIPE, check=True, text=True)
            self.assertEqual(found.stdout, f"{expected}\n", path)

    def test_a_program_in_the_current_directory_is_not_taken(self) -> None:
        (self.dir / "berth").symlink_to(program())
        os.environ.update(BERTH_BINARY="", PATH="")
        with mock.patch("sys.executable", ""), contextlib.suppress(MissingProgram):  # an embedded Python
            self.assertNotEqual(places.program(), str(self.dir / "berth"))

    def test_and_nothing_is_left_of_a_run_without_it(self) -> None:
        os.environ["BERTH_BINARY"] = "/nowhere/berth"
        files = len(os.listdir("/proc/self/fd"))
        with self.assertRaises(BerthError) as caught:
            self.scheduler().run_jobs([berth.Job("true")])
        self.assertEqual(len(os.listdir("/proc/self/fd")), files, caught.exception)
        self.assertEqual(list(self.dir.glob("state/berth/kairos/*")), [])

    def test_the_version_is_the_programs(self) -> None:
        self.assertEqual(berth.__version__, Path(REPOSITORY, "VERSION").read_text().strip())


class Service(Lab):
    """berth as systemd runs it: the words of its unit, and systemd's part of the protocol played here."""

    def setUp(self) -> None:
        super().setUp()
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.read(REPOSITORY / "packaging" / "user" / "berth.service")
        self.unit = unit["Service"]
        path = self.dir / "state" / "berth" / "berth.sock"
        path.parent.mkdir(parents=True)
        self.listener, self.notices = (socket.socket(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM))
        for own, where in (self.listener, path), (self.notices, self.dir / "notify"):
            self.addCleanup(own.close)
            own.bind(str(where))
        self.listener.listen()
        self.notices.settimeout(60)

    def start(self) -> "subprocess.Popen[bytes]":
        binary, *words = shlex.split(self.unit["ExecStart"])
        self.assertEqual(os.path.basename(binary), "berth")
        alone = ["--private"] if os.getuid() == 0 else []  # root's would be that of all users
        number = self.listener.fileno()
        service = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{number}; LISTEN_PID=$$ exec "$@"', "-", program(), *words, *alone],
            env={**os.environ, "NOTIFY_SOCKET": str(self.dir / "notify"), "LISTEN_FDS": "1"}, pass_fds=[number],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self._reap, service)
        return service

    def ready(self) -> None:
        while b"READY=1" not in self.notices.recv(4096).split(b"\n"):
            pass

    def test_the_unit_serves_and_its_jobs_outlive_it(self) -> None:
        # seeds: K27
        # It is ready when it says so, and answers on the socket that systemd holds.
        self.assertEqual((self.unit["Type"], self.unit["Restart"], self.unit["KillMode"]), ("notify", "on-failure", "process"))
        service = self.start()
        self.ready()
        client = Client()
        first = client.submit(f"{self.gate()}; exit 6", gpus=1)
        until(lambda: first.show()["state"] == "running")
        # Killed, it is started again; requests wait for it, and the job ends as itself.
        self._reap(service)
        asked: List[int] = []
        asking = threading.Thread(target=lambda: asked.append(client.submit("exit 7", gpus=0).wait(check=False)))
        asking.start()
        self.start()
        self.ready()
        asking.join(60)
        self.assertEqual(asked, [7])
        self.assertEqual(first.show()["state"], "running")
        self.open()
        self.assertEqual(first.wait(check=False), 6)
