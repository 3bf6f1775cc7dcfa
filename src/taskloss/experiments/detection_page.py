"""The page of the detection experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, stdev

from matplotlib.figure import Figure

from taskloss.experiments.detection_paper import BATCHES, HIDDEN, METHODS, NOISE, PAPER_RATES, SUPPRESSION, TABLE_2
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Record
from taskloss.experiments.page import Claim, Page, fill_page, make_figure, make_table
from taskloss.experiments.statistics import describe_mean, paired_difference
from taskloss.experiments.voc_detection import CLASSES

ARMS = [(method, noise) for noise in NOISE for method in (*METHODS, "softmax") if method != "softmax" or not noise]
"""The rows of the tables: method and share of flipped labels."""
COLOURS = ("#b0b7bd", "#0b6cb8", "#7fb3dd")


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    return fill_page(
        "detection",
        _claims(results),
        {"detection": _draw(results)},
        source=experiment.source,
        means=_table_of_means(results),
        classes=_table_of_classes(results),
        paper=_table_of_paper_settings(results),
        hidden=HIDDEN[0],
        suppression=SUPPRESSION,
        **{key: f"{value:,}" for key, value in {**asdict(experiment), **results["boxes"]}.items()},
    )


def _test_values(records: Sequence[Record], method: str, noise: float, batch: int, row: int | None = None) -> list[float]:
    """Return the AP of a class by its row, or the mean over the classes for None; one value per seed."""
    chosen = [record for record in records if (record["method"], record["noise"], record["batch"]) == (method, noise, batch)]
    tests = [record["test"] for record in sorted(chosen, key=lambda record: record["seed"])]
    return [fmean(values) if row is None else values[row] for values in tests]


def _table_of_means(results: Results) -> str:
    rows = []
    for method, noise in ARMS:
        paper = TABLE_2[method, noise][-1] if (method, noise) in TABLE_2 else ""
        ours = (_test_values(results["records"], method, noise, batch) for batch in BATCHES)
        chosen = next(record for record in results["records"] if record["method"] == method and record["noise"] == noise)
        settings = f"{chosen['rate']:g}" + (f", epsilon {chosen['weight']:g}" if method == "pos-AP" else "")
        rows.append(
            [method, f"{100 * noise:.0f}%", paper, *(describe_mean(values) if values else "" for values in ours), settings]
        )
    return make_table(
        ["method", "flipped", "paper", *(f"ours, batches of {batch:,}" for batch in BATCHES), "learning rate"], rows
    )


def _table_of_classes(results: Results) -> str:
    header = ["class"]
    for method, noise in ARMS:
        header += [
            f"{method}, {100 * noise:.0f}%, {column}"
            for column in (("paper", "ours") if (method, noise) in TABLE_2 else ("ours",))
        ]
    rows = []
    for row, name in enumerate(CLASSES):
        cells: list[str] = []
        for method, noise in ARMS:
            cells += [str(TABLE_2[method, noise][row])] if (method, noise) in TABLE_2 else []
            cells.append(f"{100 * fmean(_test_values(results['records'], method, noise, BATCHES[0], row)):.1f}")
        rows.append([name, *cells])
    return make_table(header, rows)


def _table_of_paper_settings(results: Results) -> str:
    rows = []
    for method, rate in PAPER_RATES.items():
        for noise in NOISE:
            ours = _test_values(results["as in the paper"], method, noise, BATCHES[0])
            rows.append([method, f"{100 * noise:.0f}%", f"{rate:g}", TABLE_2[method, noise][-1], describe_mean(ours)])
    return make_table(["method", "flipped", "learning rate", "paper", "ours"], rows)


def _claims(results: Results) -> list[Claim]:
    records, claims = results["records"], []
    for batch in BATCHES:
        for noise in NOISE:
            for rival in ("x-ent", "hinge-AP"):
                difference = paired_difference(*(_test_values(records, method, noise, batch) for method in ("pos-AP", rival)))
                both = ("pos-AP", noise) in TABLE_2 and (rival, noise) in TABLE_2
                paper = f" (paper {TABLE_2['pos-AP', noise][-1] - TABLE_2[rival, noise][-1]:+.1f})" if both else ""
                text = f"{100 * noise:.0f}% flipped, batches of {batch:,}: pos-AP is ahead of {rival}{paper}."
                claims.append(Claim.that_first_is_better(text, "pos-AP", rival, difference))
    larger = paired_difference(_test_values(records, "pos-AP", 0.0, BATCHES[1]), _test_values(records, "pos-AP", 0.0, BATCHES[0]))
    text = "Larger batches give better results."
    claims.append(Claim.that_first_is_better(text, "pos-AP in batches of 2,048", "512", larger))
    joint = paired_difference(*(_test_values(records, method, 0.0, BATCHES[0]) for method in ("softmax", "x-ent")))
    text = "The joint softmax is better than one class against the rest (older version, +1.4)."
    claims.append(Claim.that_first_is_better(text, "softmax", "x-ent", joint))
    fallen = _test_values(results["as in the paper"], "hinge-AP", 0.2, BATCHES[0])
    text = "hinge-AP learns nothing with 20% of the labels flipped (0.0 in the paper)."
    claims.append(
        Claim(
            text,
            f"mean AP {describe_mean(fallen)} with the paper's settings, and "
            f"{describe_mean(_test_values(records, 'hinge-AP', 0.2, BATCHES[0]))} with tuned ones",
            max(fallen) < 0.01,
        )
    )
    return claims


def _draw(results: Results) -> Figure:
    figure, axes = make_figure(len(NOISE))
    for ax, noise in zip(axes, NOISE, strict=True):
        arms = [method for method, share in ARMS if share == noise]
        bars = {"paper": [[TABLE_2[method, noise][-1]] if (method, noise) in TABLE_2 else [] for method in arms]}
        for batch in BATCHES:
            values = [_test_values(results["records"], method, noise, batch) for method in arms]
            bars[f"batches of {batch:,}"] = [[100 * value for value in of_arm] for of_arm in values]
        for number, (label, of_arms) in enumerate(bars.items()):
            means = [fmean(values) if values else math.nan for values in of_arms]
            spreads = [stdev(values) if len(values) > 1 else 0.0 for values in of_arms]
            place = [index + 0.27 * (number - 1) for index in range(len(arms))]
            ax.bar(place, means, 0.25, yerr=spreads, label=label, color=COLOURS[number], capsize=2)
        ax.set_xticks(range(len(arms)), arms)
        ax.set(ylabel="mean AP of detections, 20 classes, %", title=f"{100 * noise:.0f}% of the labels flipped", ylim=(0, 60))
        ax.legend(fontsize=8)
    return figure
