"""Which columns a method uses: their effects on the test metric over the splits, with intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.report.records import Comparison
from taskloss.report.summary import resampled_t_test, summarize


class ColumnEffect(NamedTuple):
    """By how much the test metric of a method falls if a column is shuffled."""

    column: str
    mean: float
    """Mean over the splits."""
    interval: tuple[float, float]
    """Confidence interval of the mean, from the same corrected test as the differences of the methods."""
    falls: tuple[float, ...]
    """One value per split."""


def column_effects(comparison: Comparison, method: str) -> list[ColumnEffect]:
    """Return the effects of all columns, the largest first; an empty list if a run of the method has none."""
    runs = comparison.runs_of(method)
    by_split = [{effect.column: effect.fall for effect in run.effects} for run in runs]
    columns = [name for name in by_split[0] if all(name in effects for effects in by_split)]
    overlap = comparison.test_fraction / (1 - comparison.test_fraction)
    effects = []
    for name in columns:
        test = resampled_t_test(np.array([split[name] for split in by_split]), overlap)
        effects.append(ColumnEffect(name, test.mean, test.interval, test.differences))
    return sorted(effects, key=lambda effect: -effect.mean)


def explained_methods(comparison: Comparison) -> list[str]:
    """Return the methods whose effects are shown: the recommended one, and the contender if that is another."""
    return list(dict.fromkeys([summarize(comparison).recommended, comparison.contender]))
