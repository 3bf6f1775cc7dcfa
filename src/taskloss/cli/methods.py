"""The training methods at work: chosen for a metric, fitted to training samples, evaluated on test samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss.cli import boosting
from taskloss.cli.errors import usage_error
from taskloss.cli.method_result import MethodResult, mean_curve
from taskloss.cli.method_table import (
    ALL_METHODS,
    AUTO,
    BASELINE,
    CONTENDER,
    DIRECT_LIGHTGBM,
    ESTIMATOR_METHODS,
    TREES,
)
from taskloss.cli.metric import Metric
from taskloss.cli.splits import Subset
from taskloss.cli.time_left import TrainingClock
from taskloss.estimators import LOSSES_BY_METHOD, EstimatorSettings, TaskLossClassifier, TaskLossRanker
from taskloss.estimators.batch_size import FULL_BATCH, LARGE_BATCH, RAREST_PER_BATCH, SMALL_BATCH
from taskloss.estimators.lightgbm_trees import max_steps
from taskloss.estimators.methods import lightgbm_is_installed, read_methods
from taskloss.estimators.problem import Problem
from taskloss.training import Progress

INSTALL_LIGHTGBM = "pip install 'taskloss[estimators]'"
RELATIVE_TIME_OF_TREES = 0.2
"""About the time that the trees of a member take, as a share of that of a network."""


@dataclass(frozen=True)
class Method:
    """A method with its settings."""

    name: str
    """One of :data:`~taskloss.cli.method_table.ALL_METHODS`."""
    description: str
    settings: dict[str, Any]
    """Settings of the estimator that differ from its defaults."""

    def fit(
        self, training: Subset, test: Subset, metric: Metric, seed: int, on_progress: Callable[[float], None]
    ) -> MethodResult:
        """Train a model and predict the test samples; ``on_progress`` is called with the share of the training that is done."""
        if self.name in ESTIMATOR_METHODS:
            return _fit_estimator(self, training, test, metric, seed, on_progress)
        settings = EstimatorSettings(metric.task, **self.settings)
        return boosting.fit_direct(training, test, metric, settings, seed=seed, on_progress=on_progress)


@dataclass(frozen=True)
class Plan:
    """What a comparison trains and tests."""

    metric: Metric
    methods: dict[str, Method]
    """Methods by label, in the order of the table."""
    splits: int
    """Number of splits."""
    seed: int
    """Seed of the first split; the seeds of the others follow it."""


def estimator_settings(*, iterations: int | None) -> dict[str, Any]:
    """Return the settings of the estimator that were given on the command line, by the estimator's names for them."""
    given = {"max_iter": iterations}
    return {name: value for name, value in given.items() if value is not None}


def choose_methods(text: str | None, metric: Metric, *, queries: bool, settings: dict[str, Any]) -> dict[str, Method]:
    """Return methods by label: those named in ``text``, or all that apply; baseline and contender are always among them."""
    if text is None:
        wanted = _applicable(metric, queries=queries)
    else:
        wanted = [name.strip().replace("-", "_") for name in text.split(",")]
    for name in wanted:
        if name not in ALL_METHODS:
            raise usage_error(f"--methods: {name!r} is not known; expected some of {', '.join(ALL_METHODS)}")
    if (same := f"direct_{metric.task.default_update}") in wanted:
        raise usage_error(f"--methods: for {metric.label}, {same} is the same as direct, which is always there; leave it out")
    if not TREES.keys().isdisjoint(wanted) and not lightgbm_is_installed():
        raise usage_error(f"--methods: lightgbm is not installed: {INSTALL_LIGHTGBM}")
    if DIRECT_LIGHTGBM in wanted and metric.classes > 2:
        raise usage_error(
            f"--methods: {DIRECT_LIGHTGBM} has one score per sample, not one for each of several classes; leave it out, or give "
            "--positive LABEL to set one class against all others"
        )
    if "lp" in wanted and (reason := _why_no_linear_program(metric, queries=queries)):
        raise usage_error(f"--methods: {reason}")
    return {
        info.label: Method(name, info.description, settings)
        for name, info in ALL_METHODS.items()
        if name in wanted or info.label in (BASELINE, CONTENDER)
    }


def why_left_out(text: str | None, metric: Metric) -> dict[str, str]:
    """Return the reason for each method, by label, that :func:`choose_methods` leaves out for want of LightGBM."""
    if text is not None or lightgbm_is_installed():
        return {}
    reason = f"LightGBM is not installed, and {AUTO} goes without trees: {INSTALL_LIGHTGBM}"
    return {info.label: reason for name, info in TREES.items() if name != DIRECT_LIGHTGBM or metric.classes <= 2}


