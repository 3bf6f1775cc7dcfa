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

from taskloss import functional, metrics, retrieval, tasks
from taskloss.direct import DirectLoss, PerceptronLoss, StructuredHingeLoss
from taskloss.tasks import (
    NDCG,
    ROCAUC,
    AveragePrecision,
    GradedNDCG,
    PartialAUC,
    PrecisionAtK,
    PrecisionAtRecall,
    RecallAtFPR,
    RecallAtK,
    RecallAtPrecision,
    ReciprocalRank,
    SeparableMetric,
    Task,
    register,
)

__version__ = "0.1.0"

__all__ = [
    "NDCG",
    "ROCAUC",
    "AveragePrecision",
    "DirectLoss",
    "GradedNDCG",
    "PartialAUC",
    "PerceptronLoss",
    "PrecisionAtK",
    "PrecisionAtRecall",
    "RecallAtFPR",
    "RecallAtK",
    "RecallAtPrecision",
    "ReciprocalRank",
    "SeparableMetric",
    "StructuredHingeLoss",
    "Task",
    "__version__",
    "functional",
    "lp",
    "metrics",
    "register",
    "retrieval",
    "tasks",
]


def __getattr__(name: str) -> ModuleType:
    """Parts that cost time to import are loaded when they are first used."""
    if name == "lp":
        return importlib.import_module("taskloss.lp")
    raise AttributeError(f"module 'taskloss' has no attribute {name!r}")
