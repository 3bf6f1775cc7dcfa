"""Weights of samples: where they have a place, and the error that explains why they have none elsewhere.

A loss that is a mean over samples (cross-entropy, costs of classes) takes any weights. A metric of the whole list or labeling has
no such mean. Whole numbers still have a meaning there: a row with weight 2 counts as two equal rows, which both are trained on or
both held out. Queries have weights of their own in the mean over the queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight

from taskloss.tasks import Task

MOST_COPIES = 20
"""Largest mean number of times that a row counts: its copies take memory and time."""


def read_weights(sample_weight: Any, rows: np.ndarray) -> np.ndarray | None:
    """Return the weight of each row, float64 ``(n,)``; None if there are none, or all are equal and so change nothing."""
    if sample_weight is None:
        return None
    weights = np.asarray(_check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():
        raise ValueError("all sample weights are 0; expected some above 0")
    return None if (weights == weights[0]).all() else weights


def class_weights(class_weight: Any, target: np.ndarray) -> np.ndarray | None:
    """Return the weight of each sample by its class, ``"balanced"`` or a dictionary; None if all are equal."""
    return None if class_weight is None else read_weights(compute_sample_weight(class_weight, target), target)


def refuse_class_weight(task: Task) -> None:
    """Raise because class weights have no place in a metric of the whole list or labeling."""
    raise ValueError(
        f"class_weight has no place in {_name(task)}: the metric belongs to the whole list and itself says what each class is "
        "worth. Leave it out, and choose a metric that says what you want (f_score with its beta, recall_at_precision ...), "
        "taskloss.MultiClass(cost=...) for costs of classes, or method='cross_entropy', whose loss takes weights"
    )


def count_rows(weights: np.ndarray, task: Task) -> np.ndarray:
    """Return how often each row counts, int64 ``(n,)``, for a metric of the whole list; raise unless that is a whole number."""
    for unit in (weights[weights > 0].min(), 1.0):
        counts = np.round(weights / unit)
        if np.allclose(counts, weights / unit, rtol=1e-9, atol=0.0):
            repeats: np.ndarray = counts.astype(np.int64) // np.gcd.reduce(counts.astype(np.int64))
            if repeats.sum() > MOST_COPIES * len(repeats):
                raise ValueError(
                    f"sample_weight counts {len(repeats):,} rows {repeats.sum():,} times in all, more than {MOST_COPIES} times "
                    f"each on average; {_name(task)} takes weights as numbers of equal rows. Scale them down to small ones"
                )
            return repeats
    raise ValueError(
        f"sample_weight has no place in {_name(task)}: the metric belongs to the whole list and is no mean over samples. Leave "
        "it out; or pass whole numbers, which count a row several times; or use method='cross_entropy' or metric='multi_class', "
        "whose losses are means over samples"
    )


def query_weights(sample_weight: Any, rows: np.ndarray, queries: np.ndarray | None, task: Task) -> np.ndarray | None:
    """Return the weight of each row, the same for all rows of a query; None without weights."""
    weights = read_weights(sample_weight, rows)
    if weights is None:
        return None
    if queries is None:
        raise ValueError(
            f"sample_weight has no place in {_name(task)} of one list, which is no mean over samples; leave it out. With "
            "groups=, each query can have a weight"
        )
    first = np.zeros(queries.max() + 1)
    first[queries] = weights
    if not np.array_equal(first[queries], weights):
        query = int(queries[np.argmax(first[queries] != weights)])
        raise ValueError(
            f"sample_weight differs within query {query} (counted from 0, in sorted order), but the metric of a query is no mean "
            "over its rows; give all rows of a query the same weight"
        )
    return weights


def _name(task: Task) -> str:
    return getattr(task, "label", type(task).__name__)
