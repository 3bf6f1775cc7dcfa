"""Thresholds that turn scores into decisions, ``score > threshold``.

``guarantees`` has those that keep a requirement on new data, with proofs; ``best`` has those that are best on the given samples.
This package may import ``metrics``, ``layout`` and ``_checks``.
"""

from taskloss.thresholds.best import for_cost, for_f_score, for_value
from taskloss.thresholds.guarantees import for_budget, for_fpr, for_precision, for_recall
from taskloss.thresholds.point import Counts, OperatingPoint

__all__ = [
    "Counts",
    "OperatingPoint",
    "for_budget",
    "for_cost",
    "for_f_score",
    "for_fpr",
    "for_precision",
    "for_recall",
    "for_value",
]
