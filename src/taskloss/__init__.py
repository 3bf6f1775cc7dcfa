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
from taskloss.tasks import Task, register
from taskloss.tasks.catalog import *  # noqa: F403  # The names of the tasks are listed there, once.

__version__ = "0.1.0"

_LAZY = ("boosting", "estimators", "lp", "thresholds")

__all__ = [
    "DirectLoss",
    "PerceptronLoss",
    "StructuredHingeLoss",
    "Task",
    "__version__",
    "functional",
    "metrics",
    "register",
    "retrieval",
    "solvers",
    "tasks",
]
__all__ += tasks.catalog.__all__
__all__ += _LAZY


def __getattr__(name: str) -> ModuleType:
    """Load the parts that cost time to import when they are first used."""
    if name in _LAZY:
        return importlib.import_module(f"taskloss.{name}")
    raise AttributeError(f"module 'taskloss' has no attribute {name!r}")
