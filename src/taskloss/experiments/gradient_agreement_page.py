"""The page of the experiment with gradients of the active set and of unrolled Newton steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taskloss.experiments.curves import difference_of, spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.journal import Record
from taskloss.experiments.page import Claim, Page, draw_band, fill_page, make_figure, make_table
from taskloss.experiments.statistics import Difference, describe_mean

PAPER_COSINE = 0.9991
"""Appendix A.4: the mean over 100 batches."""
ENOUGH = 0.999
BATCH = 64
EPSILON = 0.01
"""The paper's epsilon."""
SMALL = 1e-4
REFERENCE = "active set"
COLOURS = {
    "exact path": "#333333",
    "active set": "#0b6cb8",
    "unrolled": "#d1495b",
    "penalty": "#e08e0b",
    "burn-in": "#19a3a3",
    "rule": "#7a4fb0",
}
FLOOR = 1e-7
"""Smallest distance of a cosine from 1 that the figure shows; cosines are recorded with six digits."""
MOMENT_LINES = {"fresh": ":", "middle": "--", "end": "-"}
MARGIN_COLOURS = {0.0: "#d1495b", 0.25: "#0b6cb8"}


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    compared, chosen = results["agreement"], results["chosen"]
    tables = {
        "moments": _table_of_moments(compared),
        "epsilons": _table_of_epsilons(compared),
        "sizes": _table_of_sizes(compared),
        "rules": _table_of_rules(compared),
        "training": _table_of_training(chosen),
    }
    size = {key: value for key, value in results["size"].items() if key != "seeds"}
    figures = {experiment.name: _draw(compared, chosen)}
    return fill_page(experiment.name, _claims(compared, chosen), figures, source=experiment.source, **size, **tables)


# --- agreement ---------------------------------------------------------------------------------------------------------


def _at(records: Iterable[Record], epsilon: float, **where: Any) -> list[Record]:
    """Return what the records that agree with ``where`` say about one epsilon."""
    chosen = (record for record in records if all(record[name] == value for name, value in where.items()))
    return [part for record in chosen for part in record["by epsilon"] if part["epsilon"] == epsilon]


def _mean_and_least(parts: Iterable[Record], key: str) -> tuple[float, float] | None:
    """Return the mean of the means and the least of all cosines; None if no batch has a gradient."""
    pairs = [part[key] for part in parts if part[key] is not None]
    return (fmean(mean for mean, _ in pairs), min(least for _, least in pairs)) if pairs else None


def _cell(parts: Sequence[Record], key: str) -> str:
    pair = _mean_and_least(parts, key)
    return "" if pair is None else f"{pair[0]:.4f} ({pair[1]:.4f})"


def _share(parts: Sequence[Record]) -> str:
    return f"{100 * fmean(part['right constraints'] for part in parts):.0f}%"


def _distinct(records: Iterable[Record], key: str) -> list[Any]:
    """Return the values of a key, each once, in the order in which they appear."""
    return list(dict.fromkeys(record[key] for record in records))


def _comparison(parts: Sequence[Record]) -> list[str]:
    return [
        _cell(parts, "penalty to unrolled"),
        _cell(parts, "vertex to unrolled"),
        _cell(parts, "unrolled to exact"),
        _share(parts),
    ]


COMPARISON = ["penalty, unrolled", "exact active set, unrolled", "unrolled, closed form", "right constraints"]


def _table_of_moments(compared: Sequence[Record]) -> str:
    rows = [["paper", "", f"{PAPER_COSINE}", "", "", "", ""]]
    for margin in _distinct(compared, "margin"):
        for moment in _distinct(compared, "moment"):
            where = {"margin": margin, "moment": moment, "size": BATCH}
            zero = fmean(values_of(compared, "without gradient", **where))
            rows.append([f"{margin:g}", moment, *_comparison(_at(compared, EPSILON, **where)), f"{zero:.0f}"])
    return make_table(["margin", "network", *COMPARISON, "of 100 batches without gradient"], rows)


def _table_of_epsilons(compared: Sequence[Record]) -> str:
    rows = []
    for margin in _distinct(compared, "margin"):
        for epsilon in _epsilons(compared):
            rows.append([f"{margin:g}", f"{epsilon:g}", *_comparison(_at(compared, epsilon, margin=margin, size=BATCH))])
    return make_table(["margin", "epsilon", *COMPARISON], rows)


def _table_of_sizes(compared: Sequence[Record]) -> str:
    rows = []
    for margin in _distinct(compared, "margin"):
        for size in _distinct(compared, "size"):
            own = [record for record in compared if record["margin"] == margin and record["size"] == size]
            rows.append([f"{margin:g}", size, *_comparison(_at(own, EPSILON)), _cell(own, "vertex to exact")])
    return make_table(["margin", "batch", *COMPARISON, "exact active set, closed form"], rows)


def _epsilons(compared: Sequence[Record]) -> list[float]:
    return [part["epsilon"] for part in next(record for record in compared if record["size"] == BATCH)["by epsilon"]]


