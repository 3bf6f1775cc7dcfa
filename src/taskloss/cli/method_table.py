"""The training methods of the command line: names, labels and descriptions.

This module imports nothing that loads slowly, so that ``--help`` can list the methods.
"""

from __future__ import annotations

from typing import NamedTuple

BASELINE, CONTENDER = "cross-entropy", "direct"
"""Labels of the two methods that every comparison has."""
DEFAULT = BASELINE
"""Label of the method that a comparison recommends unless another one is better."""
BOOSTING_ROUNDS, BOOSTING_PATIENCE, BOOSTING_WARM_UP = 500, 50, 50
"""Most trees, trees without improvement before stopping, and trees before the direct gradient begins."""


class MethodInfo(NamedTuple):
    """What a reader sees of a method."""

    label: str
    """Its name in tables and charts."""
    description: str


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

LIGHTGBM, DIRECT_LIGHTGBM = "lightgbm", "direct_lightgbm"
BOOSTING_METHODS = {
    LIGHTGBM: MethodInfo(
        "LightGBM",
        f"gradient boosting of decision trees by LightGBM: log loss (LambdaRank for queries), up to {BOOSTING_ROUNDS} trees of "
        f"31 leaves (for each of several classes), learning rate 0.05, stopped after {BOOSTING_PATIENCE} trees without a better "
        "validation metric",
    ),
    DIRECT_LIGHTGBM: MethodInfo(
        "direct LightGBM", f"the same with the direct gradient of the metric after the first {BOOSTING_WARM_UP} trees"
    ),
}
"""Methods that train trees; they need LightGBM."""
ALL_METHODS = NETWORK_METHODS | BOOSTING_METHODS
