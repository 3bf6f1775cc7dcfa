"""Several classes: which ones each method recognizes and which ones it confuses, over all splits together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taskloss.report.records import Comparison

LARGEST_MATRIX = 16
"""Largest number of classes whose confusion matrix is shown; of more, a table says what each is taken for most often."""


class ClassRow(NamedTuple):
    """How a method treats the test samples of one class."""

    label: str
    samples: int
    """Number of test samples over all splits."""
    recall: float
    precision: float
    """NaN if the class is never predicted."""
    shares: tuple[float, ...]
    """Share of the samples that is predicted as each class, in the order of the classes."""
    taken_for: str
    """The class that these samples are wrongly predicted as most often; empty if all are right."""
    taken_share: float


def class_rows(comparison: Comparison, method: str) -> list[ClassRow]:
    """Return one row per class, in the order of the data; an empty list if there are no several classes."""
    matrices = [run.classes.confusion for run in comparison.runs_of(method) if run.classes is not None]
    if not matrices:
        return []
    confusion = np.sum(matrices, axis=0)
    samples, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    hits = np.diag(confusion)
    shares = confusion / np.maximum(samples, 1)[:, None]
    wrong = shares - np.diag(np.diag(shares))
    with np.errstate(invalid="ignore"):
        precision = hits / np.where(predicted > 0, predicted, np.nan)
    labels = list(comparison.data.classes)
    return [
        ClassRow(
            label=label,
            samples=int(samples[index]),
            recall=float(shares[index, index]),
            precision=float(precision[index]),
            shares=tuple(shares[index].tolist()),
            taken_for=labels[int(wrong[index].argmax())] if wrong[index].any() else "",
            taken_share=float(wrong[index].max()),
        )
        for index, label in enumerate(labels)
    ]


def as_share(share: float) -> str:
    """Format a share of samples as whole percent; nothing for none.

    >>> as_share(0.0), as_share(0.004), as_share(0.256), as_share(0.998), as_share(1.0)
    ('', '<1', '26', '>99', '100')
    """
    percent = 100 * share
    if percent == 0:
        return ""
    return "<1" if percent < 1 else ">99" if 99.5 <= percent < 100 else f"{percent:.0f}"