def _chosen_by_rule(compared: Sequence[Record], kind: str, **where: Any) -> Counter[float]:
    """Return how often the rule chose each epsilon."""
    choices = [record["rule"][kind] for record in compared if all(record.get(key) == value for key, value in where.items())]
    return Counter(epsilon for one in choices for epsilon in one)


def _table_of_rules(compared: Sequence[Record]) -> str:
    rows = []
    for margin in _distinct(compared, "margin"):
        for moment in _distinct(compared, "moment"):
            where = {"margin": margin, "moment": moment, "size": BATCH}
            spelled = (_spell(_chosen_by_rule(compared, kind, **where)) for kind in ("verified", "bare"))
            rows.append([f"{margin:g}", moment, *spelled])
    return make_table(["margin", "network", "verified", "bare rule"], rows)


def _spell(counts: Counter[float]) -> str:
    return ", ".join(f"{epsilon:g} ({count})" for epsilon, count in sorted(counts.items(), reverse=True))


# --- training ----------------------------------------------------------------------------------------------------------


def _table_of_training(chosen: Sequence[Record]) -> str:
    rows = []
    for margin in _distinct(chosen, "margin"):
        for method in COLOURS:
            where = {"margin": margin, "method": method}
            runs = [record for record in chosen if record["margin"] == margin and record["method"] == method]
            cosines = [value for record in runs for value in record["curves"] if value is not None]
            is_penalty = "epsilon" in runs[0]
            right = f"{100 * fmean(values_of(runs, 'optimal')):.0f}%" if is_penalty else ""
            rows.append(
                [
                    f"{margin:g}",
                    method,
                    describe_mean(values_of(chosen, "test F", **where)),
                    describe_mean(values_of(chosen, "test F, tuned", **where)),
                    "" if method == REFERENCE else _change(chosen, "test F", method, margin),
                    f"{fmean(cosines):.4f} ({min(cosines):.3f})",
                    right,
                    _range(values_of(runs, "epsilon")) if is_penalty else "",
                    _range(values_of(runs, "burn-in iterations")) if method == "burn-in" else "",
                    f"{fmean(values_of(chosen, 'milliseconds', **where)):.1f}",
                    spell_settings(runs, "rate"),
                ]
            )
    header = ["margin", "method", "test F", "test F, tuned threshold", "to the active set", "cosine to closed form"]
    return make_table([*header, "right constraints", "epsilon", "burn-in steps", "ms per step", "learning rate"], rows)


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3g}", f"{max(values):.3g}"
    return low if low == high else f"{low} to {high}"


def _change(chosen: Sequence[Record], key: str, method: str, margin: float) -> str:
    difference = difference_of(chosen, key, method, REFERENCE, margin=margin)
    return f"{100 * difference.mean:+.1f} +- {100 * difference.half_width:.1f}"


# --- verdict -----------------------------------------------------------------------------------------------------------


def _claims(compared: Sequence[Record], chosen: Sequence[Record]) -> list[Claim]:
    return [*_claims_of_agreement(compared), *_claims_of_training(chosen)]


def _claims_of_agreement(compared: Sequence[Record]) -> list[Claim]:
    claims = []
    parts = _at(compared, EPSILON, size=BATCH)
    means = [part["penalty to unrolled"][0] for part in parts if part["penalty to unrolled"] is not None]
    worst = _mean_and_least(parts, "penalty to unrolled")
    assert worst is not None
    evidence = (
        f"Paper {PAPER_COSINE}; ours {worst[0]:.5f}, {min(means):.5f} in the lowest of {len(means)} means over 100 batches of "
        f"{BATCH}, {worst[1]:.5f} in the worst batch (epsilon {EPSILON:g}, both of the penalty at the same epsilon)"
    )
    text = "The gradients of the active set and of the unrolled steps agree, with a mean cosine of 0.9991 (appendix A.4)."
    claims.append(Claim(text, evidence, min(means) >= ENOUGH))
    for epsilon in (EPSILON, SMALL):
        lowest = {}
        for margin in _distinct(compared, "margin"):
            own = _at(compared, epsilon, size=BATCH, margin=margin)
            lowest[margin] = [part["vertex to unrolled"][0] for part in own if part["vertex to unrolled"] is not None]
        listed = "; ".join(
            f"margin {margin:g}: {fmean(values):.4f}, lowest mean over 100 batches {min(values):.4f}"
            for margin, values in lowest.items()
        )
        text = f"At epsilon {epsilon:g} the unrolled gradient is that of the exact active set (mean cosine of at least {ENOUGH})."
        claims.append(Claim(text, listed[0].upper() + listed[1:], all(fmean(values) >= ENOUGH for values in lowest.values())))
    right = _mean_and_least(_at(compared, EPSILON) + _at(compared, SMALL), "unrolled to exact, right constraints")
    if right is not None:
        text = "Where the penalty names the right constraints, its gradients are exact."
        claims.append(Claim(text, f"Least cosine to the closed form: {right[1]:.5f}", right[1] >= ENOUGH))
    counts = {
        margin: _chosen_by_rule(compared, "verified", margin=margin, size=BATCH) for margin in _distinct(compared, "margin")
    }
    listed = "; ".join(f"margin {margin:g}: {_spell(count)}" for margin, count in counts.items())
    text = f"Mangasarian's rule chooses an epsilon of {EPSILON:g} (the paper's choice, for its AUC program)."
    holds = all(count.most_common(1)[0][0] == EPSILON for count in counts.values())
    claims.append(Claim(text, f"Number of batches that choose each: {listed}", holds))
    return claims


