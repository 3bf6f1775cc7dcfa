r"""The losses: direct loss minimization, structured hinge, perceptron.

The gradient of each is a difference of the features of two answers of the task (Song et al. 2016, theorem 1). With ``psi`` the
feature of an answer and ``y_w`` the prediction:

==================  ==============================  ====================================================
loss                value                           gradient with respect to the scores
==================  ==============================  ====================================================
direct, positive    ``L(y_w)``                      ``(psi(augment(+eps)) - psi(y_w)) / eps``
direct, negative    ``L(y_w)``                      ``(psi(y_w) - psi(augment(-eps))) / eps``
direct, central     ``L(y_w)``                      ``(psi(augment(+eps)) - psi(augment(-eps))) / (2 eps)``
structured hinge    ``F(aug) + L(aug) - F(truth)``  ``psi(augment(+1)) - psi(truth)``
perceptron          ``F(y_w) - F(truth)``           ``psi(y_w) - psi(truth)``
==================  ==============================  ====================================================

The forward pass computes the gradient together with the value; the backward pass is one multiplication. The value of the direct
loss is the task loss itself, whose true derivative is zero almost everywhere: value and gradient belong to different functions.
So ``gradcheck`` and optimizers with a line search (L-BFGS with ``strong_wolfe``) do not apply; every other optimizer does.

This file names no task and parses no shapes: a task turns scores and target into an :class:`~taskloss.tasks.task.Inference`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from taskloss import _checks, distributed
from taskloss._advice import Advice, shared_advice
from taskloss.kernels.items import weigh_items
from taskloss.known_gradient import WithGradient
from taskloss.layout import to_numpy
from taskloss.tasks.registry import as_task, handle_of, task_of
from taskloss.tasks.task import Call, Inference, Objective, Task

EPSILON = 1.0
MARGIN = 1.0
UPDATES = ("positive", "negative", "central")


class LossOptions(distributed.SyncOptions, total=False):
    """Settings of every loss, given to its constructor or in a call."""

    dim: int | tuple[int, ...] | None
    """The axis of the samples of one ranking or labeling, or several axes. The task's default when left out: 0 for rankings, so
    that ``(n, C)`` is multi-label, one ranking per column; for labelings also the pixels of an image."""
    ignore_index: int | None
    """Samples with this target are left out and get a zero gradient; also for padding (default None)."""
    reduction: str
    """``"mean"`` over the rankings or labelings that are defined (default), ``"sum"``, or ``"none"``: one value each."""


class CallOptions(LossOptions, total=False):
    """Settings and data of one call."""

    groups: Any
    """Query id of each sample along ``dim`` (the first of several axes), integers in any order: one ranking or labeling per
    query, in sorted order of the ids."""
    weight: Any
    """One weight per ranking or labeling: the mean becomes a weighted mean."""
    num_relevant: Any
    """How many relevant items each ranking has, those missing from the list included (a number or one per ranking)."""


# --- the rules ---------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """The gradient ``factor * (psi(answer) - psi(reference))``, where the caller multiplies the shares by the factor."""

    inference: Inference[Any]
    answer: Any
    reference: Any
    factor: float

    def gradient(self, share: np.ndarray) -> np.ndarray:
        """Return the gradient, with ``factor`` times the share of each item in the result."""
        return self.inference.feature_difference(self.answer, self.reference, share)


Rule = Callable[[Any, float, bool], tuple[np.ndarray, Step | Objective | None]]


def _direct(sign: int) -> Rule:
    def rule(inference: Inference[Any], epsilon: float, with_gradient: bool) -> tuple[np.ndarray, Step | None]:
        predicted = inference.predict()
        values = inference.loss(predicted)
        if not with_gradient:
            return values, None
        return values, Step(inference, inference.augment(sign * epsilon), predicted, sign / epsilon)

    return rule


def _central(inference: Inference[Any], epsilon: float, with_gradient: bool) -> tuple[np.ndarray, Step | None]:
    values = inference.loss(inference.predict())
    if not with_gradient:
        return values, None
    return values, Step(*inference.augment_both(epsilon), 0.5 / epsilon)


def _hinge(inference: Inference[Any], margin: float, with_gradient: bool) -> tuple[np.ndarray, Step | None]:
    augmented, truth = inference.augment(margin), inference.truth()
    values = inference.score_difference(augmented, truth) + margin * inference.loss(augmented)
    return values, Step(inference, augmented, truth, 1.0)


def _perceptron(inference: Inference[Any], epsilon: float, with_gradient: bool) -> tuple[np.ndarray, Step | None]:
    predicted, truth = inference.predict(), inference.truth()
    return inference.score_difference(predicted, truth), Step(inference, predicted, truth, 1.0)


def _own(objective: Objective, epsilon: float, with_gradient: bool) -> tuple[np.ndarray, Objective]:
    return objective.values(), objective


RULES: dict[str, Rule] = {
    "positive": _direct(+1),
    "negative": _direct(-1),
    "central": _central,
    "hinge": _hinge,
    "perceptron": _perceptron,
    "own": _own,  # Losses with a gradient of their own, which other modules define.
}


def update_of(task: Task, update: str | None) -> str:
    """Return the update that was asked for, or the default of the task."""
    return task.default_update if update is None else _checks.check_choice("update", update, UPDATES)


# --- from a rule to a tensor operation --------------------------------------------------------------------------------


def _evaluate_now(
    scores: Tensor,
    target: Tensor,
    groups: Tensor | None,
    task: int,
    dims: Sequence[int] | None,
    reduction: str,
    with_gradient: bool,
    weight: Tensor | None,
    num_relevant: Tensor | None,
    ignore_index: int | None,
    rule: str,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the value and its gradient in the scores.

    Returns:
        The value: a scalar, or with ``reduction="none"`` one value per item. The gradient, of the shape of the scores, empty if
        it is not wanted. The item of each score, empty without a gradient or with one value.
    """
    array = to_numpy(scores)
    call = Call(
        None if dims is None else tuple(dims),
        None if groups is None else to_numpy(groups),
        ignore_index,
        None if num_relevant is None else to_numpy(num_relevant),
        None if weight is None else to_numpy(weight),
    )
    inference = task_of(task).read(array, to_numpy(target), call)
    values, step = RULES[rule](inference, epsilon, with_gradient)
    factor = step.factor if isinstance(step, Step) else 1.0
    share, total = weigh_items(values, inference.defined, inference.weights, reduction == "mean", factor)
    if reduction == "none":
        values = np.where(inference.defined, values, 0.0) * inference.weights
        value = torch.from_numpy(values.astype(array.dtype).reshape(inference.values_shape))
    else:
        value = torch.from_numpy(np.array(total, array.dtype))
    gradient = torch.from_numpy(step.gradient(share) if with_gradient and step is not None else np.empty(0, array.dtype))
    owner = torch.from_numpy(inference.owner()) if with_gradient and value.ndim else _NO_OWNER
    if scores.is_cpu:
        return value, gradient, owner
    return value.to(scores.device), gradient.to(scores.device), owner.to(scores.device)