def _applicable(metric: Metric, *, queries: bool) -> list[str]:
    # One more update than that of "direct", not a third.
    other = "direct_positive" if metric.task.default_update == "negative" else "direct_negative"
    left_out = {"direct_positive", "direct_negative", "direct_central"} - {other}
    left_out |= {"lp"} if _why_no_linear_program(metric, queries=queries) else set()
    left_out |= {DIRECT_LIGHTGBM} if metric.classes > 2 else set()
    left_out |= set() if lightgbm_is_installed() else set(TREES)
    return [name for name in ALL_METHODS if name not in left_out]


def _why_no_linear_program(metric: Metric, *, queries: bool) -> str:
    """Return the reason why the metric has no linear program here, or an empty string if it has one."""
    if queries:
        return "lp does not support queries"
    try:
        LOSSES_BY_METHOD["lp"](metric.task, 1.0)
    except ValueError as error:
        return str(error)
    return ""


def build_estimator(method: str, metric: Metric, *, queries: bool, **settings: Any) -> Any:
    """Return an unfitted estimator of a method, with the defaults of the library where no setting is given."""
    return (TaskLossRanker if queries else TaskLossClassifier)(metric.task, method=method, **settings)


def _fit_estimator(
    method: Method, training: Subset, test: Subset, metric: Metric, seed: int, on_progress: Callable[[float], None]
) -> MethodResult:
    queries = training.groups is not None
    estimator = build_estimator(method.name, metric, queries=queries, random_state=seed, **method.settings)
    estimator.set_params(callback=progress_callback(estimator, lambda share, left: on_progress(share), metric))
    fit_estimator(estimator, training, metric)
    validation_metric = mean_curve([result.metrics for result in estimator.history_])
    best_step = round(float(np.mean([result.best_iteration for result in estimator.history_])))
    if queries:
        return MethodResult(estimator.predict(test.features), None, None, validation_metric, best_step, estimator.predict)
    probabilities = estimator.predict_proba(test.features)
    return MethodResult(
        scores=estimator.decision_function(test.features),
        probabilities=probabilities if metric.classes > 2 else probabilities[:, 1],
        # The decision function is shifted so that the threshold chosen on held-out samples is zero.
        threshold=None if metric.classes > 2 else 0.0,
        validation_metric=validation_metric,
        best_step=best_step,
        score=estimator.decision_function,
    )


def fit_estimator(estimator: Any, samples: Subset, metric: Metric) -> None:
    """Fit a classifier to labels, or a ranker to relevance as the metric reads it."""
    if samples.groups is None:
        estimator.fit(samples.features, samples.target)
    else:
        estimator.fit(samples.features, metric.relevance(samples.target), groups=samples.groups)


def progress_callback(
    estimator: Any, on_progress: Callable[[float, float | None], None], metric: Metric
) -> Callable[[int, Progress], None]:
    """Return a callback for the estimator that passes on the share of the training that is done, and the seconds left."""
    warm_up = Problem(metric.task, estimator.method, estimator.epsilon).needs_warm_up
    methods = np.repeat(read_methods(estimator.method), estimator.members)
    costs = [RELATIVE_TIME_OF_TREES if method in TREES else 1.0 for method in methods]
    clock = TrainingClock(costs, [max_steps(method, estimator.max_iter) for method in methods], warm_up=warm_up)
    return lambda member, progress: on_progress(*clock.update(member, progress.iteration))


def describe_settings(settings: dict[str, Any], metric: Metric) -> dict[str, str]:
    """Return the settings of the networks in words, for the report; ``settings`` are those that differ from the defaults."""
    model = build_estimator("direct", metric, queries=False, **settings)
    decisions = {"Threshold": "the best one for the metric on held-out training samples"}
    if metric.classes > 2:
        decisions = {
            "Decisions": "the class with the highest log-odds; a metric of decisions adds an offset to each, those that are "
            "best for it on held-out training samples"
        }
    return {
        "Networks": f"the mean of {model.members} networks with hidden layers of {' and '.join(map(str, model.hidden))} "
        f"units, ReLU; each holds out one of {model.folds} folds of the training samples for early stopping",
        "Features": f"scaling: {model.scaling}, fitted on the training samples",
        "Optimizer": f"AdamW, learning rate {model.learning_rate}, weight decay {model.weight_decay}",
        "Batches": f"each step sees all samples; of more than {FULL_BATCH:,} it sees {SMALL_BATCH:,}, or as many more (up to "
        f"{LARGE_BATCH:,}) as it takes to have {RAREST_PER_BATCH} of the rarest class; {LARGE_BATCH:,} for queries and metrics "
        "of the top of a list",
        "Stopping": f"after {model.max_iter} steps, or after {model.patience} steps without a better validation metric",
        "Epsilon": f"{model.epsilon:g}, for the direct losses",
        **decisions,
    }
