"""``taskloss tasks``: list the metrics and their settings."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from taskloss.cli import options

if TYPE_CHECKING:
    from taskloss.tasks import Task

USES = {"binary": "classes and queries", "labels": "classes", "class": "several classes", "graded": "queries"}
"""The data that metrics of each target kind (:attr:`Task.target_kind`) can be trained on."""
LIBRARY_SETTINGS = {"on_one_class", "zero_division"}
"""Settings for cases that the commands never have; only callers of the library need them."""


def tasks(as_json: options.Json = False) -> None:
    """List the metrics to train for, and their settings with default values."""
    from taskloss.tasks.registry import registered  # This loads torch: too slow for --help.

    described = [_describe(name, cls) for name, cls in registered().items()]
    if as_json:
        typer.echo(json.dumps(described, indent=1))
        return
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for use in dict.fromkeys(task["for"] for task in described):
        table.add_row(Text(f"for {use}", style="bold"))
        for task in described:
            if task["for"] == use:
                table.add_row(f"  {task['name']}", task["summary"] + (f" [{task['settings']}]" if task["settings"] else ""))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print("Settings follow a colon: --metric recall_at_fpr:fpr=0.01", style="dim")


def use_of(cls: type[Task]) -> str:
    """Return the data that a metric can be trained on, in words."""
    return USES.get(cls.target_kind, "Python code only")


def _describe(name: str, cls: type[Task]) -> dict[str, str]:
    """Return name, settings, use and summary of a task; the summary is the first paragraph of the class's docstring."""
    settings = [
        f"{field.name}={field.default}"
        for field in dataclasses.fields(cls)  # type: ignore[arg-type]  # Every task is a dataclass.
        if field.init and field.name not in LIBRARY_SETTINGS and field.default is not dataclasses.MISSING
    ]
    paragraph = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    summary = re.sub(r":\w+:`(\w+)`", r"\1", paragraph.replace("``", ""))
    return {
        "name": name,
        "settings": ", ".join(settings),
        "for": use_of(cls),
        "summary": summary,
    }
