"""The public names of the library; the package loads this module when the first of them is used."""

from taskloss import decisions, distributed, functional, metrics, retrieval, samplers, solvers, tasks
from taskloss.direct import DirectLoss, PerceptronLoss, StructuredHingeLoss
from taskloss.full_batch import full_batch_backward
from taskloss.score_memory import ScoreMemory
from taskloss.tasks import Task, register
from taskloss.tasks.catalog import *  # noqa: F403  # The names of the tasks are listed there, once.

__all__ = [
    "DirectLoss",
    "PerceptronLoss",
    "ScoreMemory",
    "StructuredHingeLoss",
    "Task",
    "decisions",
    "distributed",
    "full_batch_backward",
    "functional",
    "metrics",
    "register",
    "retrieval",
    "samplers",
    "solvers",
    "tasks",
]
__all__ += tasks.catalog.__all__
