"""Tables, claims and figures that the pages of Meng et al. (2021) share: the paper's value beside ours, by data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from taskloss.experiments.curves import spell_settings, values_of
from taskloss.experiments.image_training import SETS
from taskloss.experiments.journal import Record
from taskloss.experiments.lp_paper import STANDS_FOR
from taskloss.experiments.page import add_legend, draw_band, make_figure, make_table
from taskloss.experiments.statistics import Difference, describe_mean, paired_difference

COLOURS = ("#333333", "#e08e0b", "#b5651d", "#0b6cb8", "#19a3a3", "#d1495b")
"""One per method."""

PaperTable = Mapping[str, Mapping[str, Sequence[float]]]
"""For each data set of the paper and each method, the values at the levels."""


def table_of_set(
    records: Sequence[Record],
    name: str,
    *,
    key: str,
    level: str,
    levels: Sequence[float],
    paper_levels: Sequence[float],
    paper: PaperTable,
) -> str:
    """Return the table of a data set: a row per method, and for each level the paper's value, if it has one, and ours.

    Args:
        records: the runs.
        name: the data set.
        key: the metric in a record.
        level: the name of the level in a record: the share of positives or of dropped samples.
        levels: those that we ran.
        paper_levels: those of the paper's columns.
        paper: the paper's table.
    """
    theirs = paper[STANDS_FOR.get(name, name)]
    header, rows = ["method"], []
    for value in levels:
        header += [f"{100 * value:.0f}%, paper", f"{100 * value:.0f}%, ours"]
    for method in methods_of(records):
        row = [method]
        for value in levels:
            row.append(f"{theirs[method][paper_levels.index(value)]}" if method in theirs else "")
            row.append(describe_mean(values_of(records, key, set=name, method=method, **{level: value})))
        rows.append([*row, spell_settings(records, "rate", set=name, method=method)])
    return make_table([*header, "learning rate"], rows)


def methods_of(records: Iterable[Record]) -> list[str]:
    """Return the methods in the order of their first records."""
    return list(dict.fromkeys(record["method"] for record in records))


def levels_of(records: Iterable[Record], name: str, level: str) -> list[float]:
    """Return the levels at which a data set was run, from high to low."""
    return sorted({record[level] for record in records if record["set"] == name}, reverse=True)


def difference_over_sets(
    records: Sequence[Record], key: str, first: str, second: str, names: Iterable[str], **where: Any
) -> Difference:
    """Return the difference of two methods; each pair is a data set and a seed."""
    values = [
        [value for name in names for value in values_of(records, key, set=name, method=method, **where)]
        for method in (first, second)
    ]
    return paired_difference(*values)


def paper_difference(paper: PaperTable, first: str, second: str, names: Iterable[str], column: int) -> float:
    """Return the paper's mean difference of two methods over data sets."""
    theirs = [paper[STANDS_FOR.get(name, name)] for name in names]
    return sum(table[first][column] - table[second][column] for table in theirs) / len(theirs)


def draw_sets(
    records: Sequence[Record],
    names: Sequence[str],
    *,
    key: str,
    level: str,
    paper_levels: Sequence[float],
    paper: PaperTable,
    label: str,
    ylabel: str,
) -> Figure:
    """Draw a metric over the levels, with one panel per data set and one line per method, dotted where it is the paper's."""
    figure, axes = make_figure(min(2, len(names)), -(-len(names) // 2))
    for ax, name in zip(axes, names, strict=True):
        levels = levels_of(records, name, level)
        for method, colour in zip(methods_of(records), COLOURS, strict=False):
            columns = [values_of(records, key, set=name, method=method, **{level: value}) for value in levels]
            curves = [[100 * value for value in curve] for curve in zip(*columns, strict=True)]
            draw_band(ax, [100 * value for value in levels], curves, method, colour, marker="o", markersize=4)
            theirs = paper[STANDS_FOR.get(name, name)].get(method)
            if theirs is not None:
                ax.plot([100 * value for value in paper_levels], theirs, ":", color=colour, alpha=0.8)
        ax.set(xlabel=label, ylabel=ylabel, title=SETS[name])
    add_legend(figure, axes[0])
    return figure
