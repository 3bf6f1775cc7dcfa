"""The command line as a whole: one subcommand a file."""

from __future__ import annotations

from typing import Annotated

import typer

import taskloss
from taskloss.cli.compare import compare

app = typer.Typer(name="taskloss", no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
app.command()(compare)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taskloss {taskloss.__version__}")
        raise typer.Exit


VersionOption = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")


@app.callback()
def common(version: Annotated[bool, VersionOption] = False) -> None:
    """Train on the metric you report."""
