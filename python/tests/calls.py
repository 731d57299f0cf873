"""Functions that tests run as jobs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def square(x: int) -> int:
    return x * x


def add(x: int, y: int = 0, *, z: int = 0) -> int:
    return x + y + z


class Odd(Exception):
    """Comes back from no pickle: it needs two arguments and keeps one."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one)


def fail(kind: str) -> None:
    if kind == "odd":
        raise Odd("one", "two")
    if kind == "exit":
        os._exit(7)
    if kind == "unpicklable":
        return (lambda: None)  # type: ignore[return-value]
    raise ValueError(kind, 3)


def witness(directory: str, number: int) -> int:
    """Leave a line that says that this call was made."""
    with open(os.path.join(directory, "calls"), "a") as calls:
        calls.write(f"{number}\n")
    return number * number


def gate(directory: str, number: int) -> int:
    witness(directory, number)
    while number and Path(directory).exists() and not Path(directory, "go").exists():
        time.sleep(0.02)
    return number * number


class Train:
    """Counts until it is told to stop, and goes on where it was."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps

    def __call__(self, directory: str) -> int:
        Path(directory, "began").touch()
        while Path(directory).exists() and not Path(directory, "go").exists():
            self.steps += 1
            time.sleep(0.02)
        return self.steps

    def checkpoint(self, directory: str) -> Any:
        from berth import Call
        witness(directory, self.steps)
        Path(directory, "go").touch()
        return Call(Train(self.steps), directory)


class Stubborn:
    def __call__(self) -> None:
        time.sleep(60)

    def checkpoint(self) -> None:
        return None
