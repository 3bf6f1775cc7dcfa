"""The metric of a command: its name and settings as text, its value for scores."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from taskloss.cli.errors import usage_error
from taskloss.direct import DirectLoss
from taskloss.tasks.registry import registered
from taskloss.tasks.task import Task

LABELS = {
    "average_precision": "average precision",
    "roc_auc": "ROC AUC",
    "partial_auc": "partial AUC",
    "f_score": "F-score",
    "mcc": "MCC (as (1 + MCC) / 2)",
    "zero_one": "accuracy",
    "balanced_error": "balanced accuracy",
    "ndcg": "NDCG",
    "graded_ndcg": "NDCG",
    "g_mean": "G-mean",
    "dice": "Dice",
    "jaccard": "Jaccard",
}
"""Names for readers, where the task's own name with spaces would not do."""

FOR_CLASSES = ("binary", "labels")
FOR_QUERIES = ("binary", "graded")
"""Kinds of targets (:attr:`Task.target_kind`) that a classifier and a ranker learn."""


@dataclass(frozen=True)
class Metric:
    """A registered task with settings."""

    name: str
    """As given: ``recall_at_fpr:fpr=0.01``."""
    task: Task

    @property
    def label(self) -> str:
        """For readers."""
        name, _, settings = self.name.partition(":")
        words = LABELS.get(name, name.replace("_", " "))
        return f"{words} ({settings.replace(',', ', ').replace('=', ' ')})" if settings else words

    @property
    def of_labels(self) -> bool:
        """Whether it judges decisions (score above a threshold), not an order."""
        return self.task.target_kind == "labels"

    def value(self, scores: np.ndarray, target: np.ndarray, groups: np.ndarray | None = None) -> float:
        """The metric, higher is better; decisions are ``score > 0``."""
        options = {} if groups is None else {"groups": torch.as_tensor(groups)}
        relevance = target if self.task.target_kind == "graded" else (target > 0).astype(np.int64)
        loss = DirectLoss(self.task)(torch.as_tensor(np.asarray(scores, np.float64)), torch.as_tensor(relevance), **options)
        return 1.0 - float(loss)


def parse_metric(text: str | None, *, queries: bool = False) -> Metric:
    """A metric from its name and settings, checked to suit the data.

    >>> parse_metric("precision_at_k:k=20").task
    PrecisionAtK(k=20, on_one_class='skip')
    """
    text = text if text is not None else "graded_ndcg" if queries else "average_precision"
    name, _, settings = text.partition(":")
    kinds = FOR_QUERIES if queries else FOR_CLASSES
    suitable = {known: cls for known, cls in registered().items() if cls.target_kind in kinds}
    if name not in suitable:
        what = "rankings of queries" if queries else "two classes"
        raise usage_error(f"--metric {name!r} is not known for {what}; expected one of {', '.join(suitable)}")
    try:
        return Metric(text, suitable[name](**_settings(settings)))
    except (TypeError, ValueError) as error:
        known = ", ".join(inspect.signature(suitable[name]).parameters)
        raise usage_error(f"--metric {text!r}: {error}. Its settings are {known}") from error


def _settings(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is no setting; expected name=value")
        settings[name.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
