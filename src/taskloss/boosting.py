r"""The direct gradient for gradient boosting: objectives and metrics for LightGBM and XGBoost.

Boosting asks an objective for two numbers per sample, a gradient :math:`G_i` and a hessian :math:`H_i`. It grows a tree on them
and gives each leaf the value

.. math:: v = -\frac{\sum_i G_i}{\sum_i H_i + \lambda}, \qquad \text{times the learning rate.}

**Gradient.** :math:`G_i = n g_i`, where :math:`g` is the gradient of :class:`taskloss.DirectLoss` with respect to the n scores.
The task loss is *one* number for all samples, so :math:`g_i` shrinks as their number grows; a boosting loss is a *sum* over
samples. The factor n makes the two comparable, so that settings in units of the hessian (``min_sum_hessian_in_leaf``,
``min_child_weight``, ``lambda``) have their usual meaning. Without lambda, the factor cancels from the leaf values.

**Hessian.** The gradient is piecewise constant, so its derivative carries no information. But a sample has a direct gradient
while its score lies within about epsilon of a point where the answer changes, and none once the score has moved on by that much.
So the gradient falls from :math:`|G_i|` to 0 over a distance :math:`\epsilon`. There are three choices:

``"secant"`` :math:`H_i = |G_i| / \epsilon`
    The secant of that fall. A single sample steps by exactly :math:`\epsilon`. A leaf moves by :math:`\epsilon` times the degree
    to which its samples agree, :math:`v = -\epsilon \sum G_i / \sum |G_i|`, and samples without a gradient do not slow it down.
    A lower bound of ``FLOOR`` times the mean keeps leaves with almost no gradient in place.
``"constant"`` :math:`H_i = \operatorname{mean}_{G_j \ne 0} |G_j| / \epsilon`
    The mean secant for every sample, including those without a gradient: plain functional gradient descent, in units that suit a
    usual learning rate. Samples without a gradient slow their leaves down. The task's own weights cancel from this and from the
    secant.
``"balanced"`` :math:`H_i = n / (2 P)` for positives, :math:`n / (2 N)` for negatives
    For rankings; with queries, each query has an equal part of n. The feature of a ranking has entries of size 1/P and 1/N, so
    this measures each sample in its own unit. At constant scores the gradient is :math:`-n/(P \epsilon)` for positives and
    :math:`n/(N \epsilon)` for negatives: each sample steps by :math:`2/\epsilon`, the same as in logistic boosting from even odds
    (:math:`g = 1/2`, :math:`h = 1/4`).

**Constant start.** All scores are equal in the first round. The tie rule averages over the orders of tied samples, so the
gradient is useful there and does not depend on the order of the rows. For metrics of labels, the positive update has no gradient
while no positive sample is predicted so; their default is the central update, which has one.

**Epsilon** has the unit of the scores: with the secant or the constant hessian, scores and epsilon k times as large give steps k
times as large. From a constant start it therefore only changes the scale of the scores (as long as ``lambda`` and the minimum
hessian of a leaf have no effect). After a warm-up, whose scores have a scale of their own, it does matter.

**Warm-up.** :func:`train_lightgbm` and :func:`train_xgboost` use the library's own objective in the first rounds.

The gradient is from Song, Schwing, Zemel, Urtasun, *Training deep neural networks via direct loss minimization*, ICML 2016; the
rest follows Friedman, *Greedy function approximation: a gradient boosting machine*, 2001.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from taskloss import _checks
from taskloss.direct import EPSILON, update_of
from taskloss.estimators.decisions import choose_threshold, is_thresholded
from taskloss.functional import direct_loss
from taskloss.kernels.sums import order_free_sum
from taskloss.tasks.registry import as_task, registered
from taskloss.tasks.task import Task

HESSIANS = ("secant", "constant", "balanced")
FLOOR = 0.01
"""Smallest secant hessian, as a share of the mean."""

Pair = tuple[np.ndarray, np.ndarray]


# --- reading the libraries' calls -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Batch:
    """Scores, target and queries of one call, in whichever form the library passed them."""

    scores: np.ndarray
    target: np.ndarray
    groups: np.ndarray | None

    @classmethod
    def of_call(cls, first: Any, second: Any, weight: Any, sizes: Any) -> _Batch:
        """Read ``(preds, data)`` of the native interfaces, or ``(y_true, y_pred, weight, group)`` of the scikit-learn ones."""
        if hasattr(second, "get_label"):
            scores, target, weight, sizes = first, second.get_label(), second.get_weight(), _group_sizes(second)
        elif hasattr(first, "get_label"):
            raise TypeError("expected (preds, data) or (y_true, y_pred), got the data set first; exchange the two")
        else:
            target, scores = first, second
        scores, target = np.asarray(scores, np.float64), np.asarray(target)
        if scores.ndim != 1 or scores.shape != target.shape:
            raise ValueError(
                f"predictions have shape {scores.shape} and labels {target.shape}; expected one score per sample. "
                "For several classes, train one model per class"
            )
        if weight is not None and np.size(weight) and not np.all(np.asarray(weight) == 1):
            raise ValueError(
                "the data have weights, but a metric belongs to the whole ranking or labeling and has no weights per sample; "
                "leave out weight=, sample_weight=, class_weight= and scale_pos_weight="
            )
        return cls(scores, _as_integers(target), None if sizes is None else _ids(np.asarray(sizes), len(scores)))


def _group_sizes(data: Any) -> np.ndarray | None:
    """Return the sizes of the queries of a LightGBM ``Dataset`` or an XGBoost ``DMatrix``; None without queries."""
    # Older versions of XGBoost only have the index where each query begins. Without queries, XGBoost returns an empty array and
    # LightGBM None.
    sizes = data.get_group() if hasattr(data, "get_group") else np.diff(data.get_uint_info("group_ptr").astype(np.int64))
    return None if sizes is None or len(sizes) == 0 else np.asarray(sizes)


def _ids(sizes: np.ndarray, samples: int) -> np.ndarray:
    """Return the query index of each sample, from the sizes of the queries."""
    if sizes.ndim != 1 or sizes.sum() != samples:
        raise ValueError(
            f"the group sizes sum to {sizes.sum()}, but there are {samples} samples; expected the number of rows of each query, "
            "in the order of the rows. Sorted query ids give sizes by np.unique(ids, return_counts=True)[1]"
        )
    return np.repeat(np.arange(len(sizes)), sizes.astype(np.int64))


def _as_integers(target: np.ndarray) -> np.ndarray:
    """Return labels as int64 if all of them are integers, else unchanged; the libraries store labels as float32."""
    integers = target.astype(np.int64) if np.isfinite(target).all() else target
    return integers if np.array_equal(integers, target) else target


# --- objectives and metrics -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Evaluation:
    """The task and its evaluation, for objectives and metrics. It has no state, so one object can serve several trainings."""

    task: Task
    threshold: float

    @property
    def __name__(self) -> str:
        """Name of the function, which XGBoost uses for a column of its log."""
        return f"loss_of_{_name_of(self.task)}"

    def _loss(self, batch: _Batch, *, gradient: bool, **settings: Any) -> tuple[float, np.ndarray | None]:
        """Return the task loss, and its direct gradient with respect to the scores if ``gradient``."""
        scores = torch.from_numpy(batch.scores - self.threshold).requires_grad_(gradient)
        groups = None if batch.groups is None else torch.from_numpy(batch.groups)
        value = direct_loss(scores, torch.from_numpy(batch.target), self.task, groups=groups, **settings)
        if gradient:
            value.backward()
        return value.item(), None if scores.grad is None else scores.grad.numpy()


@dataclass(frozen=True)
class Objective(_Evaluation):
    """Gradient and hessian of a task for boosting; see :func:`lightgbm_objective` and :func:`xgboost_objective`."""

    epsilon: float
    update: str
    hessian: str

    # LightGBM passes weight and group only to functions of four parameters; XGBoost passes weights by the name sample_weight.
    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> Pair:
        """Return gradient and hessian, float64 of shape ``(n,)``, for ``(preds, data)`` or ``(y_true, y_pred)``."""
        batch = _Batch.of_call(first, second, sample_weight, group)
        _, direct = self._loss(batch, gradient=True, epsilon=self.epsilon, update=self.update)
        gradient = len(batch.scores) * np.asarray(direct)
        return gradient, self._hessian(batch, gradient)

    def _hessian(self, batch: _Batch, gradient: np.ndarray) -> np.ndarray:
        nonzero = np.count_nonzero(gradient)
        if not nonzero:
            return np.ones_like(gradient)
        if self.hessian == "balanced":
            return _balanced(batch)
        secant = np.abs(gradient) / self.epsilon
        mean = order_free_sum(secant) / nonzero
        return np.full_like(secant, mean) if self.hessian == "constant" else np.maximum(secant, FLOOR * mean)

    def at_threshold(self, threshold: float) -> Objective:
        """Return the same objective for labels ``score > threshold``."""
        return replace(self, threshold=float(threshold))


@dataclass(frozen=True)
class LightGBMMetric(_Evaluation):
    """The exact metric in the form that LightGBM takes; see :func:`lightgbm_metric`."""

    def __call__(self, first: Any, second: Any, sample_weight: Any = None, group: Any = None) -> tuple[str, float, bool]:
        """Return the name, the value, and True for higher is better, for ``(preds, data)`` or ``(y_true, y_pred)``."""
        value, _ = self._loss(_Batch.of_call(first, second, sample_weight, group), gradient=False)
        return _name_of(self.task), 1.0 - value, True


@dataclass(frozen=True)
class XGBoostMetric(_Evaluation):
    """One minus the exact metric in the form that XGBoost takes; see :func:`xgboost_metric`."""

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[str, float] | float:
        """Return name and value for ``(preds, data)``, the value alone for ``(y_true, y_pred)``."""
        value, _ = self._loss(_Batch.of_call(first, second, sample_weight, None), gradient=False)
        return (self.__name__, value) if hasattr(second, "get_label") else value


def _balanced(batch: _Batch) -> np.ndarray:
    """Return hessians with the same sum for each class of each query, n in total.

    Samples of queries with one class only have no gradient, and get ``FLOOR``.
    """
    groups = np.zeros(len(batch.target), np.int64) if batch.groups is None else batch.groups
    cells = 2 * groups + (batch.target > 0).astype(np.int64)
    counts = np.bincount(cells, minlength=2 * (int(groups.max()) + 1)).reshape(-1, 2)
    defined = np.asarray((counts > 0).all(1))
    share = len(groups) / (2 * np.maximum(counts, 1) * defined.sum())
    return np.where(defined[:, None], share, FLOOR).reshape(-1)[cells]


def _name_of(task: Task) -> str:
    return next((name for name, kind in registered().items() if kind is type(task)), type(task).__name__)


def _check_task(task: Task | str) -> Task:
    task = as_task(task)
    if task.target_kind not in ("binary", "graded", "labels"):
        raise ValueError(
            f"{type(task).__name__} has several scores per sample; expected a metric of a ranking or of labels, which has one"
        )
    return task


def _make_objective(task: Task | str, epsilon: float, update: str | None, hessian: str, threshold: float) -> Objective:
    task = _check_task(task)
    _checks.check_choice("hessian", hessian, HESSIANS)
    if hessian == "balanced" and is_thresholded(task):
        raise ValueError(
            f"hessian='balanced' is for rankings, whose gradient has the units 1/P and 1/N; {type(task).__name__} has other "
            "units: use 'secant', which takes them from the gradient"
        )
    return Objective(task, float(threshold), _checks.check_positive("epsilon", epsilon), update_of(task, update), hessian)


def lightgbm_objective(
    task: Task | str,
    *,
    epsilon: float = EPSILON,
    update: str | None = None,
    hessian: str = HESSIANS[0],
    threshold: float = 0.0,
) -> Objective:
    """Return the direct gradient of a task as an objective of LightGBM.

    Pass it as ``params["objective"]`` to ``lightgbm.train`` or as ``objective=`` to ``LGBMClassifier``, ``LGBMRegressor`` or
    ``LGBMRanker``; both ways of calling and query groups are supported. Predictions are raw scores.

    Args:
        task: a metric of a ranking or of labels, or its name; it has one score per sample.
        epsilon: weight of the task loss in the augmented inference, in units of the raw scores.
        update: ``"positive"``, ``"negative"`` or ``"central"``; left out, the default of the task, as for
            :class:`taskloss.DirectLoss`.
        hessian: ``"secant"``, ``"constant"`` or ``"balanced"`` (rankings); see :mod:`taskloss.boosting`.
        threshold: for metrics of labels, the raw score above which a sample is predicted positive.

    >>> import numpy as np
    >>> objective = lightgbm_objective("average_precision")
    >>> gradient, hessian = objective(np.array([1, 0, 0]), np.zeros(3))     # y_true, y_pred
    >>> gradient.tolist(), hessian.tolist()
    ([-3.0, 1.5, 1.5], [3.0, 1.5, 1.5])
    """
    return _make_objective(task, epsilon, update, hessian, threshold)


def xgboost_objective(
    task: Task | str,
    *,
    epsilon: float = EPSILON,
    update: str | None = None,
    hessian: str = HESSIANS[0],
    threshold: float = 0.0,
) -> Objective:
    """Return the direct gradient of a task as an objective of XGBoost; arguments as for :func:`lightgbm_objective`.

    Pass it as ``obj=`` to ``xgboost.train`` or as ``objective=`` to ``XGBClassifier`` or ``XGBRegressor``. Queries need the
    native interface, because ``XGBRanker`` takes no functions. For metrics of labels set ``base_score`` to the threshold.

    >>> import numpy as np
    >>> gradient, hessian = xgboost_objective("roc_auc", hessian="balanced")(np.array([1, 0, 0]), np.zeros(3))
    >>> gradient.tolist(), hessian.tolist()
    ([-3.0, 1.5, 1.5], [1.5, 0.75, 0.75])
    """
    return _make_objective(task, epsilon, update, hessian, threshold)


def lightgbm_metric(task: Task | str, *, threshold: float = 0.0) -> LightGBMMetric:
    """Return the exact metric for ``feval=`` of ``lightgbm.train`` or ``eval_metric=`` of ``fit``; also set ``metric="None"``.

    With LightGBM's own objectives the predictions are probabilities, in both interfaces; a metric of labels then needs
    ``threshold=0.5``.

    >>> import numpy as np
    >>> lightgbm_metric("average_precision")(np.array([1, 0, 0]), np.array([2.0, 3.0, 1.0]))
    ('average_precision', 0.5, True)
    """
    return LightGBMMetric(_check_task(task), float(threshold))


def xgboost_metric(task: Task | str, *, threshold: float = 0.0) -> XGBoostMetric:
    """Return one minus the exact metric for ``custom_metric=`` of ``xgboost.train`` or ``eval_metric=`` of an estimator.

    It is the loss, not the metric, because XGBoost's early stopping minimizes every metric that it does not know.

    >>> import numpy as np
    >>> round(xgboost_metric("average_precision")(np.array([1, 0, 1]), np.array([3.0, 2.0, 1.0])), 4)
    0.1667
    """
    return XGBoostMetric(_check_task(task), float(threshold))


# --- two stages -------------------------------------------------------------------------------------------------------------


def train_lightgbm(
    params: Mapping[str, Any], data: Any, num_boost_round: int, objective: Objective, *, warm_up: int, **options: Any
) -> tuple[Any, Objective]:
    """Run ``lightgbm.train`` with ``params["objective"]`` in the first ``warm_up`` rounds and the direct gradient in the others.

    For metrics of labels, the threshold of the second stage is the best one on the training samples after the first. With rare
    positives all scores may lie below 0, where none is predicted positive and the positive update has no gradient.

    Args:
        params: parameters of LightGBM, with the objective of the first stage (``"binary"``, ``"lambdarank"``).
        data: a ``Dataset`` made with ``free_raw_data=False``, which LightGBM needs to continue from a model.
        num_boost_round: number of rounds of both stages together.
        objective: objective of the second stage.
        warm_up: number of rounds of the first stage, fewer than all.
        options: arguments of ``lightgbm.train`` in the second stage: ``valid_sets``, ``feval``, ``callbacks``. Early stopping
            sees only the rounds of this stage; ``best_iteration`` counts all rounds. Validation sets need
            ``free_raw_data=False`` too.

    Returns:
        The model with all trees, which predicts with ``raw_score=True``, and the objective with the threshold in use.
    """
    import lightgbm

    rounds = _second_stage_rounds(num_boost_round, warm_up)
    if data.free_raw_data:
        raise ValueError(
            "this lightgbm.Dataset frees its raw data, which the second stage needs; make it with free_raw_data=False"
        )
    first = lightgbm.train(dict(params), data, warm_up)
    objective = _at_best_threshold(objective, np.asarray(first.predict(data.get_data(), raw_score=True)), data.get_label())
    stage = {**params, "objective": objective}
    return lightgbm.train(stage, data, rounds, init_model=first, **options), objective


def train_xgboost(
    params: Mapping[str, Any], data: Any, num_boost_round: int, objective: Objective, *, warm_up: int, **options: Any
) -> tuple[Any, Objective]:
    """Run ``xgboost.train`` in two stages, as :func:`train_lightgbm` does. Predict with ``output_margin=True``.

    Args:
        params: parameters of XGBoost, with the objective of the first stage (``"binary:logistic"``, ``"rank:ndcg"``).
        data: a ``DMatrix``.
        num_boost_round: number of rounds of both stages together.
        objective: objective of the second stage.
        warm_up: number of rounds of the first stage, fewer than all.
        options: arguments of ``xgboost.train`` in the second stage: ``evals``, ``custom_metric``, ``early_stopping_rounds``.
    """
    import xgboost

    rounds = _second_stage_rounds(num_boost_round, warm_up)
    first = xgboost.train(dict(params), data, warm_up)
    objective = _at_best_threshold(objective, first.predict(data, output_margin=True), data.get_label())
    return xgboost.train(dict(params), data, rounds, obj=objective, xgb_model=first, **options), objective


def _second_stage_rounds(rounds: int, warm_up: int) -> int:
    """Return the number of rounds after the warm-up."""
    rounds, warm_up = _checks.check_count("num_boost_round", rounds), _checks.check_count("warm_up", warm_up)
    if warm_up >= rounds:
        raise ValueError(
            f"warm_up is {warm_up} of {rounds} rounds; expected fewer, so that some are left for the direct gradient"
        )
    return rounds - warm_up


def _at_best_threshold(objective: Objective, scores: np.ndarray, target: np.ndarray) -> Objective:
    """Return the objective with the best threshold on these samples, for metrics of labels."""
    if not is_thresholded(objective.task):
        return objective
    return objective.at_threshold(choose_threshold(objective.task, scores.astype(np.float64), _as_integers(target)))
