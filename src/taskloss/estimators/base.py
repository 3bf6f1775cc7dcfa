"""What the estimators share: their settings, reading tables, training the ensemble."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from taskloss import _checks, direct
from taskloss.estimators import files
from taskloss.estimators.ensemble import Ensemble, Plan, fit_ensemble, make_splits
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.problem import Problem
from taskloss.tasks import Task
from taskloss.training import Progress, Samples, TrainingResult, TrainingSettings, build_mlp

DEFAULT = TrainingSettings(iterations=300, patience=150, learning_rate=3e-3, weight_decay=0.01, smoothing=10)
"""The budget of each member. The patience is long: with rare positives the metric of a small held-out fold stays flat or falls
before it rises."""
EPSILON = direct.EPSILON
MEMBERS = 5
FOLDS = 5
WARM_UP = 50
DENSE_LIMIT = 4 * 2**30
"""Bytes of a table as the network reads it."""


class TaskLossEstimator(BaseEstimator):
    """Settings and training of an ensemble of networks; see :class:`~taskloss.estimators.TaskLossClassifier`."""

    ensemble_: Ensemble
    features_: FeatureMap
    problem_: Problem

    def __init__(
        self,
        metric: str | Task,
        *,
        method: str,
        hidden: Sequence[int],
        module: Callable[[int, int], nn.Module] | None,
        epsilon: float,
        members: int,
        folds: int,
        max_iter: int,
        patience: int,
        learning_rate: float,
        weight_decay: float,
        dropout: float,
        averaging: float,
        smoothing: int,
        batch_size: int,
        scaling: str,
        warm_start: bool,
        checkpoint: str | Path | None,
        callback: Callable[[int, Progress], None] | None,
        threads: int,
        random_state: Any,
    ) -> None:
        self.metric = metric
        self.method = method
        self.hidden = hidden
        self.module = module
        self.epsilon = epsilon
        self.members = members
        self.folds = folds
        self.max_iter = max_iter
        self.patience = patience
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.averaging = averaging
        self.smoothing = smoothing
        self.batch_size = batch_size
        self.scaling = scaling
        self.warm_start = warm_start
        self.checkpoint = checkpoint
        self.callback = callback
        self.threads = threads
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    @property
    def history_(self) -> tuple[TrainingResult, ...]:
        """The course of the training of each member: losses and exact validation metrics. Not kept in files."""
        check_is_fitted(self)
        return tuple(member.result for member in self.ensemble_.members if member.result is not None)

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator to one file: safetensors with JSON in its header, as a whole or not at all.

        Settings that are no data (``module``, ``callback``, ``checkpoint``) are left out.
        """
        check_is_fitted(self)
        return files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, module: Callable[[int, int], nn.Module] | None = None) -> Self:
        """The estimator in a file; its predictions are those of the saved one, bit by bit. ``module`` as it was in training."""
        return files.load(cls, Path(path), module)

    # --- for the subclasses ---------------------------------------------------------------------------------------------

    def _settings(self) -> TrainingSettings:
        return TrainingSettings(
            iterations=self.max_iter,
            patience=self.patience,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=self.batch_size,
            averaging=self.averaging,
            smoothing=self.smoothing,
        )

    def _read_table(self, X: Any, y: Any = "no_validation", *, fitting: bool, **options: Any) -> Any:
        """Rows as float64, or rows and target; missing values may be NaN, sparse tables become dense."""
        read = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite="allow-nan", reset=fitting, **options
        )
        table = read[0] if isinstance(read, tuple) else read
        if scipy.sparse.issparse(table):
            size = table.shape[0] * table.shape[1] * 8
            if size > DENSE_LIMIT:
                raise ValueError(
                    f"the sparse X of shape {table.shape} would take {size / 2**30:.1f} GiB as the network reads it; reduce its "
                    "columns first, for example with sklearn.decomposition.TruncatedSVD"
                )
            table = table.toarray()
        return (table, *read[1:]) if isinstance(read, tuple) else table

    def _scores(self, X: Any) -> np.ndarray:
        """The mean of the members' scores."""
        check_is_fitted(self)
        with one_pool(self.threads):
            return self.ensemble_.scores(self.features_.transform(self._read_table(X, fitting=False)))

    def _fit_ensemble(
        self, table: np.ndarray, problem: Problem, target: Tensor, groups: Tensor | None, kinds: np.ndarray, most_folds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train; the held-out scores of all samples, and which samples have some.

        ``kinds`` are numbers that each fold should hold in equal shares, one a sample or one a query; ``most_folds`` is how
        many folds can hold the metric defined.
        """
        for name in ("members", "folds", "threads"):
            _checks.check_count(name, getattr(self, name))
        earlier = self._networks_to_go_on_from(table.shape[1], problem)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        if earlier is None:
            self.features_ = FeatureMap.fit(table, self.scaling)
        folds = min(max(self.folds, 2), most_folds)
        if folds < 2:
            warnings.warn(
                "too few samples of a class to hold any out: the training samples also stop the training and choose the "
                "threshold, so both are too optimistic",
                stacklevel=3,
            )
        splits = make_splits(kinds, self.members, folds, np.random.default_rng(seed))
        if groups is not None:
            query = groups.numpy()
            splits = [(np.flatnonzero(np.isin(query, a)), np.flatnonzero(np.isin(query, b))) for a, b in splits]
        plan = Plan(
            problem,
            self._settings(),
            self._build(problem),
            splits,
            [seed % 2**31 + number for number in range(self.members)],
            warm_up=WARM_UP,
            initial=earlier,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            callback=self.callback,
        )
        with one_pool(self.threads):
            self.ensemble_, held_out, known = fit_ensemble(plan, Samples(self.features_.transform(table), target, groups))
        self.problem_ = problem
        self.n_iter_ = max(len(result.losses) for result in self.history_)
        return held_out, known

    def _build(self, problem: Problem) -> Callable[[int], nn.Module]:
        width = self.features_.width
        if self.module is None:
            return lambda seed: build_mlp(
                width, hidden=tuple(self.hidden), outputs=problem.outputs, dropout=self.dropout, seed=seed
            )
        _checks.check_callable("module", self.module, "(n_features, n_outputs)")
        return lambda seed: files.build_module(self.module, width, problem.outputs, seed)

    def _networks_to_go_on_from(self, columns: int, problem: Problem) -> list[Any] | None:
        if not self.warm_start or not hasattr(self, "ensemble_"):
            return None
        members = self.ensemble_.members
        if (len(members), len(self.features_.varies), self.problem_.outputs) != (self.members, columns, problem.outputs):
            raise ValueError(
                "warm_start=True goes on from the last fit, but the number of members, columns or classes has changed; "
                "set warm_start=False to start anew"
            )
        return [member.net for member in members]


@contextmanager
def one_pool(threads: int) -> Iterator[None]:
    """So many threads of torch: with a fixed number, sums do not depend on the machine; small networks are fastest with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
