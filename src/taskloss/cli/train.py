"""``taskloss train``: train on a metric, and keep the model."""

from __future__ import annotations

import json
import shlex
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskloss.cli import options
from taskloss.cli.errors import messages, usage_error
from taskloss.cli.progress import progress_bar
from taskloss.cli.provenance import command_line

if TYPE_CHECKING:
    from taskloss.cli.data import Samples
    from taskloss.cli.metric import Metric

MethodOption = Annotated[str, typer.Option(help="direct, direct_negative, hinge, cross_entropy or lp.")]
Output = Annotated[Path, typer.Option(help="Folder for the model.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted training in the same folder.")]
Iterations = Annotated[int | None, typer.Option(min=1, help="Most training steps of a network.", show_default=False)]
MaxRows = Annotated[
    int | None, typer.Option(min=100, help="Of a larger file, take a random sample of this size.", show_default=False)
]


def train(
    data: options.Data,
    target: options.Target = None,
    metric: options.Metric = None,
    positive: options.Positive = None,
    group: options.Group = None,
    method: MethodOption = "direct",
    seed: options.Seed = 0,
    iterations: Iterations = None,
    output: Output = Path("taskloss-model"),
    resume: Resume = False,
    ignore: options.Ignore = None,
    categorical: options.Categorical = None,
    missing: options.Missing = None,
    form: options.Form = None,
    encoding: options.Encoding = None,
    max_rows: MaxRows = None,
    as_json: options.Json = False,
) -> None:
    """Train a model on your metric, and write it to a folder: safetensors and JSON, never pickle.

    A training that was killed goes on with --resume, to the same model, byte by byte.

    Exit codes: 0 done, 1 could not finish, 2 wrong option, 3 data that cannot be used, 130 interrupted.
    """
    given = {
        "--target": target, "--metric": metric, "--positive": positive, "--group": group, "--method": method, "--seed": seed,
        "--iterations": iterations, "--ignore": ignore, "--categorical": categorical, "--missing": missing, "--format": form,
        "--encoding": encoding, "--max-rows": max_rows, "--output": output,
    }  # fmt: skip
    with messages(f"To go on: {command_line('train', data, given)} --resume"):
        # scikit-learn and pyarrow take a second to load: too long for --help.
        from taskloss.cli.data import DataOptions, load_samples
        from taskloss.cli.methods import NETWORKS
        from taskloss.cli.metric import parse_metric
        from taskloss.cli.models import CHECKPOINT

        method = method.replace("-", "_")
        if method not in NETWORKS:
            raise usage_error(f"--method {method!r} is not known; expected one of {', '.join(NETWORKS)}")
        output.mkdir(parents=True, exist_ok=True)
        source = DataOptions(data, target, positive, group, ignore or (), categorical or (), missing or (), form, encoding)
        samples = load_samples(source, most_rows=max_rows, seed=seed)
        chosen = parse_metric(metric, queries=samples.groups is not None)
        if not resume:
            shutil.rmtree(output / CHECKPOINT, ignore_errors=True)
        estimator = _fit(samples, chosen, method, output / CHECKPOINT, iterations, seed)
        summary = _keep(estimator, samples, chosen, method, seed, tuple(missing or ()), output)
        shutil.rmtree(output / CHECKPOINT, ignore_errors=True)
        _show(summary, samples, as_json=as_json)


def _fit(samples: Samples, metric: Metric, method: str, checkpoint: Path, iterations: int | None, seed: int) -> Any:
    import numpy as np

    from taskloss.cli.errors import BAD_DATA, CommandError
    from taskloss.cli.methods import build_estimator, fit_estimator, share_of
    from taskloss.cli.outcome import Part

    queries = samples.groups is not None
    estimator = build_estimator(
        method, metric, queries=queries, iterations=iterations, random_state=seed, checkpoint=str(checkpoint)
    )
    features = samples.features(np.arange(len(samples.target)))
    with progress_bar(f"Training, {metric.label}", 1.0) as on_progress:
        estimator.set_params(callback=share_of(estimator, lambda share: on_progress(share, f"Training, {metric.label}")))
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", UserWarning)
                fit_estimator(estimator, Part(features, samples.target, samples.groups), metric)
        except ValueError as error:
            raise CommandError(str(error), BAD_DATA) from error
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"taskloss: {message}", err=True)
    return estimator.set_params(callback=None, checkpoint=None)


def _keep(
    estimator: Any, samples: Samples, metric: Metric, method: str, seed: int, missing: tuple[str, ...], output: Path
) -> dict[str, Any]:
    import numpy as np

    from taskloss.cli.models import Facts, Model

    labels = samples.labels
    facts = Facts(
        metric=metric.name,
        method=method,
        target=samples.target_name,
        positive=labels.positive if labels else "",
        negative=labels.negative if labels else (),
        group=samples.group_name,
        missing=missing,
        samples=samples.card.samples,
        positives=samples.card.positives,
        seed=seed,
    )
    paths = Model(estimator, samples.encoder, facts).save(output)
    held_out = [result.best_metric for result in estimator.history_]
    return {
        "model": str(output),
        "files": [str(path) for path in paths],
        "metric": metric.name,
        "method": method,
        "held_out": float(np.mean(held_out)),
        "networks": len(held_out),
        "samples": samples.card.samples,
        "positives": samples.card.positives,
        "target": samples.target_name,
        "positive": facts.positive,
        "notices": list(samples.card.notices),
    }


def _show(summary: dict[str, Any], samples: Samples, *, as_json: bool) -> None:
    from taskloss.cli.metric import parse_metric

    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    card = samples.card
    for notice in card.notices[:10]:
        typer.echo(f"- {notice}")
    label = parse_metric(summary["metric"], queries=bool(card.groups)).label
    what = f"{card.target} is {card.positive}" if not card.groups else f"{card.groups:,} queries"
    typer.echo(f"{card.samples:,} samples, {card.positives:,} positive: {what}")
    typer.echo(
        f"Held-out {label}: {100 * summary['held_out']:.2f}%, the mean of {summary['networks']} networks, each on the fold that "
        "stopped its training (a little optimistic)"
    )
    typer.echo(f"Model:   {summary['model']}")
    typer.echo(f"Predict: taskloss predict {shlex.quote(summary['model'])} NEW_DATA")