_NO_OWNER = torch.empty(0, dtype=torch.int64)
_evaluate = torch.library.custom_op("taskloss::evaluate", _evaluate_now, mutates_args=())


@_evaluate.register_fake
def _(
    scores: Tensor,
    target: Tensor,
    groups: Tensor | None,
    task: int,
    dims: Sequence[int] | None,
    reduction: str,
    with_gradient: bool,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tensors of the shapes of :func:`_evaluate_now`, by the arguments that decide them."""
    dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
    shape: tuple[int, ...] = ()
    if reduction == "none":
        count: Any = None if groups is None else torch.library.get_ctx().new_dynamic_size()
        shape = task_of(task).values_shape(tuple(scores.shape), tuple(target.shape), None if dims is None else tuple(dims), count)
    return (
        scores.new_empty(shape, dtype=dtype),
        scores.new_empty(scores.shape if with_gradient else (0,), dtype=dtype),
        scores.new_empty((scores.numel() if shape and with_gradient else 0,), dtype=torch.int64),
    )


@_evaluate.register_vmap
def _(*arguments: Any) -> Any:
    raise RuntimeError(
        "losses of taskloss take batches themselves: instead of vmap, pass the whole batch (and the ranked axis as dim=)"
    )


def task_loss(
    scores: Tensor,
    target: Tensor,
    task: int,
    rule: str,
    epsilon: float,
    advice: Advice | None = None,
    *,
    sync: bool | None = None,
    process_group: Any = None,
    gradient_reduction: str = "mean",
    **options: Any,
) -> Tensor:
    """Compute the loss of this process, or that of all; all losses come through here.

    ``task`` is the handle of a task, ``rule`` a key of ``RULES``; ``advice`` is that of the module, None for a function. The
    options are those of :func:`_loss_of_process`.
    """
    if not distributed.wants_union(sync, process_group):
        return _loss_of_process(scores, target, task, rule, epsilon, advice, **options)
    loss = functools.partial(_loss_of_process, task=task, rule=rule, epsilon=epsilon, advice=advice)
    options |= {"process_group": process_group, "gradient_reduction": gradient_reduction}
    return distributed.loss_of_union(loss, task_of(task), scores, target, options, rule=rule, epsilon=epsilon)


def _loss_of_process(
    scores: Tensor,
    target: Tensor,
    task: int,
    rule: str,
    epsilon: float,
    advice: Advice | None,
    *,
    groups: Any = None,
    weight: Any = None,
    num_relevant: Any = None,
    dim: int | tuple[int, ...] | None = None,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Check the arguments of a call and compute its loss."""
    _checks.check_tensors(scores, target)
    _checks.check_reduction(reduction)
    _checks.check_ignore_index(ignore_index)
    with_gradient = scores.requires_grad and torch.is_grad_enabled()
    # Only a tracer or a transform needs the operator; the plain function takes a quarter less time for a small batch.
    plain = type(scores) is Tensor and not (
        scores.is_meta or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    )
    evaluate = _evaluate_now if plain else _evaluate
    inputs = (
        scores if plain else scores.detach(),
        target,
        _checks.as_optional_tensor("groups", groups),
        task,
        _checks.as_dims(dim),
        reduction,
        with_gradient,
        _checks.as_optional_tensor("weight", weight),
        _checks.as_optional_tensor("num_relevant", num_relevant),
        ignore_index,
        rule,
        epsilon,
    )
    value, gradient, owner = evaluate(*inputs)
    if plain:
        (advice or shared_advice(task, rule)).examine(inputs, value, gradient)
    return WithGradient.apply(scores, (value,), gradient, owner) if with_gradient else value


# --- the modules ------------------------------------------------------------------------------------------------------


class _TaskLossModule(nn.Module):
    """Base of the losses: a task and settings, without parameters or state."""

    def __init__(self, task: Task | str, **settings: Unpack[LossOptions]) -> None:
        super().__init__()
        self.task = as_task(task)
        unknown = settings.keys() - LossOptions.__annotations__.keys()
        if unknown:
            raise TypeError(f"unknown setting {sorted(unknown)[0]!r}; expected {', '.join(LossOptions.__annotations__)}")
        _checks.check_reduction(settings.get("reduction", "mean"))
        distributed.check_settings(settings)
        self.settings: dict[str, Any] = dict(settings)
        self._advice = Advice()

    def _rule(self) -> tuple[str, float]:
        """Return the rule, and the weight of the task loss in its augmented inference (epsilon or the margin)."""
        raise NotImplementedError  # Every loss defines it.

    def forward(self, scores: Tensor, target: Tensor, **options: Unpack[CallOptions]) -> Tensor:
        rule, epsilon = self._rule()
        settings = {**self.settings, **options} if self.settings and options else options or self.settings
        return task_loss(scores, target, handle_of(self.task), rule, epsilon, self._advice, **settings)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.task), *(f"{name}={value!r}" for name, value in self.settings.items())])


