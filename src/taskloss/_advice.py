"""Warnings about legal calls that will hardly do what the caller wants, each given once per module, with the cure.

A loss hands every call to the :class:`Advice` of its module (functions share one per task and rule). Only the first calls and
every ``EVERY``-th later one are examined, so the checks cost nothing in a training loop. They read the inputs and the outputs of
a call that has been computed, and change neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from taskloss._warn import warn_caller
from taskloss.layout import to_numpy
from taskloss.tasks.registry import task_of
from taskloss.tasks.structured import Structured
from taskloss.tasks.task import Call, Inference, Task

FIRST = 8
"""So many calls of a module are examined at first; shapes and signs only there."""
EVERY = 32
"""Later, every call whose number is divisible by this."""
PATIENCE = 3
"""Examined calls in a row without a gradient before a warning, except that the very first call warns at once."""


class Advice:
    """What has been seen of a module's calls, and which warnings it has given."""

    __slots__ = ("calls", "given", "one_sign", "without_gradient")

    def __init__(self) -> None:
        self.calls = 0
        self.given: set[str] = set()
        self.without_gradient = 0
        """Examined training calls in a row with a zero gradient and a value that is not at its best."""
        self.one_sign = 0
        """Training calls from the start whose scores have the same sign: so many above zero, or minus so many below."""

    def examine(self, inputs: tuple[Any, ...], value: Tensor, gradient: Tensor) -> None:
        """Count a call, and warn where it is due; arguments and results are those of ``taskloss.direct._evaluate_now``."""
        self.calls += 1
        if (self.calls <= FIRST or not self.calls % EVERY) and inputs[0].numel():
            self._examine(_SeenCall(inputs, value, gradient))

    def _examine(self, call: _SeenCall) -> None:
        if self.calls <= FIRST:
            self._check_shapes(call)
            if call.with_gradient:
                self.check_update(call.task, call.rule)
            if call.with_gradient and call.task.target_kind == "labels":
                self._check_signs(call)
        if call.value_is_zero:
            self._check_undefined(call)
        elif call.with_gradient and call.rule in _REACH:
            self._check_gradient(call)

    def _warn(self, topic: str, message: str) -> None:
        if topic not in self.given:
            self.given.add(topic)
            warn_caller(message)

    # --- the checks ---------------------------------------------------------------------------------------------------------

    def check_update(self, task: Task, update: str) -> None:
        """Warn of the positive update of a cost or regret."""
        if update == "positive" and isinstance(task, Structured) and task.loss in ("cost", "regret"):
            self._warn(
                "update",
                f"the positive update of loss={task.loss!r} moves toward its own prediction and away from the most expensive "
                "answer within reach of epsilon: it never looks at a better answer, and from scratch it learns slowly or not at "
                "all. Use update='central', the default of this task, or 'negative' if costs at equal features hardly vary",
            )

    def _check_shapes(self, call: _SeenCall) -> None:
        """Warn where a matrix of scores is probably meant in another way than it is read."""
        if not call.is_plain_matrix:
            return
        name, (rows, columns) = type(call.task).__name__, call.scores.shape
        if call.task.target_kind == "labels":
            if call.target.ndim == 1 and columns == 2:
                self._warn(
                    "shape",
                    f"scores of shape ({rows}, 2) with a target of shape ({rows},): each column is a labeling of its own, class "
                    f"0 and class 1 against the rest, and the loss is the mean of the two. For {name} of class 1 write "
                    "criterion(scores[:, 1] - scores[:, 0], target); if you mean both columns, say so: "
                    "criterion(scores, target, dim=0)",
                )
            elif call.target.ndim == 2 and rows == 1 < columns:
                self._warn("shape", f"{call.many_of_one}; if you mean one labeling of {columns} samples, {_SQUEEZE}")
        elif call.is_ranking and rows >= columns > 1:
            by_column, by_row = call.has_two_classes(0), call.has_two_classes(1)
            if 0 < 2 * by_column.sum() < columns and by_row.all():
                self._warn(
                    "shape",
                    f"{columns - by_column.sum()} of the {columns} columns of a {tuple(call.scores.shape)} matrix of scores have "
                    "one class only and give no loss, while every row has both: rankings run along dim 0, one per column. If "
                    "each row is a ranking (queries by documents), write criterion(scores, target, dim=1)",
                )

    def _check_undefined(self, call: _SeenCall) -> None:
        """Warn where no item of the call is defined, so that a zero loss looks like a perfect one."""
        if "undefined" in self.given or call.read().defined.any():
            return
        if not call.is_ranking:
            self._warn("undefined", f"all targets of this call are {call.ignore_index}, the ignore_index: the loss is zero")
        elif call.is_plain_matrix and call.scores.shape[1] > 1 and call.has_two_classes(1).all():
            row = f"; to rank the one row, {_SQUEEZE}" if len(call.scores) == 1 else ""
            self._warn(
                "undefined",
                f"every ranking of this call is undefined, so the loss and its gradient are zero: scores of shape "
                f"{tuple(call.scores.shape)} are one ranking per column, and each column has one class only. If each row is a "
                f"ranking (queries by documents), write criterion(scores, target, dim=1){row}",
            )
        else:
            self._warn(
                "undefined",
                "every ranking of this call is undefined (one class only), so the loss and its gradient are zero. Train on "
                "larger batches or on batches with samples of both classes; on_one_class='raise' makes it an error",
            )

    def _check_signs(self, call: _SeenCall) -> None:
        """Warn where the decisions of all samples have been the same since the first call."""
        scores = call.kept_scores()
        low, high = (float(scores.min()), float(scores.max())) if scores.size else (0.0, 0.0)
        sign = (low > 0) - (high < 0)
        self.one_sign = self.one_sign + sign if sign and abs(self.one_sign) == self.calls - 1 else 0
        if not call.has_both_labels():
            return
        if abs(self.one_sign) < FIRST:
            return
        if 0 <= low < high <= 1:
            self._warn(
                "sign",
                f"all scores of the first {FIRST} calls are above 0, now between {low:.3g} and {high:.3g}, as if they were "
                "probabilities. Labels are predicted at score 0, so every sample is predicted positive. Leave out the sigmoid or "
                "softmax and pass logits, or scores - 0.5; without one, let the last layer start with a bias near 0",
            )
        else:
            side, label = ("above", "positive") if sign > 0 else ("below", "negative")
            self._warn(
                "sign",
                f"all scores of the first {FIRST} calls are {side} 0, so every sample is predicted {label}. Pass logits, and let "
                "the last layer start with a bias near 0 (or shift it so that 0 is a good threshold)",
            )

    def _check_gradient(self, call: _SeenCall) -> None:
        """Warn where training stands still: no gradient, and a better answer exists."""
        zero = not bool(call.gradient.any()) and call.can_improve()
        self.without_gradient = self.without_gradient + 1 if zero else 0
        if zero and (self.calls == 1 or self.without_gradient == PATIENCE):
            largest = float(np.abs(call.kept_scores()).max())
            self._warn(
                "gradient",
                f"the gradient of this loss is zero, although its value, {call.value:.4g}, is not at its best: "
                f"{_REACH[call.rule].format(epsilon=call.epsilon, largest=largest)}",
            )


