"""Operating points: from scores to decisions, ``score > threshold``, with guarantees that hold for new data.

``guarantees`` has the thresholds that keep a requirement, and the proofs; ``best`` those that are best on the given samples.
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
