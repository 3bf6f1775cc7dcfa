"""``taskloss compare``: train on a metric, train on cross-entropy, and say honestly which does better."""

from __future__ import annotations

import os
import shlex
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskloss import datasets
from taskloss.cli import options
from taskloss.cli.errors import messages
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import command_line, versions

if TYPE_CHECKING:
    from taskloss.cli.data import Samples
    from taskloss.cli.trials import Plan
    from taskloss.report import Comparison, Run

MOST_ROWS = 100_000

Data = Annotated[
    Path | None, typer.Argument(help="CSV, TSV, Parquet or svmlight file. (default: bundled data)", show_default=False)
]
Splits = Annotated[int, typer.Option(min=2, max=1000, help="How many random splits, each with its own initial weights.")]
Methods = Annotated[
    str | None, typer.Option(help="Which methods, with commas between them. (default: all that apply)", show_default=False)
]
Output = Annotated[Path, typer.Option(help="Folder for the report.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted comparison in the same folder.")]
MaxRows = Annotated[int, typer.Option(min=100, help="Of a larger file, take a random sample of this size.")]
Jobs = Annotated[
    int | None, typer.Option(min=1, max=64, help="Runs at the same time. (default: the cores, at most 4)", show_default=False)
]
Iterations = Annotated[int | None, typer.Option(min=1, help="Most training steps of a network.", show_default=False)]


def compare(
    data: Data = None,
    target: options.Target = None,
    metric: options.Metric = None,
    positive: options.Positive = None,
    group: options.Group = None,
    splits: Splits = 5,
    methods: Methods = None,
    seed: options.Seed = 0,
    iterations: Iterations = None,
    jobs: Jobs = None,
    output: Output = Path("taskloss-report"),
    resume: Resume = False,
    ignore: options.Ignore = None,
    categorical: options.Categorical = None,
    missing: options.Missing = None,
    form: options.Form = None,
    encoding: options.Encoding = None,
    max_rows: MaxRows = MOST_ROWS,
    as_json: options.Json = False,
) -> None:
    """Compare training on your metric with cross-entropy and others, on your data, and say plainly whether it helps.

    Prints a table; writes an HTML report and the results as JSON. Without DATA, a bundled data set is used.

    Exit codes: 0 done, 1 could not finish, 2 wrong option, 3 data that cannot be used, 130 interrupted.
    """
    given = {
        "--target": target, "--metric": metric, "--positive": positive, "--group": group, "--splits": splits,
        "--methods": methods, "--seed": seed, "--iterations": iterations, "--ignore": ignore,
        "--categorical": categorical, "--missing": missing, "--format": form,
        "--encoding": encoding, "--max-rows": max_rows if max_rows != MOST_ROWS else None,
    }  # fmt: skip
    command = command_line("compare", data, given)
    again = f"To go on: {command} --output {shlex.quote(str(output))} --resume"
    with messages(again), ExitStack() as stack:
        # scikit-learn and pyarrow take a second to load: too long for --help.
        from taskloss.cli.data import DataOptions, load_samples
        from taskloss.cli.methods import choose_methods
        from taskloss.cli.metric import parse_metric
        from taskloss.cli.trials import Journal, Plan, check_size, run_trials

        # Before the training, not after: a folder that cannot be made should cost no minute.
        output.mkdir(parents=True, exist_ok=True)
        source = DataOptions(
            data or stack.enter_context(resources.as_file(resources.files(datasets).joinpath("page_blocks.csv"))),
            *(target, positive, group, ignore or (), categorical or (), missing or (), form, encoding),
            **({} if data else _BUNDLED),
        )
        samples = load_samples(source, most_rows=max_rows, seed=seed)
        check_size(samples)
        chosen_metric = parse_metric(metric, queries=samples.groups is not None)
        chosen = choose_methods(methods, chosen_metric, queries=samples.groups is not None, iterations=iterations)
        plan = Plan(chosen_metric, chosen, splits, seed)
        journal = Journal(output, samples, plan, resume=resume)
        with progress_bar("Training", splits * len(chosen)) as on_progress:
            runs, failed = run_trials(samples, plan, journal=journal, jobs=jobs or default_jobs(), on_progress=on_progress)
        comparison = _record(samples, plan, runs, failed, command)
        _show(comparison, output, as_json=as_json)
        journal.remove()


_BUNDLED = {"name": "Page Blocks", "source": datasets.PAGE_BLOCKS_SOURCE}


def default_jobs() -> int:
    """A process a core that this one may use; each holds the data, so not too many."""
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _record(samples: Samples, plan: Plan, runs: tuple[Run, ...], failed: dict[str, str], command: str) -> Comparison:
    from taskloss.cli.methods import BASELINE, CONTENDER, describe_settings
    from taskloss.cli.trials import TEST_FRACTION
    from taskloss.report import Comparison

    notices = tuple(f"{name} is left out: {reason}" for name, reason in failed.items())
    return Comparison(
        metric=plan.metric.label,
        data=replace(samples.card, notices=samples.card.notices + notices),
        test_fraction=TEST_FRACTION,
        methods={name: method.description for name, method in plan.methods.items() if name not in failed},
        baseline=BASELINE,
        contender=CONTENDER,
        runs=runs,
        settings={
            "Splits": f"{plan.splits}, {1 - TEST_FRACTION:.0%} training and {TEST_FRACTION:.0%} test, "
            + ("whole queries" if samples.groups is not None else "stratified")
            + f"; seeds {plan.seed} to {plan.seed + plan.splits - 1}",
            "Encoding": "medians and categories of the training samples",
            **describe_settings(plan.methods[CONTENDER].iterations),
        },
        command=command,
        versions=versions(),
    )


def _show(comparison: Comparison, output: Path, *, as_json: bool) -> None:
    from taskloss import report
    from taskloss.cli.results import print_comparison

    paths = report.write_report(comparison, output)
    if as_json:
        typer.echo(report.as_json(comparison), nl=False)
    else:
        print_comparison(comparison)
    for name, path in zip(("Report", "Results"), paths, strict=True):
        typer.echo(f"{name + ':':9}{path}", err=as_json)
