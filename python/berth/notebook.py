"""Jobs in a notebook: tables as HTML, and a bar that fills."""

from __future__ import annotations

import collections
import html
import importlib
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Counter, Mapping, Optional, Sequence

from .views import OVER

if TYPE_CHECKING:
    from .handles import Group

_ROWS = 50  # of a table; the rest is counted
_COLOURS = {"finished": "#2e7d32", "failed": "#c62828", "cancelled": "#9e9e9e", "running": "#1565c0", "parked": "#6a1b9a"}
_WIDTH = 30
_REFRESH = 0.2  # seconds between two pictures of a bar


def table_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys."""
    if not rows:
        return "<p>no jobs</p>"
    head = "".join(f"<th>{html.escape(str(key))}</th>" for key in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row.values()) + "</tr>" for row in rows[:_ROWS])
    more = f"<p>and {len(rows) - _ROWS} more</p>" if len(rows) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return "" if value is None else html.escape(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def bar_html(counts: Mapping[str, int]) -> str:
    """A bar with a part for each state, and the counts in words."""
    total = sum(counts.values()) or 1
    parts = "".join(f'<div style="width:{100 * counts.get(state, 0) / total:.2f}%;background:{colour}"></div>'
                    for state, colour in _COLOURS.items())
    return (f'<div style="display:flex;height:10px;max-width:40em;background:#ddd">{parts}</div>'
            f"<p>{html.escape(_words(counts))}</p>")


def client_html(address: str, status: Mapping[str, Any], gpus: Sequence[Mapping[str, Any]], jobs: Sequence[Mapping[str, Any]]) -> str:
    """A daemon, its GPUs and its jobs."""
    about = f"berth {status.get('version', '')}, {address}" + (f": {status['blocked']}" if status.get("blocked") else "")
    cards = [{"gpu": gpu["index"], "name": gpu["name"], "used MiB": gpu["used_mib"], "total MiB": gpu["total_mib"], "util %": gpu["util"],
              "health": "paused" if gpu["paused"] else gpu["health"], "jobs": [job["id"] for job in gpu["jobs"]]} for gpu in gpus]
    queue = [{"id": job["id"], "name": job["name"], "user": job["user"], "state": job["state"], "gpus": job["gpu_ids"] or job["gpus"],
              "reason": job["reason"]} for job in jobs]
    return f"<p>{html.escape(about)}</p>{table_html(cards) if cards else ''}{table_html(queue)}"


def progress(group: Group, timeout: Optional[float]) -> None:
    """Draw a bar until all jobs have ended."""
    counts: Counter[str] = collections.Counter(unfinished=len(group))
    draw = _notebook() or _text
    drawn = 0.0
    draw(counts, False)
    try:
        for job in group._client._as_completed([task.id for task in group], timeout):
            counts["unfinished"] -= 1
            counts[job["state"]] += 1
            if time.monotonic() - drawn > _REFRESH and counts["unfinished"]:
                draw(counts, False)
                drawn = time.monotonic()
    finally:
        draw(counts, True)


def _words(counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    over = sum(counts.get(state, 0) for state in OVER)
    rest = "".join(f", {count} {state}" for state, count in counts.items() if count and state not in ("finished", "unfinished"))
    return f"{over} of {total} ended{rest}"


def _text(counts: Mapping[str, int], last: bool) -> None:
    """A bar on standard error: one line that changes on a terminal, else a line
    at the beginning and one at the end."""
    total = sum(counts.values()) or 1
    filled = _WIDTH * sum(counts.get(state, 0) for state in OVER) // total
    live = sys.stderr.isatty()
    sys.stderr.write(("\r\x1b[K" if live else "") + f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {_words(counts)}"
                     + ("\n" if last or not live else ""))
    sys.stderr.flush()


def _notebook() -> Optional[Callable[[Mapping[str, int], bool], None]]:
    """Draws into the output of the notebook's cell; None outside a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    show: Any = importlib.import_module("IPython.display")
    place = show.display(show.HTML(""), display_id=True)
    return lambda counts, _: place.update(show.HTML(bar_html(counts)))
