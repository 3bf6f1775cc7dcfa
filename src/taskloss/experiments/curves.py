"""Figures over seeds of the runs of :mod:`taskloss.experiments.learning`: values, chosen settings, curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes

from taskloss.experiments.journal import Record
from taskloss.experiments.page import draw_band
from taskloss.experiments.statistics import Difference, paired_difference

COLOURS = {"pos": "#0b6cb8", "neg": "#19a3a3", "hinge": "#d1495b", "per": "#e08e0b", "x": "#333333"}
"""By the first part of a method's name."""


def values_of(records: Iterable[Record], key: str, **where: Any) -> list[float]:
    """Return a value of the records that agree with ``where``, in the order of their seeds."""
    chosen = [record for record in records if all(record[name] == value for name, value in where.items())]
    return [record[key] for record in sorted(chosen, key=lambda record: record["seed"])]


def difference_of(records: Sequence[Record], key: str, first: str, second: str, **where: Any) -> Difference:
    """Return the difference of two methods, seed by seed."""
    return paired_difference(values_of(records, key, method=first, **where), values_of(records, key, method=second, **where))


def spell_settings(records: Iterable[Record], key: str, **where: Any) -> str:
    """Return the settings that were chosen, with the number of seeds that chose them if they differ.

    >>> spell_settings([{"seed": 0, "rate": 1.0}, {"seed": 1, "rate": 0.1}, {"seed": 2, "rate": 1.0}], "rate")
    '1 (2), 0.1 (1)'
    """
    counts = Counter(values_of(records, key, **where)).most_common()
    return f"{counts[0][0]:g}" if len(counts) == 1 else ", ".join(f"{value:g} ({count})" for value, count in counts)


def draw_curves(ax: Axes, records: Sequence[Record], key: str, methods: Iterable[str]) -> None:
    """Draw the curve of each method: the mean over the seeds, and one standard deviation. Runs that diverged are left out."""
    for method in methods:
        runs = [record for record in records if record["method"] == method and not record["diverged"]]
        if runs:
            length = min(len(record["iterations measured"]) for record in runs)
            curves = [record["curves"][key][:length] for record in runs]
            draw_band(ax, runs[0]["iterations measured"][:length], curves, method, **line_style(method))


def line_style(method: str) -> dict[str, str]:
    """Return the colour of a method, by its update, and its line: solid for AP, dashed for 0-1, dotted for cross-entropy."""
    line = "-" if method.endswith("AP") else "--" if method.endswith("01") else ":"
    return {"colour": COLOURS[method.partition("-")[0]], "linestyle": line}
