"""``taskloss tasks``: the metrics there are."""

from __future__ import annotations

import dataclasses
import inspect
import json

import typer
from rich.console import Console
from rich.table import Table

from taskloss.cli import options
from taskloss.cli.metric import FOR_CLASSES, FOR_QUERIES
from taskloss.tasks.registry import registered
from taskloss.tasks.task import Task

INTERNAL = {"on_one_class", "zero_division"}
"""Settings for callers of the library, about cases that a command does not have."""


def tasks(as_json: options.Json = False) -> None:
    """List the metrics to train for, and their settings."""
    rows = [_describe(name, cls) for name, cls in registered().items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("metric", "settings", "for", "what it is"):
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["settings"] or "", row["for"], row["summary"])
    Console(highlight=False, markup=False).print(table)


def _describe(name: str, cls: type[Task]) -> dict[str, str]:
    shown = [
        f"{field.name}={field.default}"
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]
        if field.init and field.name not in INTERNAL and field.default is not dataclasses.MISSING
    ]
    uses = [word for word, kinds in (("two classes", FOR_CLASSES), ("queries", FOR_QUERIES)) if cls.target_kind in kinds]
    summary = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
    return {"name": name, "settings": ", ".join(shown), "for": ", ".join(uses) or "the library", "summary": summary}
