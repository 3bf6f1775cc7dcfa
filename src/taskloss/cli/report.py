"""``taskloss report``: make the page again from the records of a comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taskloss.cli.errors import BAD_DATA, CommandError, messages

Source = Annotated[Path, typer.Argument(help="A results.json, or the folder that holds it.", show_default=False)]
Output = Annotated[Path | None, typer.Option(help="Folder for the report. (default: the one of the results)", show_default=False)]


def report(source: Source, output: Output = None) -> None:
    """Write the HTML page of a comparison from its results.json. Trains nothing."""
    from taskloss.report import read_results, write_report
    from taskloss.report.files import RESULTS

    with messages():
        path = source / RESULTS if source.is_dir() else source
        try:
            comparison = read_results(path)
        except (OSError, ValueError) as error:
            text = f"cannot read {path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise CommandError(text, BAD_DATA) from error
        page, _ = write_report(comparison, output if output is not None else path.parent)
        typer.echo(f"Report: {page}")
