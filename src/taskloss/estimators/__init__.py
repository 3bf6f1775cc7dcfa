"""scikit-learn estimators, a classifier and a ranker, that train an ensemble of networks and trees on the metric you report.

This package may import scikit-learn, the losses and tasks, ``lp``, ``metrics``, ``thresholds``, ``training`` and ``tables``.
"""

from taskloss.estimators.classifier import TaskLossClassifier
from taskloss.estimators.methods import LOSSES_BY_METHOD
from taskloss.estimators.ranker import TaskLossRanker
from taskloss.estimators.scoring import SklearnMetric, scorer
from taskloss.estimators.settings import EstimatorSettings

__all__ = ["LOSSES_BY_METHOD", "EstimatorSettings", "SklearnMetric", "TaskLossClassifier", "TaskLossRanker", "scorer"]
