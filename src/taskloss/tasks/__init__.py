"""The metrics as tasks: what an answer is, how good it is, and how to find the best one."""

from taskloss.tasks.auc import ROCAUC, PartialAUC, RecallAtFPR
from taskloss.tasks.confusion import ConfusionMetric
from taskloss.tasks.counts import MCC, BalancedError, Dice, FScore, GMean, Jaccard, ZeroOne
from taskloss.tasks.graded import GradedNDCG
from taskloss.tasks.multiclass import MultiClass, TopKError
from taskloss.tasks.ndcg import NDCG
from taskloss.tasks.precision import AveragePrecision, PrecisionAtRecall, RecallAtPrecision, ReciprocalRank
from taskloss.tasks.registry import as_task, register, registered
from taskloss.tasks.separable import SeparableMetric
from taskloss.tasks.structured import Structured
from taskloss.tasks.task import Call, Inference, Task
from taskloss.tasks.top_k import PrecisionAtK, RecallAtK

__all__ = [
    "MCC",
    "NDCG",
    "ROCAUC",
    "AveragePrecision",
    "BalancedError",
    "Call",
    "ConfusionMetric",
    "Dice",
    "FScore",
    "GMean",
    "GradedNDCG",
    "Inference",
    "Jaccard",
    "MultiClass",
    "PartialAUC",
    "PrecisionAtK",
    "PrecisionAtRecall",
    "RecallAtFPR",
    "RecallAtK",
    "RecallAtPrecision",
    "ReciprocalRank",
    "SeparableMetric",
    "Structured",
    "Task",
    "TopKError",
    "ZeroOne",
    "as_task",
    "register",
    "registered",
]
