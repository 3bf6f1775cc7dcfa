"""The page of the AUC experiment."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.image_training import SETS
from taskloss.experiments.journal import Record
from taskloss.experiments.lp_paper import AUC, RATIOS
from taskloss.experiments.lp_tables import (
    difference_over_sets,
    draw_sets,
    levels_of,
    methods_of,
    paper_difference,
    table_of_set,
)
from taskloss.experiments.page import Claim, Page, fill_page, make_figure
from taskloss.experiments.statistics import paired_difference

KEY = "test AUC"
NAMES = tuple(SETS)


def make_page(experiment: Experiment, results: Results) -> Page:
    """Return the page."""
    records = results["records"]
    tables = "\n\n".join(
        f"### {title}\n\n"
        + table_of_set(
            records, name, key=KEY, level="ratio", levels=levels_of(records, name, "ratio"), paper_levels=RATIOS, paper=AUC
        )
        for name, title in SETS.items()
    )
    by_ratio = draw_sets(
        records,
        NAMES,
        key=KEY,
        level="ratio",
        paper_levels=RATIOS,
        paper=AUC,
        label="positives in training, %",
        ylabel="test AUC, %",
    )
    exact, program = (solver["losses"] for solver in results["solvers"])
    figures = {experiment.name: by_ratio, f"{experiment.name}-solvers": _draw_losses(exact, program)}
    return fill_page(
        experiment.name,
        _claims(records),
        figures,
        source=experiment.source,
        tables=tables,
        batch=results["batch"],
        same_steps=len(exact),
        same_difference=f"{max(1e-6, *(abs(a - b) for a, b in zip(exact, program, strict=True))):.1g}",
        same_seconds=" and ".join(f"{1000 * solver['seconds'] / len(exact):.0f}" for solver in results["solvers"]),
        **results["size"],
    )


def _claims(records: Sequence[Record]) -> list[Claim]:
    claims = []
    for ratio in (0.91, 0.5):
        column, where = RATIOS.index(ratio), f", {100 * ratio:.0f}% positives, over data sets and seeds"
        for rival in ("x-ent", "PPD-SG", "PPD-AdaGrad"):
            text = f"LP ramp is above {rival} (paper {paper_difference(AUC, 'LP ramp', rival, NAMES, column):+.1f})."
            difference = difference_over_sets(records, KEY, "LP ramp", rival, NAMES, ratio=ratio)
            claims.append(Claim.that_first_is_better(text, "LP ramp", rival, difference, where))
        for own in [method for method in methods_of(records) if method not in AUC["stl10"]]:
            text = f"{own} is above x-ent (not in the paper)."
            difference = difference_over_sets(records, KEY, own, "x-ent", NAMES, ratio=ratio)
            claims.append(Claim.that_first_is_better(text, own, "x-ent", difference, where))
        difference = difference_over_sets(records, KEY, "LP hinge", "LP ramp", NAMES, ratio=ratio)
        text = "LP hinge is above LP ramp (not in the paper)."
        claims.append(Claim.that_first_is_better(text, "LP hinge", "LP ramp", difference, where))
    for method in ("LP ramp", "LP hinge"):
        gains = [_gains(records, method, ratio) for ratio in (0.91, 0.5)]
        text = f"The gain of {method} over x-ent is larger at 91% than at 50% positives."
        claims.append(Claim.that_first_is_better(text, "gain at 91%", "gain at 50%", paired_difference(*gains)))
    return claims


def _gains(records: Sequence[Record], method: str, ratio: float) -> list[float]:
    """Return the gain over cross-entropy, for each data set and seed."""
    values = {(record["method"], record["set"], record["seed"]): record[KEY] for record in records if record["ratio"] == ratio}
    return [
        value - values["x-ent", name, seed] for (of_method, name, seed), value in sorted(values.items()) if of_method == method
    ]


def _draw_losses(exact: Sequence[float], program: Sequence[float]) -> Figure:
    figure, (ax,) = make_figure()
    steps = range(1, len(exact) + 1)
    ax.plot(steps, exact, color="#19a3a3", linewidth=3, label="by sorting")
    ax.plot(steps, program, "--", color="#333333", linewidth=1, label="by the linear program")
    ax.set(xlabel="step", ylabel="loss of the batch", title="Cat&Dog, 91% positives: the hinge, solved in two ways")
    ax.legend()
    return figure
