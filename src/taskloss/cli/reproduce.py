"""``taskloss reproduce``: run an experiment of the papers, and put the paper's figures beside ours."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskloss.cli import options
from taskloss.cli.errors import BAD_DATA, CommandError, exit_on_error, usage_error
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import command_line, resume_hint, versions

if TYPE_CHECKING:
    from taskloss.experiments.experiment import Experiment

Name = Annotated[str | None, typer.Argument(help="Name of the experiment; --list shows all.", show_default=False)]
Full = Annotated[
    bool,
    typer.Option("--full/--quick", help="The paper's size, or the form that fits two cores in an hour.", show_default="quick"),
]
Data = Annotated[Path | None, typer.Option(help="Folder of the data sets and the pretrained networks.", show_default=False)]
Seeds = Annotated[int | None, typer.Option(min=2, max=1000, help="Number of seeds.", show_default="depends on the experiment")]
Output = Annotated[Path, typer.Option(help="Folder for the page, its figures and the results.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder for finished runs and computed features.", show_default="'cache' in the output folder")
]
Force = Annotated[bool, typer.Option("--force", help="Discard the finished runs of an earlier call and start anew.")]
List = Annotated[bool, typer.Option("--list", help="List the experiments, what they reproduce, and the time that they took.")]


def reproduce(
    context: typer.Context,
    name: Name = None,
    full: Full = False,
    data: Data = None,
    seeds: Seeds = None,
    jobs: options.Jobs = None,
    output: Output = Path("taskloss-reproduction"),
    cache: Cache = None,
    resume: options.Resume = False,
    force: Force = False,
    list_all: List = False,
) -> None:
    """Reproduce an experiment of the papers: a page with the paper's figures beside ours, and a verdict on each claim.

    Finished runs are kept, so an interrupted experiment continues with --resume.
    """
    with exit_on_error(resume_hint(context)):
        from taskloss.experiments.catalog import CATALOG

        if list_all:
            _print_list()
            return
        if name not in CATALOG:
            given = "give the name of an experiment" if name is None else f"there is no experiment {name!r}"
            raise usage_error(f"{given}: {', '.join(CATALOG)} (see taskloss reproduce --list)")
        _run(context, CATALOG[name]["full" if full else "quick"].experiment, "full" if full else "quick")


def _run(context: typer.Context, experiment: Experiment, form: str) -> None:
    from taskloss._processes import default_jobs
    from taskloss.experiments.files import write_results
    from taskloss.experiments.journal import Journal
    from taskloss.experiments.runner import Files, Runner

    given = context.params
    output: Path = given["output"]
    cache: Path = given["cache"] or output / "cache"
    output.mkdir(parents=True, exist_ok=True)
    path = cache / f"{experiment.name}-{form}.jsonl"
    if given["force"]:
        path.unlink(missing_ok=True)
    try:
        journal = Journal(path)
        if len(journal) and not given["resume"]:
            raise usage_error(f"{path} holds {len(journal)} finished runs; give --resume to continue, or --force to discard them")
        seeds = given["seeds"] or experiment.seeds
        runner = Runner(journal, Files(given["data"], cache), jobs=given["jobs"] or default_jobs(), show=progress_bar)
        results = experiment.run(runner, seeds)
    except (FileNotFoundError, ValueError) as error:
        raise CommandError(str(error), BAD_DATA) from error
    except ImportError as error:  # A rival's package; the message says how to install it.
        raise CommandError(str(error)) from error
    made = {
        "command": command_line(context),
        "form": form,
        "seeds": seeds,
        "runs": len(journal),
        "seconds": round(journal.seconds),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "versions": versions(),
    }
    page, written = write_results(output, experiment, results, made)
    _print_markdown(page.verdict)
    typer.echo(f"Page: {written}")


def _print_markdown(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))


def _print_list() -> None:
    from rich.console import Console
    from rich.table import Table

    from taskloss.experiments.catalog import CATALOG

    table = Table("experiment", "reproduces", "seeds", "time on two cores")
    for name, forms in CATALOG.items():
        for form, (experiment, cost) in forms.items():
            source = experiment.source if form == "quick" else ""
            table.add_row(f"{name} --{form}", source, str(experiment.seeds), cost)
    Console().print(table)


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
