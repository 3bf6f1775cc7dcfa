"""Any metric of the confusion counts as a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss import _checks
from taskloss.kernels import user_functions
from taskloss.kernels.labeling import count_table
from taskloss.kernels.labeling.samples import Costs, costs_of
from taskloss.kernels.sort import NEGATIVE, POSITIVE
from taskloss.labelings import Labelings
from taskloss.tasks.confusion import weights_per_class, weights_per_positive, weights_per_sample
from taskloss.tasks.labeling import Labeling, LabelingTask, Weights
from taskloss.tasks.large_tables import say_slow

WEIGHTINGS = {"positives": weights_per_positive, "samples": weights_per_sample, "classes": weights_per_class}


@dataclass(frozen=True)
class ConfusionMetric(LabelingTask):
    r"""Any metric of the confusion counts, ``L = 1 - fn(tp, fp, fn, tn)``.

    Inference tries every number of true and false positives: exact for any function and both updates, in O(P N) time, threaded,
    and in memory that does not grow with P N. For more than some 30,000 positives and negatives each it refuses;
    :class:`FScore`, :class:`Jaccard`, :class:`MCC`, :class:`GMean`, :class:`BalancedError` and :class:`ZeroOne` have solvers of
    their own without a limit. A numpy function takes some 30 ns per pair of counts, so 10,000 samples take a second and 100,000
    half a minute; a function that ``numba.njit`` has compiled is about ten times faster.

    Args:
        fn: the metric, higher is better: takes four float64 arrays of one shape, which it must not change, and returns an array
            of that shape. It runs in several threads at once. To pickle the task, define it in a module. A function of
            ``numba.njit`` is called with four numbers instead, and a division by zero in it gives NaN or infinity.
        weighting: the weights in the joint score, by which epsilon gets its meaning. Choose what comes nearest to the change of
            the metric when one sample flips: ``"positives"`` (1/P for each sample), ``"samples"`` (1/n) or ``"classes"`` (1/(2P)
            for positives, 1/(2N) for negatives).
        zero_division: replaces NaN, where the metric is 0/0.

    Cohen's kappa:

    >>> import numpy as np, torch, taskloss as tl
    >>> def kappa(tp, fp, fn, tn):
    ...     n = tp + fp + fn + tn
    ...     chance = ((tp + fp) * (tp + fn) + (fn + tn) * (fp + tn)) / n**2
    ...     return ((tp + tn) / n - chance) / (1 - chance)
    >>> scores, target = torch.tensor([0.3, 0.2, -0.1, -0.4]), torch.tensor([1, 0, 1, 0])
    >>> tl.DirectLoss(ConfusionMetric(kappa))(scores, target).item()
    1.0

    An error rate with costs, a missed positive costing five times as much as a false alarm:

    >>> costs = ConfusionMetric(lambda tp, fp, fn, tn: 1 - (5 * fn + fp) / (5 * (tp + fn) + tn + fp), weighting="samples")
    >>> tl.DirectLoss(costs)(scores, target).item()
    0.5

    The specificity, provided that the sensitivity is at least 0.9:

    >>> at_sensitivity = ConfusionMetric(lambda tp, fp, fn, tn: np.where(tp >= 0.9 * (tp + fn), tn / (tn + fp), 0.0))
    >>> tl.DirectLoss(at_sensitivity)(scores + 0.15, target).item()
    0.5
    """

    fn: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Any]
    weighting: str = "positives"
    zero_division: float = 1.0

    def __post_init__(self) -> None:
        _checks.check_callable("fn", self.fn, "(tp, fp, fn, tn)")
        _checks.check_choice("weighting", self.weighting, tuple(WEIGHTINGS))
        _checks.check_zero_division(self.zero_division)

    def _evaluate(self, true_positives: np.ndarray, false_positives: np.ndarray, positives: Any, negatives: Any) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            counts = (true_positives, false_positives, positives - true_positives, negatives - false_positives)
            result = user_functions.of_arrays(self.fn)(*counts)
        values = _checks.as_metric_values(result, true_positives.shape)
        return np.where(np.isnan(values), self.zero_division, values)

    def _rows(self, first: int, last: int, positives: int, negatives: int) -> np.ndarray:
        """Return the metric of a compiled function for a range of true positives and all false ones."""
        values = np.empty((last - first, negatives + 1))
        user_functions.write_values(
            user_functions.of_numbers(self.fn), first, positives, negatives, float(self.zero_division), values
        )
        return _checks.as_metric_values(values, values.shape)

    def loss_of_counts(
        self, true_positives: np.ndarray, false_positives: np.ndarray, positives: np.ndarray, negatives: np.ndarray
    ) -> np.ndarray:
        given = (true_positives, false_positives, positives, negatives)
        return 1.0 - self._evaluate(*(counts.astype(np.float64) for counts in given))

    def sample_weights(self, labelings: Labelings) -> Weights:
        return WEIGHTINGS[self.weighting](labelings)

    def augment(self, labelings: Labelings, weights: Weights, weight: float) -> Labeling:
        tallies = labelings.tallies
        _checks.check_table_size(tallies.positives, tallies.negatives, count_table.CELL_LIMIT)
        above = (tallies.positives_above, tallies.negatives_above)
        at_zero = (tallies.positives_at, tallies.negatives_at)
        size = (tallies.positives, tallies.negatives)
        # By label: the costs of flipping samples above zero and below, and how many stand at zero.
        by_label = []
        for label, column in ((POSITIVE, 0), (NEGATIVE, 1)):
            unbounded = np.full(len(size[0]), np.inf)
            upper = costs_of(labelings.samples, label, 1, unbounded, above[column])
            lower = costs_of(labelings.samples, label, -1, unbounded, size[column] - above[column])
            by_label.append((upper, lower, at_zero[column]))
        compiled = user_functions.is_compiled(self.fn)
        rows = self._rows if compiled else count_table.rows_of_blocks(self._evaluate)
        if not compiled:
            say_slow(self, int(((tallies.positives + 1) * (tallies.negatives + 1)).sum()), "four numbers")
        thresholds = np.empty((4, len(size[0])))
        counts = np.empty((2, len(size[0])), np.int64)
        for r in range(len(size[0])):
            positives, negatives = (
                count_table.make_side(_list(upper, r), _list(lower, r), int(z[r])) for upper, lower, z in by_label
            )
            thresholds[:, r], counts[:, r] = count_table.search_table(
                rows, weight, positives, negatives, (float(weights[0][r]), float(weights[1][r]))
            )
        return Labeling(thresholds, *counts)


def _list(costs: Costs, labeling_number: int) -> np.ndarray:
    """Return the costs of one labeling."""
    return costs.values[costs.start[labeling_number] : costs.stop[labeling_number]]
