"""The page of the action experiment."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from taskloss.experiments.action_paper import METHODS, NOISE, OLDER, paper_value
from taskloss.experiments.curves import line_style
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.page import Claim, Page, draw_band, fill_page, make_figure, make_table
from taskloss.experiments.statistics import describe_mean, paired_difference
from taskloss.experiments.voc_action import CLASSES

PROTOCOLS = {"fixed": "after the last iteration", "early": "early stopping"}


def make_page(experiment: Experiment, results: Results, *, network: str) -> Page:
    """Return the page; ``network`` describes what was trained, and over which settings."""
    return fill_page(
        "action",
        _claims(results),
        {"action": _draw(results)},
        source=experiment.source,
        means=_table_of_means(results),
        classes="\n\n".join(f"### {100 * noise:.0f}% flipped\n\n{_table_of(results, noise)}" for noise in NOISE),
        older=_table_of_older(results),
        network=network,
    )


def _test_values(results: Results, protocol: str, noise: float, method: str, row: int | None = None) -> list[float]:
    """Return the test AP of a class by its row, or the mean over the classes for None; one value per seed."""
    records = [record for record in results[protocol] if record["noise"] == noise and record["method"] == method]
    tests = [record[protocol]["test"] for record in sorted(records, key=lambda record: record["seed"])]
    return [fmean(values) if row is None else values[row] for values in tests]


def _table_of_means(results: Results) -> str:
    rows = []
    for method in METHODS:
        rows.append([method, "paper", *(paper_value(None, noise, method) for noise in NOISE)])
        for protocol, title in PROTOCOLS.items():
            rows.append([method, title, *(describe_mean(_test_values(results, protocol, noise, method)) for noise in NOISE)])
    return make_table(["method", "", *(f"{100 * noise:.0f}%" for noise in NOISE)], rows)


def _table_of(results: Results, noise: float) -> str:
    header = ["class", *(f"{method}, {column}" for method in METHODS for column in ("paper", "last", "early"))]
    rows = []
    for row, name in enumerate(CLASSES):
        cells: list[str] = []
        for method in METHODS:
            ours = (_test_values(results, protocol, noise, method, row) for protocol in PROTOCOLS)
            cells += [f"{paper_value(row, noise, method)}", *(f"{100 * fmean(values):.1f}" for values in ours)]
        rows.append([name, *cells])
    return make_table(header, rows)


def _table_of_older(results: Results) -> str:
    names = {"logistic": "x-ent", "hinge": "hinge-AP", "ours": "pos-AP"}
    rows = []
    for name, method in names.items():
        ours = [fmean(_test_values(results, "fixed", 0.0, method, row)) for row in range(len(CLASSES))]
        rows.append([f"{name}, paper", *OLDER[name]])
        rows.append([f"{method}, ours", *(f"{100 * value:.1f}" for value in [*ours, fmean(ours)])])
    return make_table(["", *CLASSES, "mean"], rows)


def _claims(results: Results) -> list[Claim]:
    claims = []
    for protocol, title in PROTOCOLS.items():
        for noise in NOISE:
            for rival in ("x-ent", "hinge-AP"):
                difference = paired_difference(
                    _test_values(results, protocol, noise, "pos-AP"), _test_values(results, protocol, noise, rival)
                )
                paper = paper_value(None, noise, "pos-AP") - paper_value(None, noise, rival)
                text = f"{100 * noise:.0f}% flipped, {title}: pos-AP is ahead of {rival} (paper {paper:+.1f})."
                claims.append(Claim.that_first_is_better(text, "pos-AP", rival, difference))
    return claims


def _draw(results: Results) -> Figure:
    figure, axes = make_figure(3)
    shares = [100 * noise for noise in NOISE]
    for method in METHODS:
        axes[0].plot(shares, [paper_value(None, noise, method) for noise in NOISE], label=method, marker="o", **_style(method))
    axes[0].set_title("the paper (AlexNet, fine-tuned)")
    for ax, (protocol, title) in zip(axes[1:], PROTOCOLS.items(), strict=True):
        for method in METHODS:
            curves = zip(*(_test_values(results, protocol, noise, method) for noise in NOISE), strict=True)
            percent = [[100 * value for value in curve] for curve in curves]
            draw_band(ax, shares, percent, method, **line_style(method), marker="o")
        ax.set_title(f"ours, {title}")
    for ax in axes:
        ax.set(xlabel="flipped training labels, %", ylabel="mean AP of ten actions, clean test labels", ylim=(0, 80))
        ax.legend()
    return figure


def _style(method: str) -> dict[str, Any]:
    style = line_style(method)
    return {"color": style["colour"], "linestyle": style["linestyle"]}
