"""What goes with a submission: the environment, the umask, copies of code, and a
daemon to take it."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Dict, List, Mapping, Optional, Sequence, cast

from .errors import BerthError
from .places import program


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
