"""``taskloss compare``: train on the metric and on cross-entropy, and say honestly which does better."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taskloss import datasets
from taskloss.cli import options
from taskloss.cli.errors import check_readable, exit_on_error
from taskloss.cli.method_table import ALL_METHODS, BASELINE, CONTENDER
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import command_line, resume_hint, versions

if TYPE_CHECKING:
    from taskloss.cli.data import TableSamples
    from taskloss.cli.methods import Plan
    from taskloss.report import Comparison, Run

DEFAULT_MAX_ROWS = 100_000

Data = Annotated[
    Path | None, typer.Argument(help="CSV, TSV, Parquet or svmlight file, plain or gzipped.", show_default="bundled data")
]
Output = Annotated[Path, typer.Option(help="Folder for the report.")]
Splits = Annotated[
    int,
    typer.Option(
        min=2, max=1000, help="Number of random splits, each with its own initial weights.", rich_help_panel=options.TRAINING
    ),
]
Methods = Annotated[
    str | None,
    typer.Option(
        help=f"Methods to compare, separated by commas: {', '.join(ALL_METHODS)}.",
        show_default="all that apply",
        rich_help_panel=options.TRAINING,
    ),
]


def compare(
    context: typer.Context,
    data: Data = None,
    target: options.Target = None,
    metric: options.Metric = None,
    positive: options.Positive = None,
    group: options.Group = None,
    splits: Splits = 5,
    methods: Methods = None,
    seed: options.Seed = 0,
    iterations: options.Iterations = None,
    jobs: options.Jobs = None,
    output: Output = Path("taskloss-report"),
    resume: options.Resume = False,
    drop: options.Drop = None,
    ids: options.Id = None,
    keep: options.Keep = None,
    categorical: options.Categorical = None,
    missing: options.Missing = None,
    dates: options.Dates = None,
    form: options.Format = None,
    encoding: options.Encoding = None,
    max_rows: options.MaxRows = None,
    as_json: options.Json = False,
) -> None:
    """Compare training on your metric with cross-entropy and other methods on your data, and say whether it helps.

    Prints a table, and writes an HTML report and the results as JSON. Without DATA, a bundled data set is used.
    """
    with exit_on_error(resume_hint(context)), ExitStack() as stack:
        check_readable(data)
        # These take seconds to load: too long for --help and for a file that does not exist.
        from taskloss._processes import default_jobs
        from taskloss.cli.columns import print_columns
        from taskloss.cli.data import DataOptions, load_samples
        from taskloss.cli.journal import Journal
        from taskloss.cli.methods import Plan, choose_methods, estimator_settings
        from taskloss.cli.metric import parse_metric
        from taskloss.cli.runs import run_comparison
        from taskloss.cli.splits import check_size

        # Before the training: nobody should wait minutes for a folder that cannot be made.
        output.mkdir(parents=True, exist_ok=True)
        source = DataOptions(
            path=data or stack.enter_context(resources.as_file(resources.files(datasets).joinpath("page_blocks.csv"))),
            target=target,
            positive=positive,
            group=group,
            drop=drop or (),
            ids=ids or (),
            keep=keep or (),
            categorical=categorical or (),
            missing=missing or (),
            dates=dates,
            form=form,
            encoding=encoding,
            **({} if data else _BUNDLED),
        )
        samples = load_samples(source, max_rows=max_rows or DEFAULT_MAX_ROWS, seed=seed)
        check_size(samples)
        queries = samples.groups is not None
        parsed = parse_metric(metric, queries=queries, classes=len(samples.classes) or 2)
        settings = estimator_settings(iterations=iterations)
        plan = Plan(parsed, choose_methods(methods, parsed, queries=queries, settings=settings), splits, seed)
        print_columns(samples.uses, stderr=as_json)
        journal = Journal(output, samples, plan, resume=resume)
        with progress_bar("Training", splits * len(plan.methods)) as on_progress:
            runs, failed = run_comparison(samples, plan, journal=journal, jobs=jobs or default_jobs(), on_progress=on_progress)
        _show(_record(samples, plan, runs, failed, command_line(context)), output, samples.encoder.notices, as_json=as_json)
        journal.remove()


_BUNDLED = {"name": "Page Blocks", "source": datasets.PAGE_BLOCKS_SOURCE}


def _record(samples: TableSamples, plan: Plan, runs: tuple[Run, ...], failed: dict[str, str], command: str) -> Comparison:
    from taskloss.cli.methods import describe_settings
    from taskloss.cli.splits import TEST_FRACTION
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
            "Encoding": "medians and categories come from the training samples",
            **describe_settings(plan.methods[CONTENDER].settings, plan.metric),
        },
        command=command,
        versions=versions(),
    )


def _show(comparison: Comparison, output: Path, shown: Collection[str], *, as_json: bool) -> None:
    from taskloss import report
    from taskloss.cli.results import print_comparison

    paths = report.write_report(comparison, output)
    if as_json:
        typer.echo(report.as_json(comparison), nl=False)
    else:
        print_comparison(comparison, shown=shown)
    for name, path in zip(("Report", "Results"), paths, strict=True):
        typer.echo(f"{name + ':':9}{path}", err=as_json)
