r"""Base of the labeling tasks: metrics of confusion counts.

An answer labels every sample 0 or 1. With ``v_+`` and ``v_-`` the weights of positives and negatives, the joint score is

.. math:: F = \sum_i v_i\, s_i\, \hat y_i, \qquad \hat y \in \{0, 1\}^n ,

so the prediction is ``s > 0`` whatever the (positive) weights are. They say what epsilon means: each task chooses them so that
flipping one sample changes its loss by about ``v_i``; then samples up to about epsilon away from zero take part.

A score of exactly 0 is predicted 0, in the loss as in :mod:`taskloss.metrics`; in the feature of the prediction it counts 1/2,
so that constant scores of zero give a useful gradient. The rule for other ties stands in :mod:`taskloss.kernels.labeling.flips`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from taskloss import _checks
from taskloss.kernels.labeling import reading
from taskloss.kernels.labeling import samples as passes
from taskloss.labelings import Labelings, labeling_values_shape, read_labelings
from taskloss.layout import Layout, ranking_weights
from taskloss.tasks.task import Call, Inference, Task

Weights = tuple[np.ndarray, np.ndarray]
"""``v_+`` and ``v_-`` of each labeling, float64 of shape ``(R,)`` each."""


class Labeling(NamedTuple):
    """An answer for each of R labelings."""

    thresholds: np.ndarray
    """Above them samples are labeled 1; threshold and share of the positives, then of the negatives, float64 ``(4, R)``."""
    true_positives: np.ndarray
    """``(R,)``."""
    false_positives: np.ndarray
    """``(R,)``."""


class LabelingTask(Task):
    """Base of the tasks on confusion counts: a metric of true and false positives, with exact loss-augmented inference."""

    target_kind: ClassVar[str] = "labels"
    options: ClassVar[frozenset[str]] = frozenset({"dim", "groups", "ignore_index", "weight"})
    default_update: ClassVar[str] = "central"

    @abstractmethod
    def loss_of_counts(
        self, true_positives: np.ndarray, false_positives: np.ndarray, positives: np.ndarray, negatives: np.ndarray
    ) -> np.ndarray:
        """Return the task loss for these confusion counts, four int64 arrays of one shape."""

    def loss_of(self, labelings: Labelings, true_positives: np.ndarray, false_positives: np.ndarray) -> np.ndarray:
        """Return the task loss of these labelings with these true and false positives, ``(R,)``."""
        return self.loss_of_counts(true_positives, false_positives, labelings.tallies.positives, labelings.tallies.negatives)

    @abstractmethod
    def sample_weights(self, labelings: Labelings) -> Weights:
        """Return the weights in the joint score, above zero."""

    def weights_at_prediction(self, labelings: Labelings, weights: Weights) -> Weights:
        """Return weights that do not exceed the change of the loss when one sample of the prediction flips.

        Where nearly all samples are predicted positive, that change is far below the ``weights``, which suit a good prediction,
        and epsilon would reach hardly any of them. It is taken with at least one true positive: without any, most metrics do not
        depend on the false positives. Where it is zero, or a class is missing, the weights stay.
        """
        positives, negatives, a, b, *_ = labelings.tallies
        both = (positives > 0) & (negatives > 0)
        a = np.maximum(a, np.minimum(positives, 1))
        other_a, other_b = np.where(a < positives, a + 1, a - both), np.where(b > 0, b - 1, b + both)
        loss = self.loss_of(labelings, a, b)
        changes = abs(self.loss_of(labelings, other_a, b) - loss), abs(self.loss_of(labelings, a, other_b) - loss)
        of_positives, of_negatives = (
            np.where(both & (change > 0), np.minimum(weight, change), weight)
            for weight, change in zip(weights, changes, strict=True)
        )
        return of_positives, of_negatives

    def augment_both(self, labelings: Labelings, weights: Weights, epsilon: float) -> tuple[Weights, Labeling, Labeling]:
        """Return :meth:`weights_at_prediction`, and with them the labelings for the weights epsilon and minus epsilon."""
        local = self.weights_at_prediction(labelings, weights)
        return local, self.augment(labelings, local, epsilon), self.augment(labelings, local, -epsilon)

    @abstractmethod
    def augment(self, labelings: Labelings, weights: Weights, weight: float) -> Labeling:
        """Return the labelings that maximize ``F + weight * L``; ``weights`` are those of the joint score."""

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> LabelingInference:
        self.refuse_unknown(call)
        layout, labelings = read_labelings(scores, target, dims=call.dims, groups=call.groups, ignore_index=call.ignore_index)
        return LabelingInference(self, layout, labelings, ranking_weights(layout, call.weight))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return labeling_values_shape(scores, target, dims, groups)


class ConfusionTask(LabelingTask):
    """Base of the tasks with a metric of :mod:`taskloss.kernels.labeling.confusion` and its solver in ``flips``."""

    metric: ClassVar[int]
    """The metric's number in :mod:`taskloss.kernels.labeling.confusion`."""
    loss_scale: ClassVar[float] = 1.0
    """``L = loss_scale * (1 - metric)``."""
    zero_division: float
    """The value of the metric where it is 0/0."""

    @property
    def beta2(self) -> float:
        """The square of the F-score's beta."""
        return 1.0

    def __post_init__(self) -> None:
        _checks.check_zero_division(self.zero_division)

    def loss_of_counts(
        self, true_positives: np.ndarray, false_positives: np.ndarray, positives: np.ndarray, negatives: np.ndarray
    ) -> np.ndarray:
        counts = (true_positives, false_positives, positives, negatives)
        return reading.confusion_losses(self.metric, self.loss_scale, *counts, self.beta2, float(self.zero_division))

    def augment(self, labelings: Labelings, weights: Weights, weight: float) -> Labeling:
        loss_weight, zero_division = weight * self.loss_scale, float(self.zero_division)
        thresholds, counts = reading.augment(
            self.metric, loss_weight, labelings.samples, labelings.tallies, weights, self.beta2, zero_division
        )
        return Labeling(thresholds, counts[0], counts[1])

    def augment_both(self, labelings: Labelings, weights: Weights, epsilon: float) -> tuple[Weights, Labeling, Labeling]:
        options = labelings.samples, labelings.tallies, weights, self.beta2, float(self.zero_division)
        local, worse, better = reading.augment_both(self.metric, epsilon, self.loss_scale, *options)
        return local, Labeling(worse[0], *worse[1]), Labeling(better[0], *better[1])


