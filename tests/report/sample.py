"""A simulated comparison with every part that the page shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taskloss.report import (
    Comparison,
    DataCard,
    Feature,
    FeatureEffect,
    Run,
    describe_classes,
    describe_curves,
    describe_thresholds,
    thin_curve,
)

METHODS = {
    "cross-entropy": "binary cross-entropy of the scores",
    "direct": "direct loss, positive update",
    "direct negative": "direct loss, negative update",
    "hinge": "structured hinge loss",
    "LightGBM": "gradient boosting of trees",
}
EFFECTS = {"branch": 0.002, "amount": 0.2, "a column whose name is much longer than the names of columns usually are": 0.05}


def simulated(*, splits: int = 4, shift: float = 0.3, **changes) -> Comparison:
    """Simulate scores of two normally distributed classes; ``shift`` is the advantage of the direct methods."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    runs = []
    for seed in range(splits):
        target = (np.arange(600) < 60).astype(np.int64)
        noise = rng.normal(size=600)
        for index, method in enumerate(METHODS):
            scores = noise + rng.normal(size=600) * 0.2 + target * (1.5 + shift * (index in (1, 2)) + 0.05 * index)
            curves = describe_curves(scores, target, 1 / (1 + np.exp(2.5 - scores)))
            steps, learning = thin_curve(
                list(0.8 - 0.5 * np.exp(-np.arange(1, 300 + 20 * seed) / 40) + 0.01 * rng.normal(size=299 + 20 * seed))
            )
            thresholds = describe_thresholds(scores, target, 1.7 if index % 2 else None) if seed == 0 else None
            value = float(np.mean(curves.precision))
            effects = tuple(
                FeatureEffect(name, round(size + 0.01 * draw, 6), 3)
                for (name, size), draw in zip(EFFECTS.items(), other.normal(size=len(EFFECTS)), strict=True)
            )
            runs.append(Run(method, seed, value, {"ROC AUC": 0.9}, steps, learning, 120, 1.5, curves, thresholds, effects))
    fields = {
        "metric": "average precision",
        "data": DataCard(
            name="claims.csv",
            source="claims.csv, 1,500 rows",
            samples=1500,
            positives=150,
            target="fraud",
            positive="yes",
            features=(
                Feature("amount", "number", 3, "0.5 to 120, median 17"),
                Feature("branch", "category", 0, "north, south, 3 others"),
            ),
            notices=("column 'id' is left out: it counts the rows",),
        ),
        "test_fraction": 0.4,
        "methods": dict(METHODS),
        "baseline": "cross-entropy",
        "contender": "direct",
        "trees": "LightGBM",
        "train_commands": {name: f"taskloss train claims.csv --target fraud --method '{name}'" for name in METHODS},
        "runs": tuple(runs),
        "settings": {"Split": "60% training, 40% test", "Network": "two hidden layers"},
        "command": "taskloss compare claims.csv --target fraud",
        "versions": {"taskloss": "9.9", "Python": "3.x"},
    }
    return Comparison(**{**fields, **changes})


def simulated_classes(classes: int, **changes) -> Comparison:
    """Simulate a comparison with several classes; class 0 is never predicted by the first method."""
    rng = np.random.default_rng(0)
    two = simulated(**changes)
    target = np.arange(600) % classes
    runs = []
    for run in two.runs:
        scores = 2 * np.eye(classes)[target] + rng.normal(size=(600, classes))
        if run.method == next(iter(METHODS)):
            scores[:, 0] -= 100
        probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        value = float((scores.argmax(1) == target).mean())
        results = describe_classes(scores, target, probabilities)
        runs.append(replace(run, value=value, others={"accuracy": value}, curves=None, thresholds=None, classes=results))
    sizes = {f"class {index}": 1500 // classes for index in range(classes)}
    card = replace(two.data, target="kind", positive="", positives=0, classes=sizes)
    return replace(two, metric="accuracy", data=card, runs=tuple(runs))
