"""``taskloss predict``: scores, probabilities and decisions for new rows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskloss.cli import options
from taskloss.cli.errors import CommandError, messages, usage_error

if TYPE_CHECKING:
    import numpy as np

    from taskloss.cli.data import DataOptions
    from taskloss.cli.models import Model
    from taskloss.tables import Table
    from taskloss.thresholds import OperatingPoint

ModelFolder = Annotated[Path, typer.Argument(help="Folder that taskloss train wrote.", show_default=False)]
Output = Annotated[Path | None, typer.Option(help="CSV file for the predictions. (default: standard output)", show_default=False)]
Threshold = Annotated[
    float | None, typer.Option(help="Decide positive above this score. (default: the model's own, 0)", show_default=False)
]
HeldOut = Annotated[
    Path | None,
    typer.Option(
        help="Labelled file that the model has not seen, to choose the threshold for a requirement below.", show_default=False
    ),
]
Confidence = Annotated[float, typer.Option(help="That the requirement holds for new data.")]


def predict(
    model: ModelFolder,
    data: options.Data,
    output: Output = None,
    threshold: Threshold = None,
    held_out: HeldOut = None,
    precision: Annotated[float | None, typer.Option(help="Required precision, with --held-out.", show_default=False)] = None,
    recall: Annotated[float | None, typer.Option(help="Required recall, with --held-out.", show_default=False)] = None,
    fpr: Annotated[float | None, typer.Option(help="Highest false positive rate, with --held-out.", show_default=False)] = None,
    budget: Annotated[float | None, typer.Option(help="Highest share of alerts, with --held-out.", show_default=False)] = None,
    confidence: Confidence = 0.95,
    form: options.Form = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Predict the rows of a file with a trained model, as CSV.

    The columns are row, score, probability and prediction; for queries row, query and score.

    With --held-out and a requirement, the threshold is chosen on that file so that the requirement holds for new data with the
    given confidence; if no threshold can promise it, the command says so and ends with exit code 1.

    Exit codes: 0 done, 1 could not finish, 2 wrong option, 3 data that cannot be used, 130 interrupted.
    """
    with messages():
        wanted = {"precision": precision, "recall": recall, "fpr": fpr, "budget": budget}
        requirement = _requirement(wanted, threshold, held_out, confidence)
        # scikit-learn and pyarrow take a second to load: too long for --help.
        from taskloss.cli.data import DataOptions
        from taskloss.cli.models import Model

        loaded = Model.load(model)
        if loaded.facts.group is not None and (requirement or threshold is not None):
            raise usage_error("a model of queries ranks, it decides nothing: leave out the threshold and the requirement")
        point = None
        if requirement is not None and held_out is not None:
            point = _operating_point(
                loaded, DataOptions(held_out, missing=loaded.facts.missing, encoding=encoding), *requirement, confidence
            )
        table = DataOptions(data, missing=loaded.facts.missing, form=form, encoding=encoding).read()
        cut = point.threshold if point else threshold or 0.0
        columns = _columns(loaded, table, cut)
        summary = {"rows": table.rows, **_evaluate(loaded, table, columns["score"], cut), **_describe(point)}
        _write(columns, summary, output, as_json=as_json)


def _requirement(
    wanted: dict[str, float | None], threshold: float | None, held_out: Path | None, confidence: float
) -> tuple[str, float] | None:
    """The one requirement that was given, if any."""
    given = [(name, value) for name, value in wanted.items() if value is not None]
    if len(given) > 1 or (given and threshold is not None):
        raise usage_error("give one of --threshold, --precision, --recall, --fpr and --budget")
    if bool(given) != (held_out is not None):
        raise usage_error("--held-out and a requirement (--precision, --recall, --fpr or --budget) go together")
    for name, value in [*given, ("confidence", confidence)]:
        if not 0 < value < 1:
            raise usage_error(f"--{name} must be above 0 and below 1, got {value:g}")
    return given[0] if given else None


