"""The common base of the estimators: reading tables, training the ensemble, files."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import scipy.sparse
import torch
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_X_y
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from taskloss import _checks
from taskloss._warn import warn_caller
from taskloss.estimators import files
from taskloss.estimators.batch_size import choose_batch_size
from taskloss.estimators.blend import Blend, Part, find_weak_parts, table_tensor, weigh_parts
from taskloss.estimators.ensemble import NetworkBuilder, Plan, ScoreNet, fit_ensemble, torch_threads
from taskloss.estimators.features import FeatureMap
from taskloss.estimators.folds import first_seed, make_splits
from taskloss.estimators.frames import FrameEncoder
from taskloss.estimators.lightgbm_trees import max_steps
from taskloss.estimators.methods import AUTO, TREE_METHODS, lightgbm_is_installed, read_methods
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
    """Ensembles that are trained and stopped by a metric, and blended; the common base of the classifier and the ranker."""

    ensemble_: Blend
    features_: FeatureMap
    frame_encoder_: FrameEncoder | None
    problem_: Problem
    left_out_: dict[str, str]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = True
        return tags

    @property
    def history_(self) -> tuple[TrainingResult, ...]:
        """Losses and exact held-out metrics of each member after every step, part by part; files do not keep them."""
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
        """Return the blend of the standardized means of the members' scores."""
        check_is_fitted(self)
        table = self._read_table(X, fitting=False)
        with torch_threads(self.threads):
            return self.ensemble_.scores(self.features_.transform(table), table)

    def _choose_methods(self) -> tuple[str, ...]:
        """Return the methods to blend; ``left_out_`` then has the reason for each that is missing."""
        self.left_out_ = {}
        methods = read_methods(self.method)
        if not lightgbm_is_installed() and not set(TREE_METHODS).isdisjoint(methods):
            cure = "pip install 'taskloss[estimators]'"
            if self.method != AUTO:
                raise ValueError(f"method={self.method!r} needs LightGBM, which is not installed: {cure}")
            warn_caller(f"method='auto' goes without trees, because LightGBM is not installed: {cure}")
            methods = self._leave_out(methods, TREE_METHODS, "LightGBM is not installed")
        return methods

    def _leave_out(self, methods: Sequence[str], refused: Sequence[str], reason: str) -> tuple[str, ...]:
        """Return the other methods, and note the reason."""
        self.left_out_ |= dict.fromkeys(refused, reason)
        return tuple(method for method in methods if method not in refused)

    def _fit_ensemble(
        self, problem: Problem, methods: Sequence[str], samples: FitData, strata: np.ndarray, most_folds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Train one ensemble per method; return the held-out score of each sample, and a mask of the samples that have one.

        Args:
            problem: the task and the form of its target.
            methods: the methods to blend.
            samples: what to train on.
            strata: stratum of each unit of the samples; each fold holds an equal share of every stratum.
            most_folds: the largest number of folds for which the metric is defined on each fold.
        """
        for name in ("members", "folds", "threads"):
            _checks.check_count(name, getattr(self, name))
        initial = self._initial_networks(samples.table.shape[1], problem, methods)
        seed = first_seed(self.random_state)
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
        weights = None if samples.weights is None else torch.from_numpy(samples.weights / samples.weights.mean())
        groups = None if samples.groups is None else torch.from_numpy(samples.groups)
        data = TrainingData(self.features_.transform(samples.table), samples.target, groups, weights)
        report = self._reporter(problem, methods)
        parts, held_out = [], []
        for number, method in enumerate(methods):
            plan = Plan(
                replace(problem, method=method),
                self._training_settings(problem, samples),
                self._network_builder(problem),
                splits,
                samples.units if samples.groups is None else None,
                [seed + member for member in range(self.members)],
                warm_up=WARM_UP,
                initial=None if initial is None else initial.get(method),
                checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
                callback=report,
                first=number * self.members,
                jobs=1 if self.n_jobs is None else min(effective_n_jobs(self.n_jobs), self.members),
                threads=self.threads,
            )
            inputs = data._replace(features=table_tensor(samples.table)) if method in TREE_METHODS else data
            part, scores, known = self._fit_part(plan, inputs)
            parts.append(part)
            held_out.append(scores)
        self.ensemble_ = Blend(tuple(parts), self._weigh_parts(problem, parts, held_out, known, data, samples.units, seed))
        self.problem_ = parts[0].problem if len(parts) == 1 else problem
        self.n_iter_ = max(len(result.losses) for result in self.history_)
        return self.ensemble_.mean(held_out), known

    def _weigh_parts(
        self,
        problem: Problem,
        parts: Sequence[Part],
        held_out: Sequence[np.ndarray],
        known: np.ndarray,
        data: TrainingData,
        units: np.ndarray | None,
        seed: int,
    ) -> tuple[float, ...]:
        """Return the weights of the parts of a blend, and note in ``left_out_`` which of them are dropped."""
        weak: dict[int, str] = {}
        if len(parts) > 1 and self.holds_out_:
            scores = [part.standardize(each)[known] for part, each in zip(parts, held_out, strict=True)]
            rows = data.rows(torch.from_numpy(np.flatnonzero(known)))
            units = None if units is None else units[known]
            weak = find_weak_parts(problem, scores, rows, units, np.random.default_rng(seed))
        self.left_out_ |= {parts[number].problem.method: reason for number, reason in weak.items()}
        return weigh_parts(parts, [number not in weak for number in range(len(parts))])

    def _fit_part(self, plan: Plan, data: TrainingData) -> tuple[Part, np.ndarray, np.ndarray]:
        """Train the ensemble of one method; return it, the held-out scores, and a mask of the samples that have one."""
        ensemble, held_out, known = fit_ensemble(plan, data)
        return Part.of_ensemble(plan.problem, ensemble, held_out, known, data.target), held_out, known

    def _network_builder(self, problem: Problem) -> NetworkBuilder:
        """Return the function that builds a network for the features of the table."""
        return NetworkBuilder(self.features_.width, problem.outputs, tuple(self.hidden), self.dropout, self.module)

    def _reporter(self, problem: Problem, methods: Sequence[str]) -> Callable[[int, Progress], None] | None:
        """Return what to call after each step: the callback, and a printer if ``verbose`` asks for one."""
        if not self.verbose:
            return self.callback
        name = getattr(problem.task, "label", type(problem.task).__name__)
        steps = {method: max_steps(method, self.max_iter) for method in methods}
        return ProgressPrinter(name, steps, self.members, self.verbose, self.callback)

    def _initial_networks(self, columns: int, problem: Problem, methods: Sequence[str]) -> dict[str, list[ScoreNet]] | None:
        """Return the networks of the last fit by method for ``warm_start``, None to start from fresh ones."""
        if not self.warm_start or not hasattr(self, "ensemble_"):
            return None
        parts = {part.problem.method: part.ensemble.members for part in self.ensemble_.parts}
        now, before = (
            (tuple(methods), self.members, columns, problem.outputs),
            (tuple(parts), len(self.ensemble_.members) // len(parts), len(self.features_.varies), self.problem_.outputs),
        )
        if now != before:
            raise ValueError(
                "warm_start=True continues from the last fit, but one of these has changed: the methods, the number of members, "
                "of columns or of classes; set warm_start=False to start anew"
            )
        nets = {method: [member.net for member in members] for method, members in parts.items()}
        # Trees are grown anew.
        return {method: cast(list[ScoreNet], members) for method, members in nets.items() if method not in TREE_METHODS}
