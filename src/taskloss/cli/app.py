"""The typer application: it collects the subcommands, each of which has a module of its own."""

from __future__ import annotations

from typing import Annotated

import typer

import taskloss
from taskloss.cli.compare import compare
from taskloss.cli.compile import compile_all
from taskloss.cli.errors import EXIT_CODES
from taskloss.cli.predict import predict
from taskloss.cli.report import report
from taskloss.cli.reproduce import reproduce
from taskloss.cli.tasks import tasks
from taskloss.cli.train import train

app = typer.Typer(name="taskloss", no_args_is_help=True, add_completion=False, pretty_exceptions_show_locals=False)
for command in (compare, train, predict, report, reproduce, tasks):
    app.command(epilog=EXIT_CODES)(command)
app.command("compile", epilog=EXIT_CODES)(compile_all)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taskloss {taskloss.__version__}")
        raise typer.Exit


VersionOption = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")


@app.callback()
def common(version: Annotated[bool, VersionOption] = False) -> None:
    """Train on the metric you report."""
