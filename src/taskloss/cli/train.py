"""``taskloss train``: train on the metric, and save the model."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskloss.cli import options
from taskloss.cli.bundled import resolve_data
from taskloss.cli.errors import check_new, check_readable, exit_on_error, usage_error, warnings_as_messages
from taskloss.cli.method_table import AUTO, ESTIMATOR_METHODS, RANDOM_FOREST
from taskloss.cli.model_files import CHECKPOINT, FACTS
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import resume_hint

if TYPE_CHECKING:
    from taskloss.cli.data import TableSamples
    from taskloss.cli.metric import Metric

Method = Annotated[str, typer.Option(help=f"Training method: {', '.join(ESTIMATOR_METHODS)}.", rich_help_panel=options.TRAINING)]
Output = Annotated[Path, typer.Option(help="Folder for the model.")]
FEW = 50
"""With fewer rows of a class, the metric of held-out rows was up to 30 points of average precision from that of new rows."""


def train(
    context: typer.Context,
    data: options.Data,
    target: options.Target = None,
    metric: options.Metric = None,
    positive: options.Positive = None,
    group: options.Group = None,
    method: Method = AUTO,
    seed: options.Seed = 0,
    iterations: options.Iterations = None,
    output: Output = Path("taskloss-model"),
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
    """Train a model on your metric, and write it to a folder as safetensors and JSON, never pickle.

    An interrupted training continues with --resume and gives the same model, byte for byte.
    """
    with exit_on_error(resume_hint(context)):
        method = method.replace("-", "_")
        if method not in ESTIMATOR_METHODS:
            raise usage_error(f"--method {method!r} is not known; expected one of {', '.join(ESTIMATOR_METHODS)}")
        data = resolve_data(data)
        check_readable(data)
        if not (resume and (output / CHECKPOINT).exists()):
            check_new(output / FACTS, force=force)
        # These take seconds to load: too long for --help and for the checks above.
        from taskloss.cli.columns import print_columns
        from taskloss.cli.data import DataOptions, load_samples
        from taskloss.cli.methods import estimator_settings
        from taskloss.cli.metric import parse_metric

        output.mkdir(parents=True, exist_ok=True)
        source = DataOptions(
            path=data,
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
        )
        samples = load_samples(source, max_rows=max_rows, seed=seed)
        parsed = parse_metric(metric, queries=samples.groups is not None, classes=len(samples.classes) or 2)
        print_columns(samples.uses, stderr=as_json)
        if not resume:
            shutil.rmtree(output / CHECKPOINT, ignore_errors=True)
        settings = estimator_settings(iterations=iterations)
        estimator = _fit(samples, parsed, method, checkpoint=str(output / CHECKPOINT), random_state=seed, **settings)
        summary = _save(estimator, samples, parsed, method, seed, tuple(missing or ()), output)
        shutil.rmtree(output / CHECKPOINT, ignore_errors=True)
        _show(summary, samples, parsed, as_json=as_json)


def _fit(samples: TableSamples, metric: Metric, method: str, **settings: Any) -> Any:
    """Fit an estimator to all the samples, with a progress bar; warnings become messages."""
    import numpy as np

    from taskloss.cli.errors import BAD_DATA, CommandError
    from taskloss.cli.methods import build_estimator, fit_estimator, progress_callback
    from taskloss.cli.splits import Subset

    estimator = build_estimator(method, metric, queries=samples.groups is not None, **settings)
    features = samples.features(np.arange(len(samples.target)))
    description = f"Training, {metric.label}"
    with warnings_as_messages(), progress_bar(description, 1.0) as on_progress:
        callback = progress_callback(estimator, lambda share, left: on_progress(share, description, left), metric)
        estimator.set_params(callback=callback)
        try:
            fit_estimator(estimator, Subset(features, samples.target, samples.groups), metric)
        except ValueError as error:
            raise CommandError(str(error), BAD_DATA) from error
    return estimator.set_params(callback=None, checkpoint=None)


def _save(
    estimator: Any, samples: TableSamples, metric: Metric, method: str, seed: int, missing: tuple[str, ...], output: Path
) -> dict[str, Any]:
    """Write the model to a folder and return a summary of its training."""
    from taskloss.cli.models import Facts, Model
    from taskloss.cli.training_sketch import TrainingSketch

    labels = samples.labels
    held_out = estimator.held_out_metric()
    facts = Facts(
        metric=metric.text,
        method=method,
        target=samples.target_name,
        positive=labels.positive if labels else "",
        negative=labels.negative if labels else (),
        classes=samples.classes,
        group=samples.group_name,
        ids=samples.ids,
        missing=missing,
        samples=samples.card.samples,
        positives=samples.card.positives,
        seed=seed,
        held_out=held_out,
    )
    sketch = TrainingSketch.of(samples.encoder.encode(samples.table), samples.target)
    paths = Model(estimator, samples.encoder, facts, sketch).save(output)
    return {
        "model": str(output),
        "files": [str(path) for path in paths],
        "metric": metric.text,
        "method": method,
        "held_out": held_out,
        "members": len(estimator.history_),
        "samples": samples.card.samples,
        "positives": samples.card.positives,
        "target": samples.target_name,
        "positive": facts.positive,
        "classes": list(facts.classes),
        "columns": {use.name: use.line for use in samples.uses},
        "notices": list(samples.card.notices),
    }


def _warn_of_few(samples: TableSamples) -> str:
    """Return what to add to a figure of held-out rows where a class has few of them; nothing where it has enough."""
    import numpy as np

    if samples.groups is not None:
        return ""
    rarest = int(np.unique(samples.target, return_counts=True)[1].min())
    return "" if rarest >= FEW else f"; with only {rarest} rows of the rarest class it is rough, and can be far off"


def _show(summary: dict[str, Any], samples: TableSamples, metric: Metric, *, as_json: bool) -> None:
    """Print the summary of the training."""
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    card = samples.card
    for notice in [notice for notice in card.notices if notice not in samples.encoder.notices][:10]:
        typer.echo(f"- {notice}")
    if samples.classes:
        typer.echo(f"{card.samples:,} samples, {card.target} is {card.list_classes()}")
    else:
        positive = f"{card.target} is {card.positive}" if not card.groups else f"{card.groups:,} queries"
        typer.echo(f"{card.samples:,} samples, {card.positives:,} positive: {positive}")
    if summary["held_out"] is None:
        typer.echo("Nothing was held out, because a class has too few samples: there is no figure that tells about new rows")
    else:
        # Nothing is stopped or chosen in a random forest.
        stopped = "" if summary["method"] == RANDOM_FOREST else ", but it stopped their training, so this is a little optimistic"
        typer.echo(
            f"Held-out {metric.label}: {100 * summary['held_out']:.2f}%. Each row was scored by the members that did not train "
            f"on it{stopped}{_warn_of_few(samples)}"
        )
    typer.echo(f"Model:   {summary['model']}")
    typer.echo(f"Predict: taskloss predict {shlex.quote(summary['model'])} NEW_DATA")
