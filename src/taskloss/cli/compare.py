"""``taskloss compare``: train on a metric, train on cross-entropy, and say honestly which ranks better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from taskloss import _checks
from taskloss.direct import EPSILON
from taskloss.training import TrainingSettings

if TYPE_CHECKING:
    from taskloss.report import Comparison


def _check_epsilon(value: float) -> float:
    try:
        return _checks.check_positive("epsilon", value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def compare(
    seeds: Annotated[int, typer.Option(min=2, help="How many splits and initial networks.")] = 10,
    epsilon: Annotated[float, typer.Option(callback=_check_epsilon, help="Epsilon of the direct loss.")] = EPSILON,
    iterations: Annotated[int, typer.Option(min=1, help="Most training steps of a run.")] = TrainingSettings.iterations,
    output: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("taskloss-report"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON instead of a table.")] = False,
) -> None:
    """Train one network by cross-entropy and by direct average precision, and report both on test samples.

    The data set comes with the package. Prints a table; writes an HTML report, a figure and the results as JSON.
    """
    # scikit-learn and matplotlib take a second to load: too long for --help.
    from taskloss import report
    from taskloss.cli.trials import compare_on_page_blocks

    _make_folder(output)
    settings = TrainingSettings(iterations=iterations)
    with _progress_bar(2 * seeds) as on_progress:
        comparison = compare_on_page_blocks(seeds=seeds, epsilon=epsilon, settings=settings, on_progress=on_progress)
    try:
        paths = report.write_report(comparison, output)
    except OSError as error:
        typer.echo(f"Cannot write the report: {error}", err=True)
        raise typer.Exit(1) from error
    if as_json:
        typer.echo(report.as_json(comparison), nl=False)
    else:
        _print_table(comparison)
    for name, path in zip(("Report", "Figure", "Results"), paths, strict=True):
        typer.echo(f"{name + ':':9}{path}", err=as_json)


def _make_folder(folder: Path) -> None:
    """Before the training, not after: a bad folder should cost no minute."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder {folder}: {error.strerror}", param_hint="--output") from error


@contextmanager
def _progress_bar(runs: int) -> Iterator[Callable[[float], None]]:
    """A bar over the runs on the error stream; silent where that is no terminal."""
    console = Console(stderr=True)
    count = TextColumn("{task.completed:.0f} of {task.total:.0f} runs")
    columns = (TextColumn("Training"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=runs)
        yield lambda done: progress.update(task, completed=done)


def _print_table(comparison: Comparison) -> None:
    from taskloss import report

    table = Table(title="Test average precision, %", title_justify="left")
    for heading in ("seed", comparison.baseline, comparison.contender, "difference"):
        table.add_column(heading, justify="right")
    for row in report.seed_rows(comparison):
        table.add_row(*row)
    table.add_section()
    for row in report.summary_rows(comparison):
        table.add_row(*row)
    console = Console(highlight=False)
    console.print(comparison.data, style="dim", markup=False)
    console.print(table)
    console.print(f"{report.summarize(comparison).verdict}\n", markup=False)
