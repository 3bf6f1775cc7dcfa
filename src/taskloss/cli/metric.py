"""The metric of a command: parsed from its name and settings, labelled for readers, evaluated on scores."""

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

CLASSIFICATION_KINDS = ("binary", "labels")
"""Target kinds (:attr:`Task.target_kind`) that a classifier can be trained on."""
QUERY_KINDS = ("binary", "graded")
"""Target kinds that a ranker of queries can be trained on."""
DEFAULT, DEFAULT_FOR_QUERIES = "average_precision", "graded_ndcg"


@dataclass(frozen=True)
class Metric:
    """A registered task with its settings."""

    text: str
    """Name and settings as on the command line: ``recall_at_fpr:fpr=0.01``."""
    task: Task

    @property
    def label(self) -> str:
        """The name that readers see, with the settings.

        >>> parse_metric("recall_at_fpr:fpr=0.01").label
        'recall at FPR (fpr 0.01)'
        """
        label, settings = self.task.label, self.text.partition(":")[2]
        return f"{label} ({settings.replace(',', ', ').replace('=', ' ')})" if settings else label

    @property
    def judges_decisions(self) -> bool:
        """Whether the metric judges decisions (scores above a threshold) and not an order."""
        return self.task.target_kind == "labels"

    def relevance(self, target: np.ndarray) -> np.ndarray:
        """Return the target as the metric reads it: the grades, or 0/1 where it knows no grades."""
        return target if self.task.target_kind == "graded" else (target > 0).astype(np.int64)

    def value(self, scores: np.ndarray, target: np.ndarray, groups: np.ndarray | None = None) -> float:
        """Return the metric, higher is better; a score above 0 counts as a positive decision."""
        options = {} if groups is None else {"groups": torch.as_tensor(groups)}
        relevance = torch.as_tensor(self.relevance(target))
        return 1.0 - float(DirectLoss(self.task)(torch.as_tensor(np.asarray(scores, np.float64)), relevance, **options))


def parse_metric(text: str | None, *, queries: bool = False) -> Metric:
    """Return the metric with this name and these settings; raise if it does not exist or does not suit the data.

    >>> parse_metric("precision_at_k:k=20").task
    PrecisionAtK(k=20, on_one_class='skip')
    """
    text = text if text is not None else DEFAULT_FOR_QUERIES if queries else DEFAULT
    name, _, settings = text.partition(":")
    kinds = QUERY_KINDS if queries else CLASSIFICATION_KINDS
    suitable = {known: cls for known, cls in registered().items() if cls.target_kind in kinds}
    if name not in suitable:
        data = "rankings of queries" if queries else "two classes"
        raise usage_error(f"--metric {name!r} is not known for {data}; expected one of {', '.join(suitable)}")
    try:
        return Metric(text, suitable[name](**_parse_settings(settings)))
    except (TypeError, ValueError) as error:
        known = ", ".join(inspect.signature(suitable[name]).parameters)
        raise usage_error(f"--metric {text!r}: {error}. Its settings are {known}") from error


def _parse_settings(text: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is no setting; expected name=value")
        settings[name.strip()] = _parse_value(value.strip())
    return settings


def _parse_value(text: str) -> int | float | str:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
