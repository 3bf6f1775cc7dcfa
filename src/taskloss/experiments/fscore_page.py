"""The page of the F-score experiment."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev

from matplotlib.figure import Figure

from taskloss.experiments.curves import spell_settings, values_of
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import SETS
from taskloss.experiments.journal import Record
from taskloss.experiments.lp_paper import FSCORE, STANDS_FOR
from taskloss.experiments.lp_tables import COLOURS, difference_over_sets, methods_of
from taskloss.experiments.page import Claim, Page, add_legend, fill_page, make_figure, make_table
from taskloss.experiments.statistics import describe_mean

KEY = "test F"
TUNED = "test F, tuned threshold"
ALL_POSITIVE = 0.99
"""A network that calls at least this share of the test samples positive is in the local optimum."""


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    records = results["records"]
    return fill_page(
        experiment.name,
        _claims(results),
        {experiment.name: _draw(records)},
        source=experiment.source,
        table=_table_of_sets(records),
        tuned=_table_of_tuned(records),
        stuck=_table_of_starts(results["all positive"]),
        speed=_table_of_speed(results["speed"]),
        batch=results["batch"],
        **results["size"],
    )


def _paper(name: str, method: str) -> float | None:
    return FSCORE[STANDS_FOR.get(name, name)].get(method)


def _table_of_sets(records: Sequence[Record]) -> str:
    rows = []
    for method in methods_of(records):
        row = [method]
        for name in SETS:
            theirs = _paper(name, method)
            row += ["" if theirs is None else f"{theirs}", describe_mean(values_of(records, KEY, set=name, method=method))]
        rows.append([*row, spell_settings(records, "rate", method=method)])
    header = [f"{title}, {whose}" for title in SETS.values() for whose in ("paper", "ours")]
    return make_table(["method", *header, "learning rate"], rows)


def _table_of_tuned(records: Sequence[Record]) -> str:
    rows = []
    for method in methods_of(records):
        row = [describe_mean(values_of(records, TUNED, set=name, method=method)) for name in SETS]
        shares = [value for name in SETS for value in values_of(records, "positive", set=name, method=method)]
        stuck = sum(share >= ALL_POSITIVE for share in shares)
        rows.append([method, *row, f"{100 * min(shares):.0f} to {100 * max(shares):.0f}%", f"{stuck} of {len(shares)}"])
    return make_table(["method", *SETS.values(), "called positive at 0", "runs that call all positive"], rows)


def _table_of_starts(records: Sequence[Record]) -> str:
    rows = []
    for method in methods_of(records):
        shares = values_of(records, "positive", method=method)
        stuck = sum(share >= ALL_POSITIVE for share in shares)
        rows.append(
            [
                method,
                describe_mean(values_of(records, KEY, method=method)),
                describe_mean(values_of(records, TUNED, method=method)),
                describe_mean(shares),
                f"{stuck} of {len(shares)}",
            ]
        )
    return make_table(["method", "F", "F, tuned threshold", "called positive, %", "runs that call all positive"], rows)


def _table_of_speed(milliseconds: dict[str, float]) -> str:
    network = milliseconds["network"]
    methods = sorted((name for name in milliseconds if name != "network"), key=lambda name: milliseconds[name])
    rows = [
        [name, f"{milliseconds[name]:.3g}", f"{milliseconds[name] + network:.3g}", f"{1 + milliseconds[name] / network:.2f}"]
        for name in methods
    ]
    return make_table(["method", "loss, ms", "loss and network, ms", "to the network alone"], rows)


def _claims(results: Results) -> list[Claim]:
    records, claims = results["records"], []
    rivals = ("x-ent", "CVXPY-SCS", "AP-Perf")
    for rival in rivals:
        theirs = fmean(_paper(name, "LP") - _paper(name, rival) for name in SETS)  # type: ignore[operator]  # The paper has both.
        difference = difference_over_sets(records, KEY, "LP", rival, SETS)
        text = f"LP is above {rival} (paper {theirs:+.1f} on average)."
        claims.append(Claim.that_first_is_better(text, "LP", rival, difference, ", over data sets and seeds"))
    for key, where in ((KEY, ""), (TUNED, ", threshold tuned on validation")):
        for own in ("LP, margin 1/4", "direct"):
            difference = difference_over_sets(records, key, own, "x-ent", SETS)
            text = f"{own} is above x-ent (not in the paper)."
            claims.append(Claim.that_first_is_better(text, own, "x-ent", difference, f"{where}, over data sets and seeds"))
    difference = difference_over_sets(records, KEY, "LP, margin 1/4", "LP", SETS)
    text = "A margin of 1/4 helps the program (not in the paper)."
    claims.append(Claim.that_first_is_better(text, "LP, margin 1/4", "LP", difference, ", over data sets and seeds"))
    lp = [record for record in records if record["method"] in ("LP", "CVXPY-SCS", "AP-Perf")]
    stuck = [record for record in lp if record["positive"] >= ALL_POSITIVE]
    names = sorted({f"{record['method']} on {SETS[record['set']]}" for record in stuck})
    evidence = f"{len(stuck)} of {len(lp)} runs of LP, CVXPY-SCS and AP-Perf end there{': ' if names else ''}{', '.join(names)}"
    text = "Training on the F-score can end where everything is called positive, at 66.7%."
    claims.append(Claim(text, evidence, bool(stuck)))
    return claims


def _draw(records: Sequence[Record]) -> Figure:
    figure, axes = make_figure(2, 2)
    methods = methods_of(records)
    for ax, (name, title) in zip(axes, SETS.items(), strict=True):
        for index, method in enumerate(methods):
            values = [100 * value for value in values_of(records, KEY, set=name, method=method)]
            spread = stdev(values) if len(values) > 1 else 0.0
            ax.bar(index, fmean(values), 0.7, yerr=spread, color=COLOURS[index], capsize=2, label=method)
            theirs = _paper(name, method)
            if theirs is not None:
                ax.plot([index - 0.4, index + 0.4], [theirs] * 2, color="black", label=None if index else "paper")
        ax.axhline(200 / 3, color="#888888", linestyle=":", label="all positive")
        ax.set_xticks([])
        ax.set(ylabel="test F-score, %", title=title, ylim=(40, 85))
    add_legend(figure, axes[0])
    return figure