def _claims_of_training(chosen: Sequence[Record]) -> list[Claim]:
    claims = []
    for margin in _distinct(chosen, "margin"):
        for method, words in (
            ("burn-in", "The burn-in changes"),
            ("rule", "Mangasarian's rule changes"),
            ("penalty", f"A penalty at epsilon {EPSILON:g} changes"),
            ("unrolled", "Unrolling throughout changes"),
        ):
            differences = {
                key: difference_of(chosen, key, method, REFERENCE, margin=margin) for key in ("test F", "test F, tuned")
            }
            zero, tuned = differences.values()
            text = f"{words} the F-score of the trained network, margin {margin:g} (our question)."
            evidence = f"{method} against {REFERENCE}, threshold 0: {zero}; tuned threshold: {tuned}"
            claims.append(Claim(text[0].upper() + text[1:], evidence, _decides(zero)))
    return claims


def _decides(difference: Difference) -> bool | None:
    return True if difference.sign else None


# --- figure ------------------------------------------------------------------------------------------------------------


def _draw(compared: Sequence[Record], chosen: Sequence[Record]) -> Figure:
    figure, axes = make_figure(2, 2)
    _draw_agreement(axes[0], compared, "penalty to unrolled", "penalty's active set against unrolled")
    axes[0].axhline(1 - PAPER_COSINE, color="#333333", linewidth=1)
    axes[0].annotate("paper", (1e-5, 1 - PAPER_COSINE), xytext=(0, 3), textcoords="offset points", fontsize=9)
    _draw_agreement(axes[1], compared, "unrolled to exact", "unrolled against closed form")
    axes[1].legend(fontsize=8)
    _draw_course(axes[2], chosen)
    _draw_differences(axes[3], chosen)
    return figure


def _draw_agreement(ax: Axes, compared: Sequence[Record], key: str, title: str) -> None:
    epsilons = _epsilons(compared)
    for margin in _distinct(compared, "margin"):
        for moment in _distinct(compared, "moment"):
            pairs = [_mean_and_least(_at(compared, e, margin=margin, moment=moment, size=BATCH), key) for e in epsilons]
            distances = [math.nan if pair is None else max(FLOOR, 1.0 - pair[0]) for pair in pairs]
            style = {"color": MARGIN_COLOURS.get(margin), "linestyle": MOMENT_LINES.get(moment), "marker": "o", "markersize": 3}
            ax.plot(epsilons, distances, label=f"margin {margin:g}, {moment}", **style)  # type: ignore[arg-type]
    ax.set(xscale="log", yscale="log", xlabel="epsilon of the penalty", ylabel=f"1 - mean cosine (floor {FLOOR:g})", title=title)


def _draw_course(ax: Axes, chosen: Sequence[Record]) -> None:
    """Draw the cosine to the exact gradient along the training without margin, in means of a tenth of it."""
    for method, colour in COLOURS.items():
        runs = [record for record in chosen if record["method"] == method and record["margin"] == 0.0]
        steps = len(runs[0]["curves"])
        width = max(1, steps // 10)
        curves = []
        for record in runs:
            parts = [record["curves"][start : start + width] for start in range(0, steps, width)]
            curves.append([fmean([value for value in part if value is not None] or [1.0]) for part in parts])
        centres = [100 * (start + 0.5 * width) / steps for start in range(0, steps, width)]
        draw_band(ax, centres, curves, method, colour)
    ax.set(xlabel="share of the training, %", ylabel="cosine to the exact gradient", title="along the training, margin 0")
    ax.set_ylim(top=1.01)
    ax.legend(fontsize=8)


def _draw_differences(ax: Axes, chosen: Sequence[Record]) -> None:
    methods = [method for method in COLOURS if method != REFERENCE]
    for offset, margin in zip((-0.12, 0.12), _distinct(chosen, "margin"), strict=True):
        differences = [difference_of(chosen, "test F", method, REFERENCE, margin=margin) for method in methods]
        positions = [index + offset for index in range(len(methods))]
        means, widths = [100 * one.mean for one in differences], [100 * one.half_width for one in differences]
        ax.errorbar(
            positions, means, yerr=widths, fmt="o", capsize=3, color=MARGIN_COLOURS.get(margin), label=f"margin {margin:g}"
        )
    ax.axhline(0.0, color="#333333", linewidth=1)
    ax.set_xticks(range(len(methods)), methods)
    ax.set(ylabel="test F-score, difference in points", title="against the active set, threshold 0, 95% intervals")
    ax.legend(fontsize=8)
