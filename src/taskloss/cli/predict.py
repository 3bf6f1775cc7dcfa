"""``taskloss predict``: scores, probabilities and decisions for new rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskloss.cli import options
from taskloss.cli.bundled import resolve_data
from taskloss.cli.errors import (
    BAD_DATA,
    CommandError,
    check_new,
    check_readable,
    exit_on_error,
    usage_error,
    warnings_as_messages,
)
from taskloss.cli.model_files import CHECKPOINT, FACTS
from taskloss.cli.output_file import as_text, check_output_name, write_table

if TYPE_CHECKING:
    import numpy as np

    from taskloss.cli.data import DataOptions
    from taskloss.cli.models import Model
    from taskloss.tables import Table
    from taskloss.thresholds import OperatingPoint

REQUIREMENT = "Requirement (with --held-out)"

ModelFolder = Annotated[Path, typer.Argument(help="Folder that taskloss train wrote.", show_default=False)]
Output = Annotated[
    Path | None,
    typer.Option(help="File for the predictions: .csv, .tsv, .parquet, or .csv.gz.", show_default="standard output, as CSV"),
]
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
    force: options.Force = False,
    threshold: Threshold = None,
    held_out: HeldOut = None,
    precision: Precision = None,
    recall: Recall = None,
    fpr: FalsePositiveRate = None,
    budget: Budget = None,
    confidence: Confidence = 0.95,
    missing: options.Missing = None,
    form: options.Format = None,
    encoding: options.Encoding = None,
    as_json: options.Json = False,
) -> None:
    """Predict the rows of a file with a trained model.

    The columns are row, the identifiers of the file, score, probability and prediction.
    For several classes they are prediction and one probability per class, for queries query and score.

    If no threshold can guarantee the requirement, the command says why and ends with exit code 1.
    """
    with exit_on_error():
        rates = {"precision": precision, "recall": recall, "fpr": fpr, "budget": budget}
        requirement = _requirement(rates, threshold, held_out, confidence)
        data = resolve_data(data)
        _check_files(model, data, held_out, output, force=force)
        # These take seconds to load: too long for --help and for the checks above.
        from taskloss.cli.data import DataOptions
        from taskloss.cli.models import Model

        loaded = Model.load(model)
        if requirement or threshold is not None:
            _refuse_thresholds(loaded)
        marks = (*loaded.facts.missing, *(missing or ()))
        point = None
        if requirement is not None and held_out is not None:
            point = _operating_point(loaded, DataOptions(held_out, missing=marks, encoding=encoding), *requirement, confidence)
        table = DataOptions(data, missing=marks, form=form, encoding=encoding).read()
        chosen = point.threshold if point else threshold or 0.0
        with warnings_as_messages():
            features = loaded.encoder.encode(table)
        columns, scores = _predictions(loaded, table, features, chosen)
        summary = {"rows": table.rows, **_evaluate(loaded, table, features, scores, chosen)}
        if not (loaded.facts.group or loaded.facts.classes):
            summary |= _describe_cut(loaded, scores, chosen, point, given=threshold is not None)
        _write(_identifiers(loaded, table, columns) | columns, summary, output, as_json=as_json)


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


def _check_files(model: Path, data: Path, held_out: Path | None, output: Path | None, *, force: bool) -> None:
    """Raise if a file is missing or would be overwritten, before anything slow is loaded."""
    if not (model / FACTS).exists():
        unfinished = (model / CHECKPOINT).exists()
        advice = "; its training is not finished: run taskloss train again with --resume" if unfinished else ""
        raise CommandError(f"{model} holds no model of taskloss train{advice}", BAD_DATA)
    check_readable(data, held_out)
    if output is not None:
        check_output_name(output)
        check_new(output, force=force)


def _refuse_thresholds(model: Model) -> None:
    """Raise if the model has no threshold."""
    if model.facts.group is not None:
        raise usage_error("a model of queries ranks and makes no decisions: leave out the threshold and the requirement")
    if model.facts.classes:
        raise usage_error(
            "a model of several classes predicts the most suitable class: leave out the threshold and the requirement, or train "
            "a model of one class against the others with taskloss train --positive LABEL"
        )


def _operating_point(model: Model, source: DataOptions, name: str, rate: float, confidence: float) -> OperatingPoint:
    """Choose the threshold that meets a requirement on a labelled file; raise if none does."""
    from taskloss import thresholds

    table = source.read()
    target, rows = _labels(model, table)
    with warnings_as_messages():
        features = model.encoder.encode(table)[rows]
    overlap = model.sketch.overlap(features, target)
    if overlap.is_clear:
        raise CommandError(
            f"--held-out {source.path} holds rows that the model was trained on: {overlap.matches:,} of {overlap.compared:,} "
            f"rows are among the training rows, about {overlap.expected:,.0f} would be by chance. A threshold chosen on them "
            "promises too much; give labelled rows that the model has not seen",
            BAD_DATA,
        )
    scores = model.estimator.decision_function(features)
    if name == "budget":
        point = thresholds.for_budget(scores, rate, target=target, confidence=confidence)
    else:
        choose = {"precision": thresholds.for_precision, "recall": thresholds.for_recall, "fpr": thresholds.for_fpr}[name]
        point = choose(scores, target, rate, confidence=confidence)
    if not point.found:
        raise CommandError(f"no threshold guarantees {point.requirement} at {confidence:.0%} confidence: {point.advice}")
    return point


def _labels(model: Model, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the target of a labelled file, 0/1 or class indices, and the indices of the rows that have one."""
    from taskloss.tables import TableError, class_indices

    facts = model.facts
    if facts.classes:
        return class_indices(table, facts.target, facts.classes)
    index, rows = class_indices(table, facts.target, (*facts.negative, facts.positive))
    target = (index == len(facts.negative)).astype(index.dtype)
    if len(rows) == 0 or target.min() == target.max():
        raise TableError(
            f"the target, column {facts.target!r} of {table.source}, has one class only; expected {facts.positive!r} and others"
        )
    return target, rows


