"""The training methods of the command line: names, labels and descriptions.

This module imports nothing that loads slowly, so that ``--help`` can list the methods.
"""

from __future__ import annotations

from typing import NamedTuple

BASELINE, CONTENDER = "cross-entropy", "direct"
"""Labels of the two methods that every comparison has."""
DEFAULT = "auto"
"""Label of the method that a comparison recommends unless another one is better."""
BOOSTING_WARM_UP = 50
"""Trees before the direct gradient begins."""


class MethodInfo(NamedTuple):
    """What a reader sees of a method."""

    label: str
    """Its name in tables and charts."""
    description: str


AUTO, LIGHTGBM, RANDOM_FOREST, DIRECT_LIGHTGBM = "auto", "lightgbm", "random_forest", "direct_lightgbm"
NETWORK_METHODS = {
    "cross_entropy": MethodInfo(
        BASELINE,
        "cross-entropy of the scores, the same network and budget (several classes: of their softmax; graded relevance counts as "
        "relevant or not)",
    ),
    "direct": MethodInfo(
        CONTENDER,
        "direct loss minimization of the metric, with the default update of that metric",
    ),
    "direct_positive": MethodInfo(
        "direct positive", "direct loss minimization of the metric, positive update (away from worse answers)"
    ),
    "direct_negative": MethodInfo(
        "direct negative", "direct loss minimization of the metric, negative update (toward better answers)"
    ),
    "direct_central": MethodInfo(
        "direct central", "direct loss minimization of the metric, central update (away from worse, toward better answers)"
    ),
    "hinge": MethodInfo("hinge", "structured hinge loss of the metric, margin-rescaled"),
    "lp": MethodInfo("linear program", "the metric as a linear program in the scores"),
}
"""Methods that train networks, by their names in :data:`taskloss.estimators.LOSSES_BY_METHOD`, in the order of the table."""

TREES = {
    LIGHTGBM: MethodInfo(
        "LightGBM",
        "gradient boosting of decision trees by LightGBM, the same folds and stopping: log loss (LambdaRank for queries)",
    ),
    RANDOM_FOREST: MethodInfo(
        "random forest", "a random forest by LightGBM on the same folds: log loss (squared error of grades)"
    ),
    DIRECT_LIGHTGBM: MethodInfo(
        "direct LightGBM",
        f"LightGBM's boosting with the direct gradient of the metric after the first {BOOSTING_WARM_UP} trees, the same folds",
    ),
}
"""Methods that train trees; they need LightGBM."""
AUTO_METHOD = {
    AUTO: MethodInfo(
        DEFAULT,
        "the blend of cross-entropy, direct, hinge, LightGBM and a random forest on the same folds: the mean of their "
        "standardized scores, one half for the networks and one for the trees",
    )
}
ESTIMATOR_METHODS = AUTO_METHOD | NETWORK_METHODS | {name: TREES[name] for name in (LIGHTGBM, RANDOM_FOREST)}
"""Methods of the estimators, which ``taskloss train`` takes."""
ALL_METHODS = ESTIMATOR_METHODS | TREES
