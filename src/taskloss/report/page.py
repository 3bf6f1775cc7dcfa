"""The HTML page: one file that needs nothing else, neither a network nor a second file."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from taskloss.report import figures
from taskloss.report.records import Comparison, Run, Thresholds
from taskloss.report.rows import other_rows, split_rows, summary_rows
from taskloss.report.summary import CONFIDENCE, as_percent, as_points, summarize


def render_page(comparison: Comparison) -> str:
    """The whole page as text. Whatever comes from the data is escaped."""
    loader = PackageLoader("taskloss", "report")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(percent=as_percent, points=as_points)
    other_names, others = other_rows(comparison)
    shown = [run for run in _first_runs(comparison) if run.thresholds is not None]
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
        histograms=[(run.method, figures.histogram(run)) for run in shown],
        explorer=[_explorer(run.method, run.thresholds) for run in shown if run.thresholds is not None],
        style=_asset("page.css"),
        script=_asset("page.js"),
    )


def _first_runs(comparison: Comparison) -> list[Run]:
    return [comparison.runs_of(method)[0] for method in comparison.methods]


def _charts(comparison: Comparison) -> list[tuple[str, Markup, str]]:
    """Heading, picture and caption of each chart that the records have the figures for."""
    charts = []
    spread = "Line: mean over the splits. Band: one standard deviation."
    if all(run.curves is not None for run in comparison.runs):
        charts += [
            ("Precision and recall", figures.precision_recall(comparison), f"{spread} Dotted: a random order."),
            ("ROC", figures.roc(comparison), f"{spread} Dotted: a random order."),
        ]
    charts.append(
        ("Every split", figures.splits(comparison), f"Test {comparison.metric} of every run. All methods get the same splits.")
    )
    charts.append(
        (
            f"Differences to {comparison.baseline}",
            figures.differences(comparison),
            f"Large dot and bar: mean and {CONFIDENCE:.0%} interval. Small dots: the splits.",
        )
    )
    if any(len(run.steps) > 1 for run in comparison.runs):
        caption = f"The exact {comparison.metric} on the validation samples. Thin: one split. Thick: their mean."
        charts.append(("Learning curves", figures.learning(comparison), caption))
    picture = figures.calibration(comparison)
    if picture is not None:
        caption = (
            "Ten bins of test samples, each predicted to hold equally many positives; pooled over the splits. Dotted: perfect."
        )
        charts.append(("Calibration", picture, caption))
    return charts


def _explorer(method: str, counts: Thresholds) -> dict[str, Any]:
    """What the page's script needs to follow the slider."""
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
    """A file of ours that stands in the page as it is."""
    return Markup(resources.files("taskloss.report").joinpath(name).read_text("utf-8"))
