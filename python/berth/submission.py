"""What goes with a submission: the environment, the umask, copies of code, and a
daemon to take it."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence, cast

from .errors import BerthError, Invalid
from .places import program

_MODEL = re.compile(r"estimate:(.+?)((?:,(?:context|batch|dtype|train|rank)=(?!0)[^,]*|,checkpointing(?:=true)?)*)")


def sized(jobs: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The jobs, with sizes for the models that vram="estimate:PATH" names. They
    are read here, with the rights of the user: the daemon opens no file for one."""
    models = {found.group(): found for found in (_MODEL.fullmatch(str(job.get("vram"))) for job in jobs) if found}
    sizes = {vram: _size(*model.groups()) or vram for vram, model in models.items()}
    return [{**job, "vram": sizes[job["vram"]]} if job.get("vram") in sizes else job for job in jobs]


def _size(path: str, settings: str) -> Optional[int]:
    """The upper end of the estimate in MiB, or what the table of models says, if anything."""
    asked = subprocess.run([program(), "estimate", "--json", *("--" + flag for flag in settings.split(",")[1:]), "--", path],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        err = BerthError.from_stderr(asked.stderr, f"{path} was not sized")
        raise Invalid(f"vram: {err.problem}", err.hint, "invalid")
    reply = json.loads(asked.stdout)
    return cast(Optional[int], reply["high_mib"] if "high_mib" in reply else reply["vram_mib"])


def request(jobs: Sequence[Mapping[str, Any]], directory: str, environ: Mapping[str, str]) -> Dict[str, Any]:
    """A submission, as the API takes it."""
    return {"jobs": jobs, "dir": directory, "environ": _pairs(environ), "umask": _umask()}


def with_program(address: str, jobs: Sequence[Mapping[str, Any]], environ: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Submit as the berth program does, which copies the code."""
    asked = subprocess.run([program(), "submit", "--json", "--socket", address, "-f", "-"],
                           input=json.dumps(jobs), env=dict(environ), stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise BerthError.from_stderr(asked.stderr, "the jobs were not submitted")
    reply = json.loads(asked.stdout)
    return cast(List[Dict[str, Any]], reply if isinstance(reply, list) else [reply])


def start_private() -> None:
    """Let berth start a private daemon by its own rules. It does so for every
    submission, even a dry run."""
    asked = subprocess.run([program(), "submit", "--dry-run", "--gpus", "0", "--", "true"], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if asked.returncode != 0:
        raise BerthError.from_stderr(asked.stderr, "no daemon is running, and none could be started")


def _pairs(environ: Mapping[str, str]) -> List[str]:
    """An environment in the form of the API. JSON cannot hold bytes that are not
    UTF-8, so variables with such values are left out."""
    pairs = []
    for key, value in environ.items():
        try:
            f"{key}={value}".encode()
            pairs.append(f"{key}={value}")
        except UnicodeEncodeError:
            continue
    return pairs


def _umask() -> Optional[int]:
    """This process's umask, which only Linux can read without changing it."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    except (OSError, ValueError):
        pass
    return None