_REACH = {
    "positive": "the positive update has no gradient while no worse answer is within reach of epsilon={epsilon:g} (the largest "
    "score is {largest:.3g}). Use update='central', which also moves toward better answers, or a larger epsilon",
    "negative": "no better answer is within reach of epsilon={epsilon:g} (the largest score is {largest:.3g}). Use a larger "
    "epsilon, or scores of a smaller scale",
    "central": "no other answer is within reach of epsilon={epsilon:g} (the largest score is {largest:.3g}). Use a larger "
    "epsilon, or scores of a smaller scale",
}
"""Why each of the direct updates has no gradient, and what to do."""
_SQUEEZE = "write criterion(scores.squeeze(0), target.squeeze(0))"

_shared: dict[tuple[int, str], Advice] = {}


def shared_advice(task: int, rule: str) -> Advice:
    """Return the advice of the functional forms, one per handle of a task and rule."""
    return _shared.setdefault((task, rule), Advice())


class _SeenCall:
    """One call with its results."""

    def __init__(self, inputs: tuple[Any, ...], value: Tensor, gradient: Tensor) -> None:
        self.scores, self.target, self._groups, handle, self._dims, _, self.with_gradient, *rest = inputs
        self._weight, self._num_relevant, self.ignore_index, self.rule, self.epsilon = rest
        self.task: Task = task_of(handle)
        self._value, self.gradient = value, gradient

    @property
    def value(self) -> float:
        """The loss; the mean of several values."""
        return float(self._value.mean())

    @property
    def value_is_zero(self) -> bool:
        return not bool(self._value.any())

    @property
    def is_ranking(self) -> bool:
        return self.task.target_kind in ("binary", "graded")

    @property
    def is_plain_matrix(self) -> bool:
        """Whether the scores are a matrix, and nothing in the call says what its axes are."""
        return self.scores.ndim == 2 and self._dims is None and self._groups is None and self._num_relevant is None

    @property
    def many_of_one(self) -> str:
        columns = self.scores.shape[1]
        return f"scores of shape (1, {columns}) are {columns} labelings of one sample each, since the samples lie along dim 0"

    def kept_scores(self) -> np.ndarray:
        """Return the scores that count, flat."""
        scores, target = to_numpy(self.scores), to_numpy(self.target)
        if self.ignore_index is None or scores.shape != target.shape:
            return scores.reshape(-1)
        return scores[target != self.ignore_index]

    def has_both_labels(self) -> bool:
        """Whether predicting the same label for all samples is wrong for some."""
        if self.scores.shape != self.target.shape:
            return True
        target = to_numpy(self.target)
        return bool((target == 1).any() and (target == 0).any())

    def has_two_classes(self, axis: int) -> np.ndarray:
        """Return which lines along an axis of a matrix hold two different targets, ignored ones aside."""
        target = to_numpy(self.target).astype(np.float64)
        kept = np.ones(target.shape, bool) if self.ignore_index is None else target != self.ignore_index
        return np.where(kept, target, -np.inf).max(axis) > np.where(kept, target, np.inf).min(axis)

    def read(self) -> Any:
        """Return the batch as the task reads it."""
        arrays = [None if data is None else to_numpy(data) for data in (self._groups, self._num_relevant, self._weight)]
        call = Call(None if self._dims is None else tuple(self._dims), arrays[0], self.ignore_index, *arrays[1:])
        return self.task.read(to_numpy(self.scores), to_numpy(self.target), call)

    def can_improve(self) -> bool:
        """Whether the truth has a smaller loss than the prediction, for any item that counts."""
        inference: Inference[Any] = self.read()
        better = inference.loss(inference.predict()) - inference.loss(inference.truth()) > 1e-9
        return bool((better & inference.defined & (inference.weights > 0)).any())