def _predictions(model: Model, table: Table, features: np.ndarray, threshold: float) -> tuple[dict[str, Any], np.ndarray]:
    """Return the columns of the predictions by name, and the scores."""
    import numpy as np

    facts = model.facts
    if facts.group is not None:
        queries = table.categories(facts.group)
        names = np.array([*queries.labels, ""], dtype=object)[queries.codes]
        scores = model.estimator.predict(features)
        return {"query": names, "score": scores}, scores
    scores = model.estimator.decision_function(features)
    probabilities = model.estimator.predict_proba(features)
    if facts.classes:
        chosen = scores.argmax(1)
        columns = {"prediction": np.array(facts.classes, dtype=object)[chosen]}
        return columns | {
            f"probability {label}": column for label, column in zip(facts.classes, probabilities.T, strict=True)
        }, scores
    other = facts.negative[0] if len(facts.negative) == 1 else f"not {facts.positive}"
    decided = np.where(scores > threshold, facts.positive, other)
    return {"score": scores, "probability": probabilities[:, 1], "prediction": decided}, scores


def _identifiers(model: Model, table: Table, predicted: dict[str, Any]) -> dict[str, Any]:
    """Return the row numbers, and the columns of identifiers that the file has, by names that the predictions do not use."""
    columns: dict[str, Any] = {"row": range(1, table.rows + 1)}
    for name in model.facts.ids:
        if name in table.columns:
            taken = name in columns or name in predicted
            columns[f"{name} (identifier)" if taken else name] = table.cells(name)
    return columns


def _evaluate(model: Model, table: Table, features: np.ndarray, scores: np.ndarray, threshold: float) -> dict[str, Any]:
    """Return the metric on these rows, or the reason why it is undefined; nothing if the file has no target."""
    from taskloss.tables import TableError

    if model.facts.group is not None or model.facts.target not in table.columns:
        return {}
    try:
        target, rows = _labels(model, table)
    except TableError as error:
        return {"metric": model.facts.metric, "label": model.metric.label, "value": None, "reason": str(error)}
    shift = threshold if model.metric.judges_decisions else 0.0
    value = model.metric.value(scores[rows] - shift, target)
    overlap = model.sketch.overlap(features[rows], target)
    found = {"value": value, "training_rows": overlap.is_clear}
    return {"metric": model.facts.metric, "label": model.metric.label, **found}


def _describe_cut(
    model: Model, scores: np.ndarray, threshold: float, point: OperatingPoint | None, *, given: bool
) -> dict[str, Any]:
    """Return the entries of the summary about the threshold: its value, where it comes from, and how many rows it flags."""
    from taskloss.estimators.decisions import threshold_rule

    if point is not None:
        record = {
            "requirement": point.requirement,
            "threshold": point.threshold,
            "confidence": point.confidence,
            "bound": point.bound,
        }
        origin, extra = (
            f"{point.requirement} with {point.confidence:.0%} confidence (bound {point.bound:.4f})",
            {"operating_point": record},
        )
    else:
        rows = "training rows" if model.facts.held_out is None else "held-out training rows"
        best_for = threshold_rule(model.metric.task).words
        origin = "as --threshold says" if given else f"the best for {best_for} on {rows}, without a guarantee"
        extra = {}
    return {"threshold": threshold, "threshold_origin": origin, "flagged": int((scores > threshold).sum()), **extra}


def _write(columns: dict[str, Any], summary: dict[str, Any], output: Path | None, *, as_json: bool) -> None:
    """Write the predictions to ``output`` or standard output, and the summary to the error stream or into the JSON."""
    lists = {name: values.tolist() if hasattr(values, "tolist") else list(values) for name, values in columns.items()}
    if output is not None:
        write_table(lists, output)
        summary["output"] = str(output)
    elif not as_json:
        typer.echo(as_text(lists), nl=False)
    if as_json:
        typer.echo(json.dumps(summary if output is not None else {**summary, "predictions": lists}))
        return
    if summary.get("value") is not None:
        remark = " (too optimistic: the model was trained on many of them)" if summary["training_rows"] else ""
        typer.echo(f"{summary['label']} on these rows: {100 * summary['value']:.2f}%{remark}", err=True)
    elif "reason" in summary:
        typer.echo(f"{summary['label']} is not defined on these rows: {summary['reason']}", err=True)
    if "threshold" in summary:
        share = summary["flagged"] / summary["rows"]
        typer.echo(
            f"threshold {summary['threshold']:.6g}: {summary['threshold_origin']}; {summary['flagged']:,} of {summary['rows']:,} "
            f"rows ({share:.1%}) are above it",
            err=True,
        )
    if output is not None:
        typer.echo(f"{summary['rows']:,} rows: {output}", err=True)
