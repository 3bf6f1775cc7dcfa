"""scikit-learn estimators: one line from a table to a model that was trained on the metric you report."""

from taskloss.estimators.classifier import TaskLossClassifier
from taskloss.estimators.methods import METHODS
from taskloss.estimators.ranker import TaskLossRanker

__all__ = ["METHODS", "TaskLossClassifier", "TaskLossRanker"]
