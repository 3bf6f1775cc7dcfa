"""The common base of the estimators: reading tables, training the ensemble, files."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
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

from taskloss import _checks
from taskloss.estimators import files
from taskloss.estimators.ensemble import Ensemble, Plan, ScoreNet, fit_ensemble, make_splits
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.problem import Problem
from taskloss.estimators.settings import EstimatorSettings
from taskloss.training import TrainingData, TrainingResult, TrainingSettings, build_mlp, seeded

WARM_UP = 50
"""Steps of cross-entropy before a loss that has no gradient where every answer is wrong."""
DENSE_BYTES = 4 * 2**30
"""Largest size of a sparse table that is made dense."""


class TaskLossEstimator(EstimatorSettings, BaseEstimator):
    """An ensemble of networks, trained and stopped by a metric; the common base of the classifier and the ranker."""

    ensemble_: Ensemble
    features_: FeatureMap
    problem_: Problem

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    @property
    def history_(self) -> tuple[TrainingResult, ...]:
        """Losses and exact validation metrics of each member after every step; files do not keep them."""
        check_is_fitted(self)
        return tuple(member.result for member in self.ensemble_.members if member.result is not None)

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator to one file, completely or not at all: safetensors with JSON in its header.

        The settings ``module``, ``callback`` and ``checkpoint`` are not data and are left out.
        """
        check_is_fitted(self)
        return files.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, module: Callable[[int, int], nn.Module] | None = None) -> Self:
        """Read an estimator that :meth:`save` wrote; its predictions equal those of the saved one, bit by bit.

        ``module`` must be the function that built the networks in training, if there was one.
        """
        return files.load(cls, Path(path), module)

    # --- helpers of the subclasses ----------------------------------------------------------------------------------------

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the fitted tensors and facts that a subclass adds to the ensemble; :meth:`_set_state` reads them back."""
        return {}, {}

    def _set_state(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Take over what :meth:`_state` returned, after the ensemble has been read."""

    def _training_settings(self) -> TrainingSettings:
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
        """Return the rows as a dense float64 array, with the target if there is one; NaN marks missing values."""
        checked = validate_data(
            self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite="allow-nan", reset=fitting, **options
        )
        table = checked[0] if isinstance(checked, tuple) else checked
        if scipy.sparse.issparse(table):
            size = table.shape[0] * table.shape[1] * 8
            if size > DENSE_BYTES:
                raise ValueError(
                    f"the sparse X of shape {table.shape} would take {size / 2**30:.1f} GiB as a dense table, which the networks "
                    "need; reduce its columns first, for example with sklearn.decomposition.TruncatedSVD"
                )
            table = table.toarray()
        return (table, *checked[1:]) if isinstance(checked, tuple) else table

    def _scores(self, X: Any) -> np.ndarray:
        """Return the standardized mean of the members' scores."""
        check_is_fitted(self)
        with torch_threads(self.threads):
            return self.ensemble_.scores(self.features_.transform(self._read_table(X, fitting=False)))

    def _fit_ensemble(
        self, table: np.ndarray, problem: Problem, target: Tensor, groups: Tensor | None, strata: np.ndarray, most_folds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train the ensemble; return the held-out score of each sample, and a mask of the samples that have one.

        Args:
            table: float64 features, shape ``(n, d)``.
            problem: the task and the form of its target.
            target: the target in that form.
            groups: query index of each sample, from 0; None without queries.
            strata: stratum of each sample, or of each query where there are queries; each fold holds an equal share of every
                stratum.
            most_folds: the largest number of folds for which the metric is defined on each fold.
        """
        for name in ("members", "folds", "threads"):
            _checks.check_count(name, getattr(self, name))
        initial = self._initial_networks(table.shape[1], problem)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        if initial is None:
            self.features_ = FeatureMap.fit(table, self.scaling)
        folds = min(max(self.folds, 2), most_folds)
        if folds < 2:
            warnings.warn(
                "too few samples of a class to hold any out: the training samples also stop the training and choose the "
                "threshold, so the metric seen in training and the threshold are too optimistic",
                stacklevel=3,
            )
        splits = make_splits(strata, self.members, folds, np.random.default_rng(seed))
        if groups is not None:
            query = groups.numpy()
            splits = [(np.flatnonzero(np.isin(query, a)), np.flatnonzero(np.isin(query, b))) for a, b in splits]
        plan = Plan(
            problem,
            self._training_settings(),
            functools.partial(self._build_network, problem.outputs),
            splits,
            [seed + member for member in range(self.members)],
            warm_up=WARM_UP,
            initial=initial,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            callback=self.callback,
        )
        with torch_threads(self.threads):
            self.ensemble_, held_out, known = fit_ensemble(plan, TrainingData(self.features_.transform(table), target, groups))
        self.problem_ = problem
        self.n_iter_ = max(len(result.losses) for result in self.history_)
        return held_out, known

    def _build_network(self, outputs: int | None, seed: int = 0) -> nn.Module:
        """Return a fresh network for the features of the table, its initial weights drawn from the seed."""
        width = self.features_.width
        if self.module is None:
            return build_mlp(width, hidden=tuple(self.hidden), outputs=outputs, dropout=self.dropout, seed=seed)
        _checks.check_callable("module", self.module, "(n_features, n_outputs)")
        with seeded(seed, torch.device("cpu")):
            net: Any = self.module(width, outputs or 1)
        if not isinstance(net, nn.Module):
            raise TypeError(f"module(n_features, n_outputs) must return a torch.nn.Module, got {type(net).__name__}")
        return net

    def _initial_networks(self, columns: int, problem: Problem) -> list[ScoreNet] | None:
        """Return the networks of the last fit for ``warm_start``, None to start from fresh ones."""
        if not self.warm_start or not hasattr(self, "ensemble_"):
            return None
        members = self.ensemble_.members
        if (len(members), len(self.features_.varies), self.problem_.outputs) != (self.members, columns, problem.outputs):
            raise ValueError(
                "warm_start=True continues from the last fit, but the number of members, columns or classes has changed; "
                "set warm_start=False to start anew"
            )
        return [member.net for member in members]


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Set the number of torch threads for a block; with a fixed number, sums do not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
