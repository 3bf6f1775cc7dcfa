"""``taskloss predict``: scores, probabilities and decisions for new rows."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskloss.cli import options
from taskloss.cli.errors import CommandError, exit_on_error, usage_error

if TYPE_CHECKING:
    import numpy as np

    from taskloss.cli.data import DataOptions
    from taskloss.cli.models import Model
    from taskloss.tables import Table
    from taskloss.thresholds import OperatingPoint

REQUIREMENT = "Requirement (with --held-out)"

ModelFolder = Annotated[Path, typer.Argument(help="Folder that taskloss train wrote.", show_default=False)]
Output = Annotated[Path | None, typer.Option(help="CSV file for the predictions.", show_default="standard output")]
Threshold = Annotated[
    float | None, typer.Option(help="Predict positive above this score.", show_default="0, the threshold of the training")
]
HeldOut = Annotated[
    Path | None,
    typer.Option(
        help="Labelled file that the model has not seen; the threshold is chosen on it so that the requirement holds.",
        rich_help_panel=REQUIREMENT,
    ),
]
Precision = Annotated[float | None, typer.Option(help="Smallest precision.", rich_help_panel=REQUIREMENT)]
Recall = Annotated[float | None, typer.Option(help="Smallest recall.", rich_help_panel=REQUIREMENT)]
FalsePositiveRate = Annotated[float | None, typer.Option(help="Largest false positive rate.", rich_help_panel=REQUIREMENT)]
Budget = Annotated[float | None, typer.Option(help="Largest share of alerts.", rich_help_panel=REQUIREMENT)]
Confidence = Annotated[
    float, typer.Option(help="Confidence that the requirement holds for new data.", rich_help_panel=REQUIREMENT)
]


def predict(
    model: ModelFolder,
    data: options.Data,
    output: Output = None,
    threshold: Threshold = None,
    held_out: HeldOut = None,
    precision: Precision = None,
    recall: Recall = None,
    fpr: FalsePositiveRate = None,
    budget: Budget = None,
    confidence: Confidence = 0.95,
    form: options.Format = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Predict the rows of a file with a trained model, as CSV.

    The columns are row, score, probability and prediction; for queries they are row, query and score.

    If no threshold can guarantee the requirement, the command says why and ends with exit code 1.
    """
    with exit_on_error():
        rates = {"precision": precision, "recall": recall, "fpr": fpr, "budget": budget}
        requirement = _requirement(rates, threshold, held_out, confidence)
        # scikit-learn and pyarrow take a second to load: too long for --help.
        from taskloss.cli.data import DataOptions
        from taskloss.cli.models import Model

        loaded = Model.load(model)
        if loaded.facts.group is not None and (requirement or threshold is not None):
            raise usage_error("a model of queries ranks and makes no decisions: leave out the threshold and the requirement")
        point = None
        if requirement is not None and held_out is not None:
            point = _operating_point(
                loaded, DataOptions(held_out, missing=loaded.facts.missing, encoding=encoding), *requirement, confidence
            )
        table = DataOptions(data, missing=loaded.facts.missing, form=form, encoding=encoding).read()
        chosen = point.threshold if point else threshold or 0.0
        columns = _columns(loaded, table, chosen)
        summary = {"rows": table.rows, **_evaluate(loaded, table, columns["score"], chosen), **_describe(point)}
        _write(columns, summary, output, as_json=as_json)


def _requirement(
    rates: dict[str, float | None], threshold: float | None, held_out: Path | None, confidence: float
) -> tuple[str, float] | None:
    """Return name and value of the requirement, or None if there is none; raise if the options contradict each other."""
    given = [(name, value) for name, value in rates.items() if value is not None]
    if len(given) > 1 or (given and threshold is not None):
        raise usage_error("give one of --threshold, --precision, --recall, --fpr and --budget")
    if bool(given) != (held_out is not None):
        raise usage_error("--held-out and a requirement (--precision, --recall, --fpr or --budget) go together")
    for name, value in [*given, ("confidence", confidence)]:
        if not 0 < value < 1:
            raise usage_error(f"--{name} must be above 0 and below 1, got {value:g}")
    return given[0] if given else None


def _operating_point(model: Model, source: DataOptions, name: str, rate: float, confidence: float) -> OperatingPoint:
    """Choose the threshold that meets a requirement on a labelled file; raise if none does."""
    from taskloss import thresholds

    table = source.read()
    target, rows = _labels(model, table)
    scores = model.estimator.decision_function(model.encoder.encode(table))[rows]
    if name == "budget":
        point = thresholds.for_budget(scores, rate, target=target, confidence=confidence)
    else:
        choose = {"precision": thresholds.for_precision, "recall": thresholds.for_recall, "fpr": thresholds.for_fpr}[name]
        point = choose(scores, target, rate, confidence=confidence)
    if not point.found:
        raise CommandError(f"no threshold guarantees {point.requirement} at {confidence:.0%} confidence: {point.advice}")
    return point


def _labels(model: Model, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the target of a labelled file, 0/1, and the indices of the rows that have one."""
    from taskloss.tables import TableError, binary_target

    binary = binary_target(table, model.facts.target, model.facts.positive)
    unknown = set(binary.negative) - set(model.facts.negative)
    if unknown:
        raise TableError(
            f"column {model.facts.target!r} of {table.source} holds labels the model has not seen: {sorted(unknown)[:5]}"
        )
    return binary.labels, binary.rows


def _columns(model: Model, table: Table, threshold: float) -> dict[str, Any]:
    """Return the columns of the predictions by name."""
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
    """Return the metric on these rows, or nothing if the file has no target that the model knows."""
    from taskloss.tables import TableError

    if model.facts.group is not None or model.facts.target not in table.columns:
        return {}
    try:
        target, rows = _labels(model, table)
    except TableError:
        return {}
    shift = threshold if model.metric.judges_decisions else 0.0
    return {"metric": model.facts.metric, "value": model.metric.value(scores[rows] - shift, target)}


def _describe(point: OperatingPoint | None) -> dict[str, Any]:
    """Return the entry of the summary about the operating point, if there is one."""
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
    """Write the predictions to ``output`` or standard output, and the summary to the error stream or into the JSON."""
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