class DirectLoss(_TaskLossModule):
    """Direct loss minimization: the value is the task loss itself, the gradient estimates that of its expectation.

    As epsilon goes to zero, the expected gradient is the gradient of the expected task loss (Song et al. 2016, theorem 1;
    McAllester et al. 2010 for linear models). A larger epsilon smooths: samples further from the decision take part.

    Args:
        task: a task, or the name of a registered one.
        epsilon: weight of the loss in the augmented inference, in units of the scores; near 1 is right for scores of unit scale.
            The gradient is that of ``DirectLoss(task)(scores / epsilon, target)``.
        update: ``"positive"`` steps away from a worse answer, ``"negative"`` toward a better one, ``"central"`` does both, with
            the mean of the two gradients. Left out, it is the ``default_update`` of the task, which trains a fresh network.
        settings: see :class:`LossOptions`.

    Call with ``(scores, target)`` and any of :class:`CallOptions`. A ranking with one class only gives zero loss and gradient.

    >>> import torch
    >>> criterion = DirectLoss("average_precision", epsilon=1.0)
    >>> scores = torch.tensor([0.0, 0.0, 0.0], requires_grad=True)
    >>> criterion(scores, torch.tensor([1, 0, 0])).backward()
    >>> scores.grad
    tensor([-1.0000,  0.5000,  0.5000])
    """

    def __init__(
        self, task: Task | str, *, epsilon: float = EPSILON, update: str | None = None, **settings: Unpack[LossOptions]
    ) -> None:
        super().__init__(task, **settings)
        self.epsilon = _checks.check_positive("epsilon", epsilon)
        self.update = update_of(self.task, update)

    def _rule(self) -> tuple[str, float]:
        # Both may have been changed since the constructor checked them.
        return _checks.check_choice("update", self.update, UPDATES), _checks.check_positive("epsilon", self.epsilon)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, epsilon={self.epsilon}, update={self.update!r}"


