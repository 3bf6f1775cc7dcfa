"""The HTML page of a report: a single file that needs no network and no other file."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskloss.report import figures
from taskloss.report.classes import LARGEST_MATRIX, as_share, class_rows
from taskloss.report.effects import column_effects, explained_methods
from taskloss.report.records import Comparison, Thresholds
from taskloss.report.rows import other_rows, split_rows, summary_rows
from taskloss.report.summary import CONFIDENCE, as_percent, as_points, summarize

EFFECTS_DRAWN = 12
"""Number of columns in the chart of feature effects; a table has the rest."""


def render_page(comparison: Comparison) -> str:
    """Return the whole page as text; everything that comes from the data is escaped."""
    loader = PackageLoader("taskloss", "report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(percent=as_percent, points=as_points, share=as_share)
    other_names, others = other_rows(comparison)
    first_runs = [comparison.runs_of(method)[0] for method in comparison.methods]
    explored = [(run, run.thresholds) for run in first_runs if run.thresholds is not None]
    return environment.get_template("template.html.j2").render(
        comparison=comparison,
        data=comparison.data,
        summary=summarize(comparison),
        confidence=f"{CONFIDENCE:.0%}",
        rows=summary_rows(comparison),
        split_rows=split_rows(comparison),
        other_names=other_names,
        other_rows=others,
        charts=_charts(comparison),
        histograms=[(run.method, figures.histogram(run.method, counts)) for run, counts in explored],
        explorer=[_explorer(run.method, counts) for run, counts in explored],
        class_tables=[(method, rows) for method in comparison.methods if (rows := class_rows(comparison, method))],
        with_matrix=len(comparison.data.classes) <= LARGEST_MATRIX,
        effects=_effects(comparison),
        repeats=_repeats(comparison),
        style=_asset("page.css"),
        script=_asset("page.js"),
    )


def _charts(comparison: Comparison) -> list[tuple[str, Markup, str]]:
    """Return heading, picture and caption of each chart that the records have values for."""
    charts = []
    lines = "Line: mean over the splits. Band: one standard deviation. Dotted: a random order."
    if all(run.curves is not None for run in comparison.runs):
        charts += [
            ("Precision and recall", figures.precision_recall(comparison), lines),
            ("ROC", figures.roc(comparison), lines),
        ]
    charts.append(
        ("Every split", figures.splits(comparison), f"Test {comparison.metric} of every run. All methods get the same splits.")
    )
    charts.append(
        (
            f"Differences to {comparison.baseline}",
            figures.differences(comparison),
            f"Large dot and bar: mean and {CONFIDENCE:.0%} interval. Small dots: single splits.",
        )
    )
    if any(len(run.steps) > 1 for run in comparison.runs):
        caption = (
            f"The exact {comparison.metric} on the samples that stop the training, higher than on new ones: a metric of "
            "decisions takes the thresholds that are best for them. Thin: one split. Thick: their mean."
        )
        charts.append(("Learning curves", figures.learning(comparison), caption))
    picture = figures.calibration(comparison)
    classes = len(comparison.data.classes)
    if picture is not None:
        caption = "Ten bins of test samples with the same expected number of positives, pooled over the splits. Dotted: perfect."
        if classes:
            caption = (
                "The probability of the predicted class, and how often it is right: ten bins of test samples with the same "
                "expected number of right predictions, pooled over the splits. Dotted: perfect."
            )
        charts.append(("Calibration", picture, caption))
    if classes:
        few = f" The {figures.MAX_CLASSES} classes with the lowest recall." if classes > figures.MAX_CLASSES else ""
        recall = "Share of the samples of a class that is predicted as such, over all splits." + few
        precision = "Share of the predictions of a class that is right, over all splits." + few
        charts.append(("Recall by class", figures.recall_by_class(comparison), recall))
        charts.append(("Precision by class", figures.precision_by_class(comparison), precision))
    return charts


def _effects(comparison: Comparison) -> list[dict[str, Any]]:
    """Return method, picture and rows of the table for each method whose feature effects are shown."""
    shown = []
    for method in explained_methods(comparison):
        columns = column_effects(comparison, method)
        if columns:
            series = list(comparison.methods).index(method)
            picture = figures.effects(method, series, columns[:EFFECTS_DRAWN])
            shown.append({"method": method, "picture": picture, "columns": columns})
    return shown


def _repeats(comparison: Comparison) -> str:
    """Return the number of shuffles of a column on each split, in words."""
    counts = sorted({effect.repeats for run in comparison.runs for effect in run.effects})
    if len(counts) > 1:
        return f"{counts[0]} to {counts[-1]} shuffles"
    return f"{counts[0]} shuffles" if counts and counts[0] > 1 else "one shuffle"


def _explorer(method: str, counts: Thresholds) -> dict[str, Any]:
    """Return what the script of the page needs to follow the threshold slider."""
    hits, alarms = np.array(counts.true_positives), np.array(counts.false_positives)
    if counts.chosen is not None:
        start = max(0, int((np.array(counts.values) > counts.chosen).sum()) - 1)
    else:
        start = int(np.argmax(2 * hits / (hits + alarms + counts.positives)))
    return {
        "method": method,
        "values": counts.values,
        "tp": counts.true_positives,
        "fp": counts.false_positives,
        "positives": counts.positives,
        "negatives": counts.negatives,
        "start": start,
        "chosen": counts.chosen is not None,
        "low": counts.edges[0],
        "high": counts.edges[-1],
    }


def _asset(name: str) -> Markup:
    """Return a style sheet or script of this package, to be put into the page unescaped."""
    return Markup(resources.files("taskloss.report").joinpath(name).read_text("utf-8"))
