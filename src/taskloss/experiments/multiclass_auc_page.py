"""The page of the experiment with the areas of several classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import SETS
from taskloss.experiments.journal import Record
from taskloss.experiments.lp_paper import DROP_RATES, MULTI_CLASS
from taskloss.experiments.lp_tables import (
    COLOURS,
    difference_over_sets,
    draw_sets,
    methods_of,
    paper_difference,
    table_of_set,
)
from taskloss.experiments.page import Claim, Page, draw_band, fill_page, make_figure, make_table
from taskloss.experiments.statistics import paired_difference

ROC_RATES = tuple(round(float(rate), 3) for rate in np.linspace(0, 1, 41))
"""False positive rates at which ROC curves are stored."""
LP = "LP one-vs-all"
"""The paper's method."""


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    records = results["records"]
    names = list(dict.fromkeys(record["set"] for record in records))
    tables = "\n\n".join(
        f"### {SETS[name]}, {metric}\n\n"
        + table_of_set(
            records, name, key=metric, level="drop rate", levels=DROP_RATES, paper_levels=DROP_RATES, paper=MULTI_CLASS[metric]
        )
        for name in names
        for metric in MULTI_CLASS
    )
    by_rate = draw_sets(
        records,
        names,
        key="AUC-mu",
        level="drop rate",
        paper_levels=DROP_RATES,
        paper=MULTI_CLASS["AUC-mu"],
        label="dropped samples of two classes, %",
        ylabel="test AUC-mu, %",
    )
    return fill_page(
        experiment.name,
        _claims(records, names),
        {experiment.name: by_rate, f"{experiment.name}-roc": _draw_roc(records)},
        source=experiment.source,
        tables=tables,
        cells=_table_of_cells(records, names),
        **results["size"],
    )


def _table_of_cells(records: Sequence[Record], names: Sequence[str]) -> str:
    """Return the gain of the paper's method over cross-entropy in each cell, ours and the paper's."""
    rows = []
    for metric, paper in MULTI_CLASS.items():
        for name in names:
            gains = []
            for column, rate in enumerate(DROP_RATES):
                ours = difference_over_sets(records, metric, LP, "x-ent", [name], **{"drop rate": rate})
                gains.append(f"{paper_difference(paper, LP, 'x-ent', [name], column):+.1f} / {100 * ours.mean:+.1f}")
            rows.append([metric, SETS[name], *gains])
    return make_table(["metric", "data set", *(f"{100 * rate:.0f}% dropped" for rate in DROP_RATES)], rows)


def _claims(records: Sequence[Record], names: Sequence[str]) -> list[Claim]:
    claims = []
    for metric, paper in MULTI_CLASS.items():
        for column, rate in enumerate(DROP_RATES):
            difference = difference_over_sets(records, metric, LP, "x-ent", names, **{"drop rate": rate})
            theirs = paper_difference(paper, LP, "x-ent", names, column)
            text = f"{metric}, {100 * rate:.0f}% dropped: {LP} is above x-ent (paper {theirs:+.1f})."
            claims.append(Claim.that_first_is_better(text, LP, "x-ent", difference, ", over data sets and seeds"))
        gains = [_gains(records, metric, names, rate) for rate in (max(DROP_RATES), min(DROP_RATES))]
        text = f"{metric}: the gain of {LP} is larger with imbalanced classes."
        claims.append(Claim.that_first_is_better(text, "gain at 90% dropped", "gain at 0%", paired_difference(*gains)))
        for own in methods_of(records)[2:]:
            text = f"{metric}, 90% dropped: {own} is above x-ent (not in the paper)."
            difference = difference_over_sets(records, metric, own, "x-ent", names, **{"drop rate": max(DROP_RATES)})
            claims.append(Claim.that_first_is_better(text, own, "x-ent", difference, ", over data sets and seeds"))
    return claims


def _gains(records: Sequence[Record], metric: str, names: Sequence[str], rate: float) -> list[float]:
    """Return the gain of the paper's method over cross-entropy, for each data set and seed."""
    values = {
        (record["method"], record["set"], record["seed"]): record[metric] for record in records if record["drop rate"] == rate
    }
    seeds = sorted({seed for _, _, seed in values})
    return [values[LP, name, seed] - values["x-ent", name, seed] for name in names for seed in seeds]


def _draw_roc(records: Sequence[Record]) -> Figure:
    """Draw the ROC curve of each class against the others, the mean over the seeds, as figure 1 of the paper."""
    drawn = [record for record in records if "roc" in record]
    figure, axes = make_figure(3)
    for group, ax in enumerate(axes):
        for method, colour in zip(methods_of(drawn), COLOURS, strict=False):
            curves = [record["roc"][group] for record in drawn if record["method"] == method]
            draw_band(ax, ROC_RATES, curves, method, colour)
        ax.plot([0, 1], [0, 1], ":", color="#aaaaaa")
        title = f"STL10, 90% dropped: class {group} is positive"
        ax.set(xlabel="false positive rate", ylabel="true positive rate", title=title)
        ax.legend(fontsize=8)
    return figure
