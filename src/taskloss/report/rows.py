"""The rows of the result tables as text, for the page and the terminal."""

from __future__ import annotations

from typing import NamedTuple

from taskloss.report.records import Comparison
from taskloss.report.summary import as_p, as_percent, as_points, summarize


class Row(NamedTuple):
    """The results of a method over all the splits."""

    method: str
    mean: str
    deviation: str
    """Standard deviation over the splits."""
    difference: str
    """Mean difference to the baseline, in percentage points."""
    interval: str
    p_value: str
    ahead: str
    """Number of splits on which the method is ahead of the baseline."""


def summary_rows(comparison: Comparison) -> list[Row]:
    """Return one row per method; the baseline is not compared with itself and has empty cells."""
    summary = summarize(comparison)
    rows = []
    for method in comparison.methods:
        cells = ("", "", "", "")
        if method in summary.contrasts:
            contrast = summary.contrasts[method]
            low, high = contrast.interval
            cells = (
                as_points(contrast.mean),
                f"{as_points(low)} to {as_points(high)}",
                as_p(contrast.adjusted_p),
                f"{contrast.wins} of {len(contrast.differences)}",
            )
        rows.append(Row(method, as_percent(summary.means[method]), as_percent(summary.spreads[method]), *cells))
    return rows


def split_rows(comparison: Comparison) -> list[list[str]]:
    """Return one row per split: its number and the metric of each method."""
    columns = [[as_percent(run.value) for run in comparison.runs_of(method)] for method in comparison.methods]
    return [[str(split), *cells] for split, cells in enumerate(zip(*columns, strict=True), 1)]


def other_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Return the names of the other metrics, and one row per method: their means and the mean seconds per run."""
    names = list(dict.fromkeys(name for run in comparison.runs for name in run.others))
    rows = []
    for method in comparison.methods:
        runs = comparison.runs_of(method)
        means = [sum(run.others[name] for run in runs) / len(runs) for name in names]
        seconds = sum(run.seconds for run in runs) / len(runs)
        rows.append([method, *map(as_percent, means), f"{seconds:.1f}"])
    return names, rows
