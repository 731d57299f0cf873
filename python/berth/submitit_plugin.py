"""submitit on berth: AutoExecutor(folder, cluster="berth").

submitit finds this module by its entry points. Parameters that all of its
executors share keep their names; berth_… sets any field of a job: berth_vram="18G".
"""

from __future__ import annotations

import os
import shlex
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Union

from submitit.core import core, job_environment, logger, utils  # type: ignore[import-not-found, import-untyped, unused-ignore]

from .client import Client
from .errors import BerthError
from .fields import KEYS, wire
from .places import find_daemon
from .views import OVER, JobView
from .worker import wait_for_the_end

_ID_FILE = "SUBMITIT_BERTH_ID_FILE"
_STATES = {"queued": "PENDING", "running": "RUNNING", "parked": "PREEMPTED", "finished": "COMPLETED", "cancelled": "CANCELLED"}
_FAILURES = {"timeout": "TIMEOUT", "oom": "OUT_OF_MEMORY", "lost": "NODE_FAIL"}


class BerthInfoWatcher(core.InfoWatcher):  # type: ignore[misc, unused-ignore]
    """Asks the daemon about all jobs at once."""

    def update(self) -> None:
        self._num_calls += 1
        try:
            asked = sorted(self._registered - self._finished)
            for job in Client()._views(asked):
                self._info_dict[job["id"]] = {"JobID": job["id"], "State": _state(job)}
                if job["state"] in OVER:
                    self._finished.add(job["id"])
        except BerthError as err:
            logger.get_logger().warning(f"berth does not answer, so states may be old: {err}")
        self._last_status_check = time.time()

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        return str(self.get_info(job_id, mode=mode).get("State") or "UNKNOWN")


class BerthJob(core.Job):  # type: ignore[misc, type-arg, unused-ignore]
    """A job of submitit on berth."""

    watcher = BerthInfoWatcher(delay_s=5)

    def cancel(self, check: bool = True) -> None:
        try:
            Client().cancel(self.job_id)
        except BerthError:
            if check:
                raise


class BerthJobEnvironment(job_environment.JobEnvironment):  # type: ignore[misc, unused-ignore]
    """What submitit knows inside a job."""

    # Never set: one task on one node.
    _env = {name: f"SUBMITIT_BERTH_{name.upper()}" for name in ("num_tasks", "num_nodes", "node", "global_rank", "local_rank")}

    @property
    def raw_job_id(self) -> str:
        """Its id in berth, which the executor writes next to the call: a task of
        an array cannot know it."""
        path = Path(os.environ[_ID_FILE])
        for _ in range(600):
            if path.exists():
                break
            time.sleep(0.1)
        index = os.environ.get("BERTH_ARRAY_INDEX")
        return path.read_text().strip() + (f"_{index}" if index else "")

    def _handle_signals(self, paths: Any, submission: Any) -> None:
        if not os.environ.get("SUBMITIT_STDERR_TO_STDOUT"):
            with open(paths.stderr, "ab") as stderr:
                os.dup2(stderr.fileno(), 2)
        super()._handle_signals(paths, submission)

    def _requeue(self, countdown: int) -> None:
        """The checkpoint is saved. berth ends this attempt, with SIGTERM, and
        queues the job again."""
        logger.get_logger().info(f"Waiting to be queued again ({countdown} remaining timeouts)")
        wait_for_the_end()


