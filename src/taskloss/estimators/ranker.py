"""The ranker: it sorts the documents of queries by binary or graded relevance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted

from taskloss.estimators.base import FitData, TaskLossEstimator
from taskloss.estimators.folds import query_strata
from taskloss.estimators.methods import AUTO
from taskloss.estimators.problem import Problem
from taskloss.estimators.weights import query_weights
from taskloss.tasks import NDCG, GradedNDCG, Task
from taskloss.tasks.registry import as_task


class HeldOut(NamedTuple):
    """The training rows that some member held out."""

    scores: np.ndarray
    """Scores by the members that did not train on the row."""
    relevance: np.ndarray
    queries: np.ndarray | None
    weights: np.ndarray | None
    """Weight of the query of each row."""


@dataclass(eq=False, repr=False)
class TaskLossRanker(TaskLossEstimator):
    """Learning to rank by a metric of rankings: ``fit(X, y, groups=query_ids)``, then sort by ``predict(X)``.

    Folds and batches never split a query. ``method="cross_entropy"`` learns which rows are relevant, regardless of the queries.

    Args:
        metric: a ranking task or its registered name. ``"ndcg"`` takes grades (0, 1, 2, ..., gain ``2**grade - 1``) where the
            relevance has any above 1, see :class:`taskloss.GradedNDCG`; the other metrics take a relevance of 0 or 1.

    :class:`~taskloss.estimators.EstimatorSettings` describes the other arguments.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, query = rng.normal(size=(120, 3)), np.repeat(np.arange(12), 10)
    >>> relevance = np.clip(np.round(X[:, 0]), 0, 2)
    >>> model = TaskLossRanker(members=2, max_iter=40, random_state=0).fit(X, relevance, groups=query)
    >>> model.score(X, relevance, groups=query) > 0.9
    True
    """

    metric: str | Task = "ndcg"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, *, qid: Any = None, sample_weight: Any = None) -> Self:
        """Train on the rows of X and their relevance y.

        ``groups`` (or ``qid``) holds the query id of each row, of any type and in any order. Without it, all rows are one list.
        ``sample_weight`` weighs the queries: all rows of a query have the same weight.
        """
        table, y = self._read_table(X, y, fitting=True, y_numeric=True, ensure_min_samples=2)
        relevance = column_or_1d(y, warn=True).astype(np.float64)
        task = self._task(relevance)
        query = self._read_queries(groups, qid, len(relevance))
        problem = Problem(task, AUTO, self.epsilon)
        weights = query_weights(sample_weight, table, query, task)
        if weights is not None and query is not None:
            kept = weights > 0
            table, relevance, weights, query = table[kept], relevance[kept], weights[kept], _from_zero(query[kept])
        target = torch.from_numpy(np.ascontiguousarray(relevance, np.float64 if task.target_kind == "graded" else np.int64))
        if query is None:
            strata = np.unique(relevance, return_inverse=True)[1]
            counts = np.bincount(strata)
            most_folds = int(np.minimum(counts, len(strata) - counts).max())
        else:
            # The metric is defined for queries that hold more and less relevant rows.
            strata = query_strata(relevance, query)
            most_folds = int(strata.sum())
        if most_folds == 0:
            raise ValueError(
                f"no ranking can be learned: y is {relevance[0]:g} in all rows of "
                f"{'a list' if query is None else 'every query'}; each needs more and less relevant rows"
            )
        samples = FitData(table, target, query, weights, units=query)
        scores, known = self._fit_ensemble(problem, self._choose_methods(), samples, strata, most_folds)
        queries, weights = (None if part is None else part[known] for part in (query, weights))
        self.held_out_ = HeldOut(scores[known], relevance[known], queries, weights)
        return self

    def held_out_metric(self) -> float | None:
        """Return the exact metric of the training samples, each scored by the members that did not train on it.

        It is a little optimistic, because the same samples stopped the training, and a little pessimistic, because single
        members rank each query, and not the whole ensemble. It is None if no samples were held out, or if the ranker was read
        from a file.
        """
        check_is_fitted(self)
        if not getattr(self, "holds_out_", False):
            return None
        scores, relevance, query, weights = self.held_out_
        return self._value(scores, relevance, None if query is None else _from_zero(query), weights)

    def predict(self, X: Any) -> np.ndarray:
        """Return one score per row; within a query, rows with a higher score come first."""
        return self._scores(X)

    def score(self, X: Any, y: Any, groups: Any = None, *, qid: Any = None, sample_weight: Any = None) -> float:
        """Return the exact metric, its mean over the queries where it is defined; weights as in :meth:`fit`."""
        query = self._read_queries(groups, qid, len(y))
        weights = query_weights(sample_weight, np.asarray(y), query, self.problem_.task)
        return self._value(self.predict(X), np.asarray(y, np.float64), query, weights)

    def _value(self, scores: np.ndarray, relevance: np.ndarray, query: np.ndarray | None, weights: np.ndarray | None) -> float:
        """Return the exact metric of scores; all arrays have one entry per row."""
        options = {} if query is None else {"groups": torch.from_numpy(query)}
        if weights is not None and query is not None:
            options["weight"] = torch.from_numpy(weights[np.unique(query, return_index=True)[1]])
        return self.problem_.metric(torch.from_numpy(scores), torch.from_numpy(relevance), **options)

    def _task(self, relevance: np.ndarray) -> Task:
        task = as_task(self.metric)
        if task.target_kind not in ("binary", "graded"):
            raise ValueError(f"the metric {type(task).__name__} does not measure rankings; use TaskLossClassifier")
        if (relevance < 0).any():
            raise ValueError(f"y holds {relevance.min():g}; expected relevance of at least 0")
        if task.target_kind == "graded" or np.isin(relevance, (0, 1)).all():
            return task
        if isinstance(task, NDCG):
            return GradedNDCG(at=task.at, on_one_class=task.on_one_class)
        raise ValueError(
            f"the metric {type(task).__name__} takes relevance of 0 and 1, and y holds {relevance.max():g}; pass y > 0, or use "
            "metric='ndcg', which takes grades"
        )

    @staticmethod
    def _read_queries(groups: Any, qid: Any, rows: int) -> np.ndarray | None:
        """Return the query index of each row, from 0; None without queries."""
        if groups is not None and qid is not None:
            raise ValueError("groups and qid are two names for the query ids; pass one of them")
        given = qid if groups is None else groups
        if given is None:
            return None
        ids = column_or_1d(given)
        if len(ids) != rows:
            raise ValueError(
                f"there are {len(ids)} query ids for {rows} rows; expected one per row. Group sizes, as LightGBM takes them, "
                "become ids by numpy.repeat(numpy.arange(len(sizes)), sizes)"
            )
        return _from_zero(ids)


def _from_zero(ids: np.ndarray) -> np.ndarray:
    """Return ids as numbers from 0, in sorted order."""
    numbers: np.ndarray = np.unique(ids, return_inverse=True)[1]
    return numbers
