"""The training loop that everything in this library uses, with its budget, networks, batches and checkpoints.

This package may import ``metrics``, ``full_batch``, ``_storage`` and ``_checks``; it knows neither the losses nor the estimators.
"""

from taskloss.training.checkpoints import Checkpoint
from taskloss.training.data import TrainingData
from taskloss.training.loop import Criterion, Metric, Progress, TrainingResult, is_better, train
from taskloss.training.networks import HIDDEN, build_mlp, seeded
from taskloss.training.settings import TrainingSettings

__all__ = [
    "HIDDEN",
    "Checkpoint",
    "Criterion",
    "Metric",
    "Progress",
    "TrainingData",
    "TrainingResult",
    "TrainingSettings",
    "build_mlp",
    "is_better",
    "seeded",
    "train",
]