class BerthExecutor(core.PicklingExecutor):  # type: ignore[misc, unused-ignore]
    """submitit's executor for berth."""

    job_class = BerthJob

    def __init__(self, folder: Union[str, Path], max_num_timeout: int = 3, max_pickle_size_gb: float = 1.0,
                 python: Optional[str] = None) -> None:
        super().__init__(folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb)
        self._throttling = 0.0
        self.python = shlex.quote(sys.executable) if python is None else python
        self._client = Client()

    @classmethod
    def affinity(cls) -> int:
        """Chosen without a cluster= only where a daemon has been used, and never before Slurm."""
        try:
            return 1 if os.path.exists(find_daemon().address) else -1
        except BerthError:
            return -1

    @classmethod
    def _valid_parameters(cls) -> Set[str]:
        return {*KEYS, "signal_delay_s", "array_parallelism"} - {"command", "array"}

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if kwargs.get("nodes", 1) != 1 or kwargs.get("tasks_per_node", 1) != 1:
            raise ValueError("berth runs one task on one machine: expected nodes=1 and tasks_per_node=1")
        wire({key: value for key, value in kwargs.items() if key in KEYS})
        super()._internal_update_parameters(**kwargs)

    def _fields(self) -> Dict[str, Any]:
        """The fields of a job, from the parameters."""
        given = self.parameters
        minutes = given.get("timeout_min", 5)
        fields: Dict[str, Any] = {
            "name": given.get("name", "submitit"), "gpus": given.get("gpus_per_node", 0), "cpus": given.get("cpus_per_task"),
            "mem": f"{given['mem_gb']}G" if given.get("mem_gb") else None, "timeout": minutes * 60, "on_timeout": "requeue",
            "max_requeues": self.max_num_timeout,
            "signal": f"{BerthJobEnvironment.USR_SIG}@{given.get('signal_delay_s', 90)}", "preemptible": "requeue"}
        fields.update((key, value) for key, value in given.items() if key in KEYS)
        return fields

    def _internal_process_submissions(self, delayed_submissions: List[Any]) -> List[Any]:
        """One job, or one array: as Slurm's executor does it."""
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        pickles = []
        for delayed in delayed_submissions:
            delayed.set_timeout(self.parameters.get("timeout_min", 5), self.max_num_timeout)
            pickles.append(folder / f"{uuid.uuid4().hex}.pkl")
            delayed.dump(pickles[-1])
        saves = all(hasattr(delayed.function, "checkpoint") for delayed in delayed_submissions)
        ids = self._queue(len(pickles), folder / f"{uuid.uuid4().hex}.id", saves)
        jobs = [self.job_class(folder=self.folder, job_id=id, tasks=[0]) for id in ids]
        for job, pickle in zip(jobs, pickles):
            job.paths.move_temporary_file(pickle, "submitted_pickle")
        return jobs

    def _queue(self, count: int, id_file: Path, saves: bool) -> List[str]:
        fields = self._fields()
        if saves and "requeue" in str(fields["preemptible"]):
            fields.setdefault("checkpoint", "term")  # it saves at the signal
        fields["env"] = {**(fields.get("env") or {}), "SUBMITIT_EXECUTOR": "berth", _ID_FILE: str(id_file)}
        if self.parameters.get("stderr_to_stdout"):
            fields["env"]["SUBMITIT_STDERR_TO_STDOUT"] = "1"
        log = str(utils.JobPaths(self.folder).stdout).replace("%t", "0")
        fields.setdefault("output", log.replace("%j", "%A_%a" if count > 1 else "%j") + "%+")  # all attempts, one file
        most = self.parameters.get("array_parallelism")
        array = None if count == 1 else f"0-{count - 1}" + (f"%{most}" if most else "")
        job = self._client.submit(self._submitit_command_str, array=array, **fields)
        new = id_file.with_suffix(".new")
        new.write_text(job.id)
        new.replace(id_file)
        return [job.id] if count == 1 else [f"{job.id}_{index}" for index in range(count)]

    @property
    def _submitit_command_str(self) -> str:
        return f"exec {self.python} -u -m submitit.core._submit {shlex.quote(str(self.folder))}"

    def _num_tasks(self) -> int:
        return 1

    # submitit's way by a script and a program that submits it is not used.
    def _make_submission_file_text(self, command: str, uid: str) -> str:
        return ""

    def _make_submission_command(self, submission_file_path: Path) -> List[str]:
        return []

    @staticmethod
    def _get_job_id_from_submission_command(string: Union[bytes, str]) -> str:
        return ""


def _state(job: JobView) -> str:
    """A state in submitit's words, which are Slurm's."""
    if job["state"] == "failed":
        return _FAILURES.get((job["outcome"] or "").partition(":")[0], "FAILED")
    return _STATES[job["state"]]
