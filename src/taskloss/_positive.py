"""The positive class of two: one rule for the estimators, the thresholds and the command line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

RARE = 0.4
"""A class below this share of the samples is taken as the positive one, if the labels themselves do not say which one is."""


def find_positive(labels: Sequence[Any], counts: Sequence[int]) -> tuple[int, str]:
    """Return the index of the positive one of two labels, given in sorted order with the number of samples of each, and why.

    Of the labels 0 and 1, -1 and 1, or False and True, as numbers or as text, the second one is positive. Of other labels the
    rarer one is, if its share is below :data:`RARE`, else the last in sorted order. The reason is text for a message, empty where
    the labels themselves say it.

    >>> find_positive(["0", "1"], [10, 90])
    (1, '')
    >>> find_positive(["fraud", "ok"], [10, 90])
    (0, 'the rarer class')
    >>> find_positive(["a", "b"], [45, 55])
    (1, 'the last class in sorted order')
    """
    numbers = [_as_number(label) for label in labels]
    if set(numbers) in ({0.0, 1.0}, {-1.0, 1.0}):
        return numbers.index(1.0), ""
    rarer = int(np.argmin(counts))
    if counts[rarer] < RARE * sum(counts):
        return rarer, "the rarer class"
    return 1, "the last class in sorted order"


def index_of_label(labels: list[Any], pos_label: Any) -> int:
    """Return the index of the label that the caller named; raise if there is no such label."""
    if pos_label not in labels:
        raise ValueError(f"pos_label={pos_label!r} is not among the labels {_listed(labels)}; pass the label that is positive")
    return labels.index(pos_label)


def choose_positive(labels: list[Any], counts: Sequence[int], pos_label: Any, *, stacklevel: int, quiet: bool = False) -> int:
    """Return the index of the positive one of two labels: ``pos_label``, or the one that :func:`find_positive` returns.

    If neither the caller nor the labels say which one it is, a warning does, unless ``quiet``. The warning holds no counts, so
    that all folds of a cross-validation have the same one, which Python shows once.
    """
    if pos_label is not None:
        return index_of_label(labels, pos_label)
    index, reason = find_positive(labels, counts)
    if reason and not quiet:
        first, second = labels
        warnings.warn(
            f"the labels {first!r} and {second!r} do not say which class is positive: {labels[index]!r} is taken, {reason}. "
            f"Pass pos_label={first!r} or pos_label={second!r} to choose",
            stacklevel=stacklevel + 1,
        )
    return index


def positive_samples(target: np.ndarray, pos_label: Any = None, *, stacklevel: int = 1) -> np.ndarray:
    """Return a mask of the positive samples of a target with any two labels.

    With ``pos_label``, the target may have any number of labels: this one is positive, all others are negative.

    >>> positive_samples(np.array(["ok", "fraud", "ok"]), "fraud").tolist()
    [False, True, False]
    """
    if pos_label is None and target.dtype.kind in "biuf" and ((target == 0) | (target == 1)).all():
        return np.asarray(target == 1)
    values = _distinct(target)
    labels, counts = values[0].tolist(), values[1].tolist()
    if pos_label is not None:
        # A target of one label may be all negative; a typo shows where there are several.
        if len(labels) > 1:
            index_of_label(labels, pos_label)
        return np.array([label == pos_label for label in labels])[values[2]].reshape(target.shape)
    if len(labels) == 1 and _as_number(labels[0]) in (-1.0, 0.0, 1.0):
        return np.full(target.shape, _as_number(labels[0]) == 1.0)
    if len(labels) != 2:
        number = f"{len(labels)} different labels" if len(labels) > 1 else "one label only"
        raise ValueError(
            f"target holds {number}: {_listed(labels)}; expected two, such as 0 and 1. Pass pos_label= to set one label against "
            "all others"
        )
    index = choose_positive(labels, counts, None, stacklevel=stacklevel + 1)
    return (values[2] == index).reshape(target.shape)


def _distinct(target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sorted labels, the number of samples of each, and the index of each sample's label, flat."""
    missing = (
        np.isnan(target) if target.dtype.kind == "f" else np.array([label is None or label != label for label in target.flat])
    )
    if missing.any():
        raise ValueError(f"target[{int(np.argmax(missing))}] is missing; leave out the samples without a label")
    try:
        labels, index, counts = np.unique(target, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError("target mixes labels of different types, such as text and numbers; use one type") from error
    return labels, counts, index.reshape(-1)


def _listed(labels: list[Any]) -> str:
    return ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")


def _as_number(label: Any) -> float | None:
    """Return a label as a number, 0 or 1 for the words false and true; None for all other text."""
    text = str(label).strip().casefold()
    if text in ("false", "true"):
        return float(text == "true")
    try:
        return float(text)
    except ValueError:
        return None
