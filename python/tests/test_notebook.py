"""A notebook as its user sees it, run by nbclient."""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
import unittest
from typing import Any

from .support import PATIENCE, PYTHON, Served, until


@unittest.skipUnless(importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"), "nbclient and ipykernel are not installed")
class Notebook(Served):
    def test_a_sweep_outlasts_the_daemon_under_a_bar_that_fills(self) -> None:
        nbclient: Any = importlib.import_module("nbclient")  # mypy does not read Jupyter, which needs a newer Python
        nbformat: Any = importlib.import_module("nbformat").v4
        os.environ["PYTHONPATH"] = str(PYTHON)
        calls = self.dir / "calls"
        command = f"echo {{i}} >> {calls}; echo loss={{i}}; test {{i}} -lt 100 || {self.gate()}"
        book = nbformat.new_notebook(cells=[nbformat.new_code_cell(text) for text in (
            "from berth import Client\n"
            f"sweep = Client().sweep({command!r}, {{'i': range(200)}}, metrics=['loss'], vram='200M', max=40)",
            "sweep.progress()",
            "sweep.table()",
            "print([(int(row['i']), row['outcome'], row['loss']) for row in sweep.table()] == [(i, 'ok', i) for i in range(200)])")])
        bars = []

        class Reader(nbclient.NotebookClient):  # type: ignore[misc]
            def process_message(self, message: Any, cell: Any, index: int) -> Any:
                if message["msg_type"] == "update_display_data":
                    bars.append(message["content"]["data"]["text/html"])
                return super().process_message(message, cell, index)

        notebook = threading.Thread(target=Reader(book, timeout=PATIENCE, kernel_name="python3").execute)
        notebook.start()
        self.addCleanup(notebook.join)
        until(lambda: calls.exists() and len(calls.read_text().split()) >= 100)
        self._reap(self.daemon)  # with -9
        self.assertLess(len(calls.read_text().split()), 150)
        self.serve()
        self.open()
        notebook.join()
        self.assertEqual(sorted(calls.read_text().split(), key=int), [str(i) for i in range(200)])
        shown = [[output.get("text") or output["data"]["text/html"] for output in cell.outputs] for cell in book.cells]
        self.assertGreater(len(bars), 2)
        self.assertEqual((shown[0], shown[1], shown[3]), ([], bars[-1:], ["True\n"]))
        self.assertIn("width:100.00%", bars[-1])
        self.assertIn("<p>200 of 200 ended</p>", bars[-1])
        self.assertIn("<p>and 150 more</p>", shown[2][0])


if __name__ == "__main__":
    unittest.main()