class StructuredHingeLoss(_TaskLossModule):
    """Margin-rescaled structured hinge: a convex upper bound of the task loss, times the margin, in the scores.

    Yue, Finley, Radlinski, Joachims, *A support vector method for optimizing average precision*, SIGIR 2007.

    Args:
        task: a task, or the name of a registered one.
        margin: weight of the task loss in the augmented inference, in units of the scores: 1 is right for scores of unit scale.
        settings: see :class:`LossOptions`.

    Called like :class:`DirectLoss`.

    >>> import torch
    >>> scores, target = torch.tensor([2.0, -2.0]), torch.tensor([1, 0])
    >>> StructuredHingeLoss("average_precision")(scores, target).item()
    0.0
    >>> StructuredHingeLoss("average_precision", margin=20.0)(scores, target).item()
    2.0
    """

    def __init__(self, task: Task | str, *, margin: float = MARGIN, **settings: Unpack[LossOptions]) -> None:
        super().__init__(task, **settings)
        self.margin = _checks.check_positive("margin", margin)

    def _rule(self) -> tuple[str, float]:
        return "hinge", _checks.check_positive("margin", self.margin)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin}"


class PerceptronLoss(_TaskLossModule):
    """Structured perceptron: the joint score of the prediction minus that of the truth. It ignores the task loss.

    Arguments as for :class:`DirectLoss`, without epsilon and update.

    >>> import torch
    >>> PerceptronLoss("average_precision")(torch.tensor([-1.0, 1.0]), torch.tensor([1, 0])).item()
    4.0
    """

    def _rule(self) -> tuple[str, float]:
        return "perceptron", 1.0