# As in ``Labeling.thresholds``.
_PREDICTED = np.array([[0.0], [0.5], [0.0], [0.5]])
_TRUE = np.array([[-np.inf], [0.5], [np.inf], [0.5]])


class LabelingInference(Inference[Labeling]):
    """Exact inference for all the labelings of one batch."""

    def __init__(self, task: LabelingTask, layout: Layout, labelings: Labelings, weights: np.ndarray) -> None:
        self.values_shape = layout.values_shape
        self.defined = labelings.nonempty
        self.weights = weights
        self._task = task
        self._layout = layout
        self._labelings = labelings
        self._sample_weights = task.sample_weights(labelings)

    def _answer(self, thresholds: np.ndarray, true_positives: np.ndarray, false_positives: np.ndarray) -> Labeling:
        """Return the answer with the same thresholds, of shape ``(4, 1)``, for all the labelings."""
        table = np.empty((4, len(self.defined)))
        table[:] = thresholds
        return Labeling(table, true_positives, false_positives)

    def predict(self) -> Labeling:
        tallies = self._labelings.tallies
        return self._answer(_PREDICTED, tallies.positives_above, tallies.negatives_above)

    def augment(self, weight: float) -> Labeling:
        return self._task.augment(self._labelings, self._sample_weights, weight)

    def augment_both(self, epsilon: float) -> tuple[LabelingInference, Labeling, Labeling]:
        weights, worse, better = self._task.augment_both(self._labelings, self._sample_weights, epsilon)
        other = LabelingInference.__new__(LabelingInference)
        vars(other).update(vars(self), _sample_weights=weights)
        return other, worse, better

    def truth(self) -> Labeling:
        tallies = self._labelings.tallies
        return self._answer(_TRUE, tallies.positives, np.zeros_like(tallies.negatives))

    def loss(self, answer: Labeling) -> np.ndarray:
        return self._task.loss_of(self._labelings, answer.true_positives, answer.false_positives)

    def score_difference(self, answer: Labeling, reference: Labeling) -> np.ndarray:
        return passes.score_difference(
            self._labelings.samples,
            self._labelings.tallies,
            answer.thresholds,
            reference.thresholds,
            self._sample_weights,
        )

    def feature_difference(self, answer: Labeling, reference: Labeling, factor: np.ndarray) -> np.ndarray:
        samples = self._labelings.samples
        out = np.empty(len(samples.scores), samples.scores.dtype)
        thresholds = answer.thresholds, reference.thresholds
        passes.write_feature_difference(samples, *thresholds, factor, *self._sample_weights, out)
        return out.reshape(self._layout.shape)

    def owner(self) -> np.ndarray:
        return self._layout.full_owner()
