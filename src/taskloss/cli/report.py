"""``taskloss report``: write the HTML page of a comparison again from its records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taskloss.cli.errors import BAD_DATA, CommandError, check_readable, exit_on_error

PAGE, RESULTS, UNFINISHED = "index.html", "results.json", "unfinished.json"
"""The files that a comparison writes; the last one holds finished runs until all are."""
Source = Annotated[Path, typer.Argument(help="A results.json, or the folder that holds it.", show_default=False)]
Output = Annotated[Path | None, typer.Option(help="Folder for the report.", show_default="the folder of the results")]


def report(source: Source, output: Output = None) -> None:
    """Write the HTML page of a comparison from its results.json; nothing is trained."""
    with exit_on_error():
        path = source / RESULTS if source.is_dir() else source
        check_readable(path)
        from taskloss.report import read_results, write_report

        try:
            comparison = read_results(path)
        except (OSError, ValueError) as error:
            text = f"cannot read {path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise CommandError(text, BAD_DATA) from error
        page, _ = write_report(comparison, output if output is not None else path.parent)
        typer.echo(f"Report: {page}")
