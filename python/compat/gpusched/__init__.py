"""gpusched's commands, served by berth: `python3 -m gpusched jobs.txt` and
`python3 -m gpusched.simjob --vram 8000`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

try:
    import berth  # noqa: F401
except ModuleNotFoundError:  # not installed: it is beside this directory
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from berth import BerthError
from berth.places import program


def become(*words: str) -> NoReturn:
    """Replace this process with berth, so that signals and the exit status are
    berth's."""
    try:
        binary = program()
    except BerthError as err:
        sys.exit(f"gpusched: {err}")
    os.execv(binary, [binary, *words, *sys.argv[1:]])
