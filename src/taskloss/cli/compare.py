"""``taskloss compare``: train by several methods on the same splits, and say which one to use and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from taskloss.cli import options
from taskloss.cli.bundled import find_bundled
from taskloss.cli.errors import check_new, check_readable, exit_on_error
from taskloss.cli.method_table import ALL_METHODS, BASELINE, CONTENDER, DEFAULT, ESTIMATOR_METHODS, LIGHTGBM
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import command_line, resume_hint, train_command, versions
from taskloss.cli.report import PAGE, RESULTS, UNFINISHED
from taskloss.datasets import BUNDLED, BundledSet

if TYPE_CHECKING:
    from taskloss.cli.data import TableSamples
    from taskloss.cli.methods import Plan
    from taskloss.report import Comparison, Run

DEFAULT_MAX_ROWS = 100_000
DEFAULT_OUTPUT = Path("taskloss-report")

Data = Annotated[Path | None, typer.Argument(help=options.DATA_HELP, show_default="every bundled data set, one after another")]
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
    output: Output = DEFAULT_OUTPUT,
    resume: options.Resume = False,
    force: options.Force = False,
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
    """Compare ways to train for your metric on your data, and say which one to use and how sure that is.

    Prints a table, a verdict and the command that trains what it recommends, and writes an HTML report and the results as JSON.
    Without DATA, this is a demonstration on the bundled data sets.
    """
    with exit_on_error(resume_hint(context)):
        inputs = _choose_inputs(data, output)
        for each in inputs:
            check_readable(each.path)
            if not force:
                _check_report(each.folder, command_line(context, data=each.argument), resume=resume)
        # These take seconds to load: too long for --help and for the checks above.
        from taskloss._processes import default_jobs
        from taskloss.cli.columns import print_columns
        from taskloss.cli.data import DataOptions, load_samples
        from taskloss.cli.journal import Journal
        from taskloss.cli.methods import Plan, choose_methods, estimator_settings, why_left_out
        from taskloss.cli.metric import parse_metric
        from taskloss.cli.runs import run_comparison
        from taskloss.cli.splits import check_size

        comparisons, journals = [], []
        for number, each in enumerate(inputs, 1):
            # Before the training: nobody should wait minutes for a folder that cannot be made.
            each.folder.mkdir(parents=True, exist_ok=True)
            source = DataOptions(
                path=each.path,
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
                name=each.bundled.title if each.bundled else "",
                source=each.bundled.source if each.bundled else "",
            )
            samples = load_samples(source, max_rows=max_rows or DEFAULT_MAX_ROWS, seed=seed)
            check_size(samples)
            queries = samples.groups is not None
            parsed = parse_metric(metric, queries=queries, classes=len(samples.classes) or 2)
            settings = estimator_settings(iterations=iterations)
            plan = Plan(parsed, choose_methods(methods, parsed, queries=queries, settings=settings), splits, seed)
            title = f"Data set {number} of {len(inputs)}" if len(inputs) > 1 else ""
            if title:
                typer.secho("\n" * (number > 1) + f"{title}: {samples.card.name}", bold=True, err=as_json)
            if each.bundled is None:
                print_columns(samples.uses, stderr=as_json)
            journals.append(Journal(each.folder, samples, plan, resume=resume))
            with progress_bar("Training", splits * len(plan.methods), title) as on_progress:
                runs, failed = run_comparison(
                    samples, plan, journal=journals[-1], jobs=jobs or default_jobs(), on_progress=on_progress
                )
            commands = _train_commands(context, each.argument, samples, plan)
            left_out = why_left_out(methods, parsed) | failed
            record = _record(samples, plan, runs, left_out, command_line(context, data=each.argument), commands)
            comparisons.append(record)
            _show(record, each.folder, samples.encoder.notices, as_json=as_json)
        if as_json:
            _print_json(comparisons, several=len(inputs) > 1)
        # Kept until all data sets are done, so that --resume finds what was trained before.
        for journal in journals:
            journal.remove()


class _Input(NamedTuple):
    """A data set to compare on."""

    argument: Path
    """What names it on the command line."""
    bundled: BundledSet | None
    path: Path
    folder: Path
    """Where its report goes."""


def _choose_inputs(data: Path | None, output: Path) -> list[_Input]:
    """Return the data set that was named, or all that are bundled, whose reports go to folders of their own."""
    if data is None:
        return [_Input(Path(name), bundled, bundled.path, output / name) for name, bundled in BUNDLED.items()]
    bundled = find_bundled(data)
    return [_Input(data, bundled, bundled.path if bundled else data, output)]


def _check_report(folder: Path, command: str, *, resume: bool) -> None:
    """Raise if the folder holds the report of another comparison; in the default folder, the same command replaces its own."""
    if resume and (folder / UNFINISHED).exists():
        return
    if DEFAULT_OUTPUT in (folder, folder.parent):
        # A file that is damaged is no report of the same comparison.
        with suppress(OSError, ValueError, RecursionError, AttributeError):
            if json.loads((folder / RESULTS).read_bytes()).get("command") == command:
                return
    for name in (PAGE, RESULTS):
        check_new(folder / name, force=False)


def _train_commands(context: typer.Context, argument: Path, samples: TableSamples, plan: Plan) -> dict[str, str]:
    """Return the command that trains each method on all the data, by label; not every method of a comparison has one."""
    labels = samples.labels
    # The labels 0 and 1 say themselves which of them is positive.
    positive = labels.positive if labels and labels.positive not in ("1", "true") else context.params["positive"]
    changes = {"data": argument, "metric": plan.metric.text, "positive": positive}
    return {
        label: train_command(context, method.name, **changes)
        for label, method in plan.methods.items()
        if method.name in ESTIMATOR_METHODS
    }


def _record(
    samples: TableSamples, plan: Plan, runs: tuple[Run, ...], left_out: dict[str, str], command: str, commands: dict[str, str]
) -> Comparison:
    from taskloss.cli.methods import describe_settings
    from taskloss.cli.splits import TEST_FRACTION
    from taskloss.report import Comparison

    notices = tuple(f"{name} is left out: {reason}" for name, reason in left_out.items())
    return Comparison(
        metric=plan.metric.label,
        data=replace(samples.card, notices=samples.card.notices + notices),
        test_fraction=TEST_FRACTION,
        methods={name: method.description for name, method in plan.methods.items() if name not in left_out},
        baseline=BASELINE,
        contender=CONTENDER,
        default=DEFAULT,
        trees=ALL_METHODS[LIGHTGBM].label,
        train_commands={name: text for name, text in commands.items() if name not in left_out},
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


def _show(comparison: Comparison, folder: Path, shown: Collection[str], *, as_json: bool) -> None:
    from taskloss import report
    from taskloss.cli.results import print_comparison

    paths = report.write_report(comparison, folder)
    if not as_json:
        print_comparison(comparison, shown=shown)
    for name, path in zip(("Report", "Results"), paths, strict=True):
        typer.echo(f"{name + ':':9}{path}", err=as_json)


def _print_json(comparisons: Sequence[Comparison], *, several: bool) -> None:
    from taskloss import report

    texts = [report.as_json(comparison) for comparison in comparisons]
    typer.echo("[\n" + ",\n".join(texts) + "]\n" if several else texts[0], nl=False)
