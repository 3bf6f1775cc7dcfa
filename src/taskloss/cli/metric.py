"""The metric of a command: parsed from its name and settings, labelled for readers, evaluated on scores."""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from taskloss.cli.errors import usage_error
from taskloss.cli.tasks import use_of
from taskloss.direct import DirectLoss
from taskloss.tasks import MultiClass, TopKError
from taskloss.tasks.registry import registered
from taskloss.tasks.task import Task

CLASSIFICATION_KINDS = ("binary", "labels")
"""Target kinds (:attr:`Task.target_kind`) that a classifier can be trained on."""
SEVERAL_CLASSES_KINDS = ("binary", "labels", "class")
"""Target kinds that a classifier of several classes can be trained on; the first two are means over the classes."""
QUERY_KINDS = ("binary", "graded")
"""Target kinds that a ranker of queries can be trained on."""
ACCURACY_OF_TWO, ACCURACY = "zero_one", "multi_class"
"""The accuracy of two classes, and of several."""
USUAL_NAMES = {
    "accuracy": "zero_one",
    "acc": "zero_one",
    "error": "zero_one",
    "auc": "roc_auc",
    "auroc": "roc_auc",
    "rocauc": "roc_auc",
    "ap": "average_precision",
    "map": "average_precision",
    "aucpr": "average_precision",
    "auprc": "average_precision",
    "prauc": "average_precision",
    "f1": "f_score",
    "f1score": "f_score",
    "fbeta": "f_score",
    "f2": "f_score:beta=2",
    "iou": "jaccard",
    "matthews": "mcc",
    "balancedaccuracy": "balanced_error",
    "bac": "balanced_error",
    "gmean": "g_mean",
    "mrr": "reciprocal_rank",
    "precision": "precision_at_recall",
    "recall": "recall_at_precision",
    "sensitivity": "recall_at_fpr",
    "tpr": "recall_at_fpr",
    "topk": "top_k_error",
    "macrof1": "f_score",
    "balancedacc": "balanced_error",
    "zeroone": "zero_one",
    "multiclass": "zero_one",
}
"""Names that other libraries and people use, in small letters and without marks."""
DEFAULT, DEFAULT_FOR_QUERIES = "average_precision", "graded_ndcg"


@dataclass(frozen=True)
class Metric:
    """A registered task with its settings."""

    text: str
    """Name and settings as on the command line: ``recall_at_fpr:fpr=0.01``."""
    task: Task
    classes: int = 2
    """Number of classes; with more than two, a metric of two classes is its mean over the classes, each against the rest."""

    @property
    def label(self) -> str:
        """The name that readers see, with the settings.

        >>> parse_metric("recall_at_fpr:fpr=0.01").label
        'recall at FPR (fpr 0.01)'
        """
        label, settings = self.task.label, self.text.partition(":")[2]
        if isinstance(self.task, TopKError):
            return f"top-{self.task.k} accuracy"
        if isinstance(self.task, MultiClass) and self.task.cost is None:
            label = "accuracy"
        elif self.classes > 2 and self.task.target_kind != "class":
            label = f"macro {label}"
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
        if self.classes > 2:
            return self._value_of_classes(np.asarray(scores, np.float64), target)
        options = {} if groups is None else {"groups": torch.as_tensor(groups)}
        relevance = torch.as_tensor(self.relevance(target))
        return 1.0 - float(DirectLoss(self.task)(torch.as_tensor(np.asarray(scores, np.float64)), relevance, **options))

    def _value_of_classes(self, scores: np.ndarray, target: np.ndarray) -> float:
        """Return the metric of scores ``(n, K)`` and class indices ``(n,)``; the class with the highest score is predicted."""
        truth = torch.as_tensor(target)
        if self.task.target_kind != "class":
            truth = torch.nn.functional.one_hot(truth, self.classes)
        if self.judges_decisions:
            scores = 2.0 * np.eye(self.classes)[scores.argmax(1)] - 1.0
        return 1.0 - float(DirectLoss(self.task)(torch.as_tensor(scores), truth))


def parse_metric(text: str | None, *, queries: bool = False, classes: int = 2) -> Metric:
    """Return the metric with this name and these settings; raise if it does not exist or does not suit the data.

    >>> parse_metric("precision_at_k:k=20").task
    PrecisionAtK(k=20, on_one_class='skip')
    """
    text = text if text is not None else DEFAULT_FOR_QUERIES if queries else DEFAULT
    name, _, settings = text.partition(":")
    kinds = QUERY_KINDS if queries else SEVERAL_CLASSES_KINDS if classes > 2 else CLASSIFICATION_KINDS
    suitable = {known: cls for known, cls in registered().items() if cls.target_kind in kinds}
    if classes > 2:
        # Each class against the rest, nearly all samples are right: nobody means that by the accuracy.
        del suitable[ACCURACY_OF_TWO]
    if name not in suitable:
        data = "rankings of queries" if queries else "several classes" if classes > 2 else "two classes"
        use = "two classes" if name == ACCURACY_OF_TWO else use_of(registered()[name]) if name in registered() else ""
        problem = f"is for {use}, not for {data}" if use else f"is not known for {data}"
        raise usage_error(f"--metric {name!r} {problem}{_suggest(name, list(suitable), classes)}")
    try:
        task = suitable[name](**_parse_settings(settings))
        if isinstance(task, TopKError) and task.k >= classes:
            raise ValueError(f"k is {task.k}, and there are {classes} classes; expected k below {classes}")
        return Metric(text, task, classes)
    except (TypeError, ValueError) as error:
        known = ", ".join(inspect.signature(suitable[name]).parameters)
        raise usage_error(f"--metric {text!r}: {error}. Its settings are {known}") from error


def _suggest(name: str, suitable: list[str], classes: int) -> str:
    """Return the end of the message about an unknown metric: the name that was probably meant, or all of them.

    >>> _suggest("AUC", ["f_score", "roc_auc"], 2)
    '; did you mean roc_auc?'
    """
    usual = re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("score") or name
    meant = USUAL_NAMES.get(usual)
    if meant == ACCURACY_OF_TWO and classes > 2:
        meant = ACCURACY
    close = [meant] if meant and meant.partition(":")[0] in suitable else difflib.get_close_matches(name.lower(), suitable, n=2)
    if not close:
        return f"; expected one of {', '.join(suitable)}"
    remark = " (its value is the accuracy)" if close[0] in (ACCURACY_OF_TWO, ACCURACY) else ""
    return f"; did you mean {' or '.join(close)}?{remark}"


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
