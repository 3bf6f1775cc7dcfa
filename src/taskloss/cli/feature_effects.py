"""Feature effects: how far the metric falls on test samples if the values of one column are shuffled (permutation importance).

The cost is bounded: a few thousand test samples of each split are scored again, a few times for each column. All methods see the
same samples and the same shuffles.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from taskloss.cli.splits import Subset, split_rows
from taskloss.report import FeatureEffect

MIN_ROWS, MAX_ROWS = 2_000, 10_000
"""Number of test samples: MIN_ROWS, or as many more as it takes to have MIN_PER_CLASS, but no more than MAX_ROWS."""
MIN_PER_CLASS = 100
MAX_REPEATS = 5
BUDGET = 100_000
"""Number of samples to score for all columns and repeats together; each column is shuffled at least once, on FEWEST_ROWS."""
FEWEST_ROWS = 500
MAX_COLUMNS = 1_000
"""With more columns than these, effects are not computed."""


def measure_effects(
    score: Callable[[np.ndarray], np.ndarray], value: Callable[[Subset, np.ndarray], float], test: Subset, seed: int
) -> tuple[FeatureEffect, ...]:
    """Return the effect of each column of the table on the metric of the test samples; nothing if there are too many columns.

    The features that were made from one column of the table (the indicators of its categories, for example) are shuffled
    together.

    Args:
        score: function from features to scores.
        value: the metric of samples and their scores.
        test: the test samples.
        seed: seed of the split.
    """
    names = list(dict.fromkeys(test.columns))
    if not 0 < len(names) <= MAX_COLUMNS:
        return ()
    rows, repeats = _sample(test, len(names), seed)
    samples = test.take(rows)
    if len(_class_sizes(samples)) < 2:
        return ()
    unchanged = value(samples, score(samples.features))
    rng = np.random.default_rng([seed, 1])
    effects = []
    for name in names:
        features = np.flatnonzero([name == column for column in test.columns])
        falls = []
        for _ in range(repeats):
            shuffled = samples.features.copy()
            shuffled[:, features] = samples.features[np.ix_(rng.permutation(len(shuffled)), features)]
            falls.append(unchanged - value(samples, score(shuffled)))
        effects.append(FeatureEffect(name, round(float(np.mean(falls)), 6), repeats))
    return tuple(effects)


def _sample(test: Subset, columns: int, seed: int) -> tuple[np.ndarray, int]:
    """Return the indices of the test samples to use, with every class in its share or in whole queries, and the repeats."""
    share = float(_class_sizes(test).min()) / len(test.target)
    wanted = min(max(MIN_ROWS, int(MIN_PER_CLASS / share)), MAX_ROWS, max(FEWEST_ROWS, BUDGET // columns))
    rows = np.arange(len(test.target))
    if wanted < 0.9 * len(rows):
        _, rows = split_rows(test.target, test.groups, wanted / len(rows), seed)
    return rows, int(np.clip(BUDGET // (columns * len(rows)), 1, MAX_REPEATS))


def _class_sizes(samples: Subset) -> np.ndarray:
    """Return the numbers of samples of the classes that occur; of queries, those of relevant and other samples."""
    sizes: np.ndarray = np.unique(samples.target if samples.groups is None else samples.target > 0, return_counts=True)[1]
    return sizes
