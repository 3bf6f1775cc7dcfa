"""The one training loop, and what it trains: the budget, networks, batches, checkpoints."""

from taskloss.training.checkpoints import Checkpoint
from taskloss.training.loop import Criterion, Metric, Progress, TrainingResult, train
from taskloss.training.networks import HIDDEN, build_mlp, seeded
from taskloss.training.samples import Samples
from taskloss.training.settings import TrainingSettings

__all__ = [
    "HIDDEN",
    "Checkpoint",
    "Criterion",
    "Metric",
    "Progress",
    "Samples",
    "TrainingResult",
    "TrainingSettings",
    "build_mlp",
    "seeded",
    "train",
]
