"""Train on the metric you report.

>>> import torch, taskloss as tl
>>> criterion = tl.DirectLoss(tl.AveragePrecision())
>>> scores = torch.tensor([0.3, 0.9, 0.1], requires_grad=True)
>>> loss = criterion(scores, torch.tensor([1, 0, 0]))
>>> loss.item()
0.5
>>> loss.backward()
"""

import importlib
from types import ModuleType

from taskloss import functional, metrics, retrieval, solvers, tasks
from taskloss.direct import DirectLoss, PerceptronLoss, StructuredHingeLoss
from taskloss.tasks import (
    MCC,
    NDCG,
    ROCAUC,
    AveragePrecision,
    BalancedError,
    ConfusionMetric,
    Dice,
    FScore,
    GMean,
    GradedNDCG,
    Jaccard,
    MultiClass,
    PartialAUC,
    PrecisionAtK,
    PrecisionAtRecall,
    RecallAtFPR,
    RecallAtK,
    RecallAtPrecision,
    ReciprocalRank,
    SeparableMetric,
    Structured,
    Task,
    TopKError,
    ZeroOne,
    register,
)

__version__ = "0.1.0"

_LAZY = ("boosting", "estimators", "lp", "thresholds")

__all__ = [
    "MCC",
    "NDCG",
    "ROCAUC",
    "AveragePrecision",
    "BalancedError",
    "ConfusionMetric",
    "Dice",
    "DirectLoss",
    "FScore",
    "GMean",
    "GradedNDCG",
    "Jaccard",
    "MultiClass",
    "PartialAUC",
    "PerceptronLoss",
    "PrecisionAtK",
    "PrecisionAtRecall",
    "RecallAtFPR",
    "RecallAtK",
    "RecallAtPrecision",
    "ReciprocalRank",
    "SeparableMetric",
    "Structured",
    "StructuredHingeLoss",
    "Task",
    "TopKError",
    "ZeroOne",
    "__version__",
    "boosting",
    "estimators",
    "functional",
    "lp",
    "metrics",
    "register",
    "retrieval",
    "solvers",
    "tasks",
    "thresholds",
]


def __getattr__(name: str) -> ModuleType:
    """Parts that cost time to import are loaded when they are first used."""
    if name in _LAZY:
        return importlib.import_module(f"taskloss.{name}")
    raise AttributeError(f"module 'taskloss' has no attribute {name!r}")
