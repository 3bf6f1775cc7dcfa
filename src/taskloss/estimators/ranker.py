"""The ranker: documents of queries, by binary or graded relevance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils import column_or_1d
from torch import Tensor, nn

from taskloss.estimators import base
from taskloss.estimators.problem import Problem
from taskloss.tasks import NDCG, GradedNDCG, Task
from taskloss.tasks.registry import as_task
from taskloss.training import HIDDEN, Progress


class TaskLossRanker(base.TaskLossEstimator):
    """Learns to rank by a metric of rankings: ``fit(X, y, groups=query_ids)``, then sort by ``predict(X)``.

    Args:
        metric: a ranking task or its registered name. ``"ndcg"`` takes grades (0, 1, 2, ..., gain ``2**grade - 1``) where the
            relevance has some, see :class:`taskloss.GradedNDCG`; the other metrics take relevance of 0 and 1.
        method: ``"direct"``, ``"direct_negative"``, ``"hinge"``, or ``"cross_entropy"`` (relevant or not, whatever the query).
        hidden, module, epsilon, members, folds, max_iter, patience, learning_rate, weight_decay, dropout, averaging, smoothing,
        batch_size, scaling, warm_start, checkpoint, callback, threads, random_state: as for
            :class:`~taskloss.estimators.TaskLossClassifier`. Folds and batches keep queries whole.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, query = rng.normal(size=(120, 3)), np.repeat(np.arange(12), 10)
    >>> relevance = np.clip(np.round(X[:, 0]), 0, 2)
    >>> model = TaskLossRanker(members=2, max_iter=40, random_state=0).fit(X, relevance, groups=query)
    >>> model.score(X, relevance, groups=query) > 0.9
    True
    """

    def __init__(
        self,
        metric: str | Task = "ndcg",
        *,
        method: str = "direct",
        hidden: Sequence[int] = HIDDEN,
        module: Callable[[int, int], nn.Module] | None = None,
        epsilon: float = base.EPSILON,
        members: int = base.MEMBERS,
        folds: int = base.FOLDS,
        max_iter: int = base.DEFAULT.iterations,
        patience: int = base.DEFAULT.patience,
        learning_rate: float = base.DEFAULT.learning_rate,
        weight_decay: float = base.DEFAULT.weight_decay,
        dropout: float = 0.0,
        averaging: float = base.DEFAULT.averaging,
        smoothing: int = base.DEFAULT.smoothing,
        batch_size: int = base.DEFAULT.batch_size,
        scaling: str = "quantile",
        warm_start: bool = False,
        checkpoint: str | Path | None = None,
        callback: Callable[[int, Progress], None] | None = None,
        threads: int = 1,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            metric,
            method=method,
            hidden=hidden,
            module=module,
            epsilon=epsilon,
            members=members,
            folds=folds,
            max_iter=max_iter,
            patience=patience,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            dropout=dropout,
            averaging=averaging,
            smoothing=smoothing,
            batch_size=batch_size,
            scaling=scaling,
            warm_start=warm_start,
            checkpoint=checkpoint,
            callback=callback,
            threads=threads,
            random_state=random_state,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def fit(self, X: Any, y: Any, groups: Any = None, *, qid: Any = None) -> Self:
        """Train on rows X and their relevance y; ``groups`` (or ``qid``) are query ids of any type, one a row, in any order.

        Without them all rows are one list.
        """
        table, y = self._read_table(X, y, fitting=True, y_numeric=True, ensure_min_samples=2)
        relevance = column_or_1d(y, warn=True).astype(np.float64)
        task = self._task(relevance)
        query = self._read_queries(groups, qid, len(relevance))
        problem = Problem(task, self.method, self.epsilon)
        target = torch.from_numpy(np.ascontiguousarray(relevance, np.float64 if task.target_kind == "graded" else np.int64))
        if query is None:
            kinds = np.unique(relevance, return_inverse=True)[1]
            counts = np.bincount(kinds)
            most_folds = int(np.minimum(counts, len(kinds) - counts).max())
        else:
            spread = np.array([np.ptp(relevance[query == number]) > 0 for number in range(query.max() + 1)])
            kinds, most_folds = spread.astype(np.int64), int(spread.sum())
        if most_folds == 0:
            raise ValueError(
                f"no ranking can be learned: y is {relevance[0]:g} in all rows of "
                f"{'a list' if query is None else 'every query'}; each needs more and less relevant rows"
            )
        self._fit_ensemble(table, problem, target, None if query is None else torch.from_numpy(query), kinds, most_folds)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """One score a row; of two rows of a query, the one with the higher score comes first."""
        return self._scores(X)

    def score(self, X: Any, y: Any, groups: Any = None, *, qid: Any = None) -> float:
        """The exact metric, mean over the queries where it is defined."""
        query = self._read_queries(groups, qid, len(y))
        options = {} if query is None else {"groups": torch.from_numpy(query)}
        return self.problem_.metric(torch.from_numpy(self.predict(X)), torch.from_numpy(np.asarray(y, np.float64)), **options)

    def _task(self, relevance: np.ndarray) -> Task:
        task = as_task(self.metric)
        if task.target_kind not in ("binary", "graded"):
            raise ValueError(f"the metric {type(task).__name__} is none of rankings; use TaskLossClassifier")
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
        """Queries as numbers from 0."""
        if groups is not None and qid is not None:
            raise ValueError("groups and qid are two names of the same: pass one of them")
        given = qid if groups is None else groups
        if given is None:
            return None
        ids = column_or_1d(given)
        if len(ids) != rows:
            raise ValueError(
                f"there are {len(ids)} query ids for {rows} rows; expected one a row. Group sizes, as LightGBM takes them, "
                "become ids by numpy.repeat(numpy.arange(len(sizes)), sizes)"
            )
        return np.unique(ids, return_inverse=True)[1]

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {}

    def _set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """A ranker has no state besides the ensemble."""
