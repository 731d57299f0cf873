"""The client, its documentation and the API say the same."""

from __future__ import annotations

import json
import re
import unittest
from typing import Any, Dict

import berth
from berth import fields, views

from .support import REPOSITORY

API = json.loads((REPOSITORY / "internal" / "api" / "openapi.json").read_text())
PAGE = (REPOSITORY / "docs" / "reference" / "python.md").read_text()

# The calls for each operation. A verb of jobs/act is a call of its own.
CALLS = {
    "act": ["cancel", "hold", "park", "release", "requeue", "unpark"], "adopt": ["adopt"], "batches": ["batches"], "drain": ["drain"],
    "edit": ["edit"], "events": ["events"], "gpu-history": ["gpu_history"], "gpu-samples": ["gpu_samples"], "gpus": ["gpus"],
    "groups": ["groups"], "job-samples": ["samples"], "list": ["history", "jobs", "list"], "log": ["log_bytes", "logs"], "pause": ["pause"],
    "remove-group": ["remove_group"], "resume": ["resume"], "set-group": ["set_group"], "show": ["array", "job", "show"],
    "stats": ["stats"], "status": ["status"], "submit": ["submit", "submit_all", "sweep"], "sweeps": ["sweeps"], "trials": ["trials"],
    "wait": ["wait"], "why": ["why"], "add-trials": [],  # of a handle
}

# Left to the berth program.
PROGRAM = {
    "adopt-strays", "attach", "backup", "end-session", "health", "metrics", "new-login", "new-token", "notify", "open-session",
    "release-gpus", "reload", "replay", "revoke-token", "revoke-tokens", "send-notify", "set-notify", "snapshot", "snapshots", "strays",
    "tokens",
}


def schema(name: str) -> Dict[str, Any]:
    found: Dict[str, Any] = API["components"]["schemas"][name]["properties"]
    return found


class Contract(unittest.TestCase):
    def test_every_operation_is_a_call_or_left_to_the_program(self) -> None:
        operations = {operation["operationId"] for path in API["paths"].values() for operation in path.values()}
        self.assertEqual(operations, set(CALLS) | PROGRAM)
        public = {name for name in dir(berth.Client) if not name.startswith("_")} - {"address"}
        self.assertEqual(public, {call for calls in CALLS.values() for call in calls})

    def test_the_table_of_calls_names_each(self) -> None:
        table = PAGE[PAGE.index("| call | what it does |"):PAGE.index("For terminals, tokens")]
        named = {name for row in table.splitlines()[3:] if row.startswith("|")
                 for name in re.findall(r"`(\w+)(?=[(`])", row.split("|")[1])}
        self.assertEqual(named, {call for calls in CALLS.values() for call in calls})

    def test_the_fields_of_a_job_are_those_of_the_api(self) -> None:
        self.assertEqual(set(fields.KEYS), set(schema("Spec")) - {"command_bytes"})

    def test_the_views_have_the_keys_of_the_api(self) -> None:
        for ours, theirs in ((views.JobView, "View"), (views.Event, "Event"), (views.Acted, "Acted")):
            self.assertEqual(set(ours.__annotations__), set(schema(theirs)), theirs)

    def test_each_kind_of_error_has_a_class(self) -> None:
        kinds = set(re.findall(r"^\| `(\w+)` \| \d", (REPOSITORY / "docs" / "reference" / "api.md").read_text(), re.M))
        self.assertEqual(set(berth.BerthError._kinds), kinds | {"unreachable", "missing", "failed"})
