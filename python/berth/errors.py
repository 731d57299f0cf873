"""The errors of this package."""

from __future__ import annotations


class BerthError(Exception):
    """A problem, a hint how to solve it, and a kind for programs.

    Kinds are those of the HTTP API (berth help api): invalid, forbidden,
    not_found, refused, too_much, unavailable; and of this client: unreachable
    (no daemon answers) and missing (there is no berth program).
    """

    def __init__(self, problem: str, hint: str = "", kind: str = "unavailable") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.problem}\nhint: {self.hint}" if self.hint else self.problem

    @classmethod
    def from_stderr(cls, text: str, otherwise: str) -> BerthError:
        """The error that berth printed, with its hint."""
        problem, hint = [], ""
        for line in text.splitlines():
            if line.startswith("hint: "):
                hint = line[len("hint: "):]
            elif line.strip():
                problem.append(line[len("berth: "):] if line.startswith("berth: ") else line)
        return cls("\n".join(problem) or otherwise, hint, "refused")
