"""The methods that ``taskloss compare`` sets against each other, and ``taskloss train`` offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskloss.cli import boosting
from taskloss.cli.errors import usage_error
from taskloss.cli.metric import Metric
from taskloss.cli.outcome import Outcome, Part
from taskloss.estimators import LOSSES_BY_METHOD, TaskLossClassifier, TaskLossRanker
from taskloss.training import Progress

BASELINE, CONTENDER = "cross-entropy", "direct"
NETWORKS = {
    "cross_entropy": (BASELINE, "binary cross-entropy of the scores (of relevant or not), the same network and budget"),
    "direct": (CONTENDER, "direct loss minimization of the metric, positive update (away from worse answers)"),
    "direct_negative": ("direct negative", "direct loss minimization of the metric, negative update (toward better answers)"),
    "hinge": ("hinge", "structured hinge loss of the metric, margin-rescaled"),
    "lp": ("linear program", "the metric as a linear program in the scores"),
}
"""By the estimator's name: the name in tables, and what it is."""
VALIDATION_FRACTION = 0.2
"""Held out by boosting to stop by: as much as a network of the ensemble holds out."""


@dataclass(frozen=True)
class Method:
    """A way to train."""

    key: str
    """The estimator's name of it, or one of boosting."""
    description: str
    iterations: int | None
    """Most steps of a network; None for the estimator's default."""

    def fit(self, training: Part, test: Part, metric: Metric, seed: int, on_progress: Callable[[float], None]) -> Outcome:
        """Train, and score the test samples; ``on_progress`` hears which share is done."""
        if self.key in boosting.METHODS:
            return boosting.fit_boosting(
                self.key, training, test, metric, validation_fraction=VALIDATION_FRACTION, seed=seed, on_progress=on_progress
            )
        return _fit_network(self, training, test, metric, seed, on_progress)


def choose_methods(text: str | None, metric: Metric, *, queries: bool, iterations: int | None) -> dict[str, Method]:
    """The methods by their names in tables: those asked for, or all that apply; baseline and contender are always among them."""
    known = NETWORKS | boosting.METHODS
    wanted = (
        [word.strip().replace("-", "_") for word in text.split(",")] if text is not None else _applicable(metric, queries=queries)
    )
    for word in wanted:
        if word not in known:
            raise usage_error(f"--methods: {word!r} is not known; expected some of {', '.join(known)}")
    if not boosting.METHODS.keys().isdisjoint(wanted) and not boosting.is_installed():
        raise usage_error("--methods: lightgbm is not installed: pip install 'taskloss[boosting]'")
    if "lp" in wanted and (reason := _no_linear_program(metric, queries=queries)):
        raise usage_error(f"--methods: {reason}")
    chosen: dict[str, Method] = {}
    for word, (name, description) in known.items():
        if word in wanted or word in ("cross_entropy", "direct"):
            chosen[name] = Method(word, description, iterations)
    return chosen


def _applicable(metric: Metric, *, queries: bool) -> list[str]:
    left_out = {"lp"} if _no_linear_program(metric, queries=queries) else set()
    left_out |= set() if boosting.is_installed() else set(boosting.METHODS)
    return [name for name in NETWORKS | boosting.METHODS if name not in left_out]


def _no_linear_program(metric: Metric, *, queries: bool) -> str:
    """Why there is no linear program for the metric; empty if there is one."""
    if queries:
        return "lp knows no queries"
    try:
        LOSSES_BY_METHOD["lp"](metric.task, 1.0)
    except ValueError as error:
        return str(error)
    return ""


def build_estimator(method: str, metric: Metric, *, queries: bool, iterations: int | None, **settings: Any) -> Any:
    """The estimator of a method, with the defaults of the library."""
    steps: dict[str, Any] = {} if iterations is None else {"max_iter": iterations}
    kind = TaskLossRanker if queries else TaskLossClassifier
    return kind(metric.task, method=method, **steps, **settings)


def _fit_network(
    method: Method, training: Part, test: Part, metric: Metric, seed: int, on_progress: Callable[[float], None]
) -> Outcome:
    queries = training.groups is not None
    model = build_estimator(method.key, metric, queries=queries, iterations=method.iterations, random_state=seed)
    model.set_params(callback=share_of(model, on_progress))
    fit_estimator(model, training, metric)
    course = mean_course([result.metrics for result in model.history_])
    best = round(float(np.mean([result.best_iteration for result in model.history_])))
    if queries:
        return Outcome(model.predict(test.features), None, None, course, best)
    # The zero of the decision function is the threshold that held-out samples chose.
    return Outcome(model.decision_function(test.features), model.predict_proba(test.features)[:, 1], 0.0, course, best)


def fit_estimator(model: Any, samples: Part, metric: Metric) -> None:
    """Fit a classifier, or a ranker to grades or to relevant or not, as the metric has it."""
    if samples.groups is None:
        model.fit(samples.features, samples.target)
    else:
        graded = metric.task.target_kind == "graded"
        model.fit(samples.features, samples.target if graded else (samples.target > 0).astype(np.int64), groups=samples.groups)


def share_of(model: Any, on_progress: Callable[[float], None]) -> Callable[[int, Progress], None]:
    """A callback of the estimator that tells how much of the training is done, at most."""

    def tell(member: int, progress: Progress) -> None:
        on_progress(min(1.0, (member + min(1.0, progress.iteration / model.max_iter)) / model.members))

    return tell


def mean_course(courses: list[tuple[float, ...]]) -> list[float]:
    """The mean learning curve of the members; one that has stopped keeps its last value.

    >>> mean_course([(0.0, 1.0), (0.5, 0.5, 2.0)])
    [0.25, 0.75, 1.5]
    """
    longest = max(map(len, courses))
    padded = [[*course, *[course[-1]] * (longest - len(course))] for course in courses]
    mean: list[float] = np.mean(padded, axis=0).tolist()
    return mean


def describe_settings(iterations: int | None) -> dict[str, str]:
    """The settings of the networks, for a reader of the report."""
    # No metric: it plays no part in these settings.
    model = build_estimator("direct", Metric("", None), queries=False, iterations=iterations)  # type: ignore[arg-type]
    return {
        "Networks": f"the mean of {model.members} networks with hidden layers of {' and '.join(map(str, model.hidden))} "
        f"units, ReLU; each holds out one of {model.folds} folds of the training samples to stop by",
        "Features": f"scaling: {model.scaling}, fitted on the training samples",
        "Optimizer": f"AdamW, learning rate {model.learning_rate}, weight decay {model.weight_decay}, full batch up to "
        f"{model.batch_size:,} samples",
        "Stopping": f"at most {model.max_iter} steps, or {model.patience} without a better validation metric",
        "Epsilon": f"{model.epsilon:g}, of the direct losses",
        "Threshold": "best for the metric on held-out training samples",
    }
