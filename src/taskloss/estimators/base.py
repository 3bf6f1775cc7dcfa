"""The common base of the estimators: reading tables, training the ensemble, files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse
import torch
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from taskloss import _checks
from taskloss.estimators import files
from taskloss.estimators.batch_size import choose_batch_size
from taskloss.estimators.ensemble import Ensemble, NetworkBuilder, Plan, ScoreNet, fit_ensemble, make_splits, torch_threads
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.frames import FrameEncoder
from taskloss.estimators.problem import Problem
from taskloss.estimators.progress import ProgressPrinter
from taskloss.estimators.settings import EstimatorSettings
from taskloss.training import Progress, TrainingData, TrainingResult, TrainingSettings

WARM_UP = 50
"""Steps of cross-entropy before a loss that has no gradient where every answer is wrong."""
DENSE_BYTES = 4 * 2**30
"""Largest size of a sparse table that is made dense."""


@dataclass(frozen=True)
class FitData:
    """What an estimator is trained on."""

    table: np.ndarray
    """Features, float64 ``(n, d)``."""
    target: Tensor
    """The target in the form that the problem needs."""
    groups: np.ndarray | None = None
    """Query index of each sample, from 0."""
    weights: np.ndarray | None = None
    """Weight of each sample, for a loss that takes weights, or of its query."""
    units: np.ndarray | None = None
    """Index of the unit that each sample belongs to, from 0: a query, or the copies of one row. No fold splits a unit. None where
    each sample is a unit."""


class TaskLossEstimator(EstimatorSettings, BaseEstimator):
    """An ensemble of networks, trained and stopped by a metric; the common base of the classifier and the ranker."""

    ensemble_: Ensemble
    features_: FeatureMap
    frame_encoder_: FrameEncoder | None
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

    def _training_settings(self, problem: Problem, samples: FitData) -> TrainingSettings:
        batch_size = choose_batch_size(problem.task, samples.target, queries=samples.groups is not None)
        return TrainingSettings(
            iterations=self.max_iter,
            patience=self.patience,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            batch_size=batch_size if self.batch_size is None else self.batch_size,
            averaging=self.averaging,
            smoothing=self.smoothing,
        )

    def _read_table(self, X: Any, y: Any = "no_validation", *, fitting: bool, **options: Any) -> Any:
        """Return the rows as a dense float64 array, with the target if there is one; NaN marks missing values."""
        if fitting:
            self.frame_encoder_ = FrameEncoder.fit(X)
        options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": "allow-nan", **options}
        if self.frame_encoder_ is None:
            checked = validate_data(self, X, y, reset=fitting, **options)
        else:
            validate_data(self, X, skip_check_array=True, reset=fitting)
            encoded = self.frame_encoder_.encode(X)
            options["estimator"] = self
            checked = check_array(encoded, **options) if isinstance(y, str) else check_X_y(encoded, y, **options)
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
        self, problem: Problem, samples: FitData, strata: np.ndarray, most_folds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train the ensemble; return the held-out score of each sample, and a mask of the samples that have one.

        Args:
            problem: the task and the form of its target.
            samples: what to train on.
            strata: stratum of each unit of the samples; each fold holds an equal share of every stratum.
            most_folds: the largest number of folds for which the metric is defined on each fold.
        """
        for name in ("members", "folds", "threads"):
            _checks.check_count(name, getattr(self, name))
        initial = self._initial_networks(samples.table.shape[1], problem)
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(np.iinfo(np.int32).max))
        if initial is None:
            self.features_ = FeatureMap.fit(samples.table, self.scaling)
        folds = min(max(self.folds, 2), most_folds)
        if folds < 2:
            warnings.warn(
                "too few samples of a class to hold any out: the training samples also stop the training and choose the "
                "threshold, so the metric seen in training and the threshold are too optimistic",
                stacklevel=3,
            )
        self.holds_out_ = folds >= 2
        splits = make_splits(strata, self.members, folds, np.random.default_rng(seed))
        if samples.units is not None:
            # mypy does not see that a split has two parts.
            splits = [tuple(np.flatnonzero(np.isin(samples.units, part)) for part in split) for split in splits]  # type: ignore[misc]
        plan = Plan(
            problem,
            self._training_settings(problem, samples),
            self._network_builder(problem),
            splits,
            [seed + member for member in range(self.members)],
            warm_up=WARM_UP,
            initial=initial,
            checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
            callback=self._reporter(problem),
            jobs=1 if self.n_jobs is None else min(effective_n_jobs(self.n_jobs), self.members),
            threads=self.threads,
        )
        weights = None if samples.weights is None else torch.from_numpy(samples.weights / samples.weights.mean())
        groups = None if samples.groups is None else torch.from_numpy(samples.groups)
        data = TrainingData(self.features_.transform(samples.table), samples.target, groups, weights)
        self.ensemble_, held_out, known = fit_ensemble(plan, data)
        self.problem_ = problem
        self.n_iter_ = max(len(result.losses) for result in self.history_)
        return held_out, known

    def _network_builder(self, problem: Problem) -> NetworkBuilder:
        """Return the function that builds a network for the features of the table."""
        return NetworkBuilder(self.features_.width, problem.outputs, tuple(self.hidden), self.dropout, self.module)

    def _reporter(self, problem: Problem) -> Callable[[int, Progress], None] | None:
        """Return what to call after each step: the callback, and a printer if ``verbose`` asks for one."""
        if not self.verbose:
            return self.callback
        name = getattr(problem.task, "label", type(problem.task).__name__)
        return ProgressPrinter(name, self.members, self.max_iter, self.verbose, self.callback)

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