def _operating_point(model: Model, source: DataOptions, name: str, share: float, confidence: float) -> OperatingPoint:
    from taskloss import thresholds

    table = source.read()
    target, rows = _labels(model, table)
    scores = model.estimator.decision_function(model.encoder.encode(table))[rows]
    if name == "budget":
        point = thresholds.for_budget(scores, share, target=target, confidence=confidence)
    else:
        choose = {"precision": thresholds.for_precision, "recall": thresholds.for_recall, "fpr": thresholds.for_fpr}[name]
        point = choose(scores, target, share, confidence=confidence)
    if not point.found:
        raise CommandError(f"no threshold promises {point.requirement} at {confidence:.0%} confidence: {point.advice}")
    return point


def _labels(model: Model, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """The target of a labelled file, 0/1, and the rows that have one."""
    from taskloss.tables import TableError, binary_target

    binary = binary_target(table, model.facts.target, model.facts.positive)
    unknown = set(binary.negative) - set(model.facts.negative)
    if unknown:
        raise TableError(
            f"column {model.facts.target!r} of {table.source} holds labels the model has not seen: {sorted(unknown)[:5]}"
        )
    return binary.labels, binary.rows


def _columns(model: Model, table: Table, threshold: float) -> dict[str, Any]:
    """The columns of the result."""
    import numpy as np

    features = model.encoder.encode(table)
    rows = np.arange(1, table.rows + 1)
    if model.facts.group is not None:
        queries = table.categories(model.facts.group)
        names = np.array([*queries.labels, ""], dtype=object)[queries.codes]
        return {"row": rows, "query": names, "score": model.estimator.predict(features)}
    scores = model.estimator.decision_function(features)
    other = model.facts.negative[0] if len(model.facts.negative) == 1 else f"not {model.facts.positive}"
    decided = np.where(scores > threshold, model.facts.positive, other)
    return {"row": rows, "score": scores, "probability": model.estimator.predict_proba(features)[:, 1], "prediction": decided}


def _evaluate(model: Model, table: Table, scores: np.ndarray, threshold: float) -> dict[str, Any]:
    """The metric, if the file has the target."""
    from taskloss.tables import TableError

    if model.facts.group is not None or model.facts.target not in table.columns:
        return {}
    try:
        target, rows = _labels(model, table)
    except TableError:
        return {}
    shift = threshold if model.metric.of_labels else 0.0
    return {"metric": model.facts.metric, "value": model.metric.value(scores[rows] - shift, target)}


def _describe(point: OperatingPoint | None) -> dict[str, Any]:
    if point is None:
        return {}
    return {
        "operating_point": {
            "requirement": point.requirement,
            "threshold": point.threshold,
            "confidence": point.confidence,
            "bound": point.bound,
        }
    }


def _write(columns: dict[str, Any], summary: dict[str, Any], output: Path | None, *, as_json: bool) -> None:
    from taskloss._storage import replace_file

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    lists = [values.tolist() for values in columns.values()]
    writer.writerows(zip(*lists, strict=True))
    if output is not None:
        replace_file(output, text.getvalue().encode())
        summary["output"] = str(output)
    elif not as_json:
        typer.echo(text.getvalue(), nl=False)
    if as_json:
        records = {} if output is not None else {"predictions": dict(zip(columns, lists, strict=True))}
        typer.echo(json.dumps({**summary, **records}))
        return
    if "value" in summary:
        typer.echo(f"{summary['metric']} on these rows: {100 * summary['value']:.2f}%", err=True)
    if "operating_point" in summary:
        chosen = summary["operating_point"]
        typer.echo(
            f"threshold {chosen['threshold']:.6g}: {chosen['requirement']} with {chosen['confidence']:.0%} confidence "
            f"(bound {chosen['bound']:.4f})",
            err=True,
        )
    if output is not None:
        typer.echo(f"{summary['rows']:,} rows: {output}", err=True)
