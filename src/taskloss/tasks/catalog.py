"""The public tasks: the one list of them, from which ``taskloss.tasks`` and ``taskloss`` take their names."""

from taskloss.tasks.auc import ROCAUC, PartialAUC, RecallAtFPR
from taskloss.tasks.confusion import MCC, BalancedError, Dice, FScore, GMean, Jaccard, ZeroOne
from taskloss.tasks.confusion_metric import ConfusionMetric
from taskloss.tasks.graded import GradedNDCG
from taskloss.tasks.multiclass import MultiClass, TopKError
from taskloss.tasks.ndcg import NDCG
from taskloss.tasks.precision import AveragePrecision, PrecisionAtRecall, RecallAtPrecision, ReciprocalRank
from taskloss.tasks.priced_knapsack import PricedKnapsack
from taskloss.tasks.separable import SeparableMetric
from taskloss.tasks.structured import Structured
from taskloss.tasks.top_k import PrecisionAtK, RecallAtK

__all__ = [
    "MCC",
    "NDCG",
    "ROCAUC",
    "AveragePrecision",
    "BalancedError",
    "ConfusionMetric",
    "Dice",
    "FScore",
    "GMean",
    "GradedNDCG",
    "Jaccard",
    "MultiClass",
    "PartialAUC",
    "PrecisionAtK",
    "PrecisionAtRecall",
    "PricedKnapsack",
    "RecallAtFPR",
    "RecallAtK",
    "RecallAtPrecision",
    "ReciprocalRank",
    "SeparableMetric",
    "Structured",
    "TopKError",
    "ZeroOne",
]
