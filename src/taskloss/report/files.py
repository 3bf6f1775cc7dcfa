"""Writing a report to a folder."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from taskloss.report.curves import draw_curves
from taskloss.report.page import render_page
from taskloss.report.records import Comparison
from taskloss.report.summary import summarize


def as_json(comparison: Comparison) -> str:
    """The records and their summary, as ``results.json`` holds them."""
    return json.dumps({**asdict(comparison), "summary": asdict(summarize(comparison))}, indent=1, allow_nan=False) + "\n"


def write_report(comparison: Comparison, folder: Path) -> list[Path]:
    """Write the page, the figure and the records to ``folder``; the page comes first in the list of their paths."""
    contents = {
        "index.html": render_page(comparison).encode(),
        "pr-curves.png": draw_curves(comparison),
        "results.json": as_json(comparison).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [replace_file(folder / name, content) for name, content in contents.items()]


def replace_file(path: Path, content: bytes) -> Path:
    """Write ``path`` as a whole or not at all: a reader, or a crash, never meets half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        return temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
