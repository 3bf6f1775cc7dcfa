"""``taskloss tasks``: the metrics there are."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    console = Console(highlight=False, markup=False)
    for use in dict.fromkeys(row["for"] for row in rows):
        table.add_row(Text(f"for {use}", style="bold"))
        for row in rows:
            if row["for"] == use:
                table.add_row(f"  {row['name']}", f"{row['summary']}" + (f" [{row['settings']}]" if row["settings"] else ""))
    console.print(table)
    console.print("Settings follow a colon: --metric recall_at_fpr:fpr=0.01", style="dim")


def _describe(name: str, cls: type[Task]) -> dict[str, str]:
    shown = [
        f"{field.name}={field.default}"
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]  # Every task is a dataclass.
        if field.init and field.name not in INTERNAL and field.default is not dataclasses.MISSING
    ]
    uses = [word for word, kinds in (("two classes", FOR_CLASSES), ("queries", FOR_QUERIES)) if cls.target_kind in kinds]
    summary = re.sub(r":\w+:`(\w+)`", r"\1", (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ").replace("``", ""))
    use = " and ".join(uses) or "Python code only"
    return {"name": name, "settings": ", ".join(shown), "for": use, "summary": summary}
