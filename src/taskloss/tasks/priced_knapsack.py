r"""A knapsack whose values, weights and capacity are predicted, and whose true load may exceed the true capacity at a price.

A plan :math:`\psi \in \{0, 1\}^n` is made with predicted values :math:`\hat v`, weights :math:`\hat w` and capacities
:math:`\hat b` (m of each of the last two). Then the true ones show, and every unit of load above the capacity
costs p (recourse: overtime, a rented vehicle, a second delivery). The worth of a plan and its regret after recourse are

.. math:: G(\psi) = \langle v, \psi\rangle - \sum_i p_i (w_i'\psi - b_i)_+ , \qquad L(\psi) = \max_{\psi'} G(\psi') - G(\psi) .

The joint score is the same function of the predictions,

.. math:: F(\psi) = \langle \hat v, \psi\rangle - \sum_i q_i (\hat w_i'\psi - \hat b_i)_+ ,

with a planning price q, by default p. It is not linear in the predictions, but the theorem of the direct loss asks only for its
gradient: :math:`\partial F/\partial\hat v = \psi`, and where the i-th predicted load exceeds the capacity,
:math:`\partial F/\partial\hat w_i = -q_i \psi` and :math:`\partial F/\partial\hat b_i = q_i`; else both are zero.

**Augmented inference.** For :math:`w = -\epsilon`,

.. math:: F - \epsilon L = \langle \hat v + \epsilon v, \psi\rangle - \sum_i q_i (\hat w_i'\psi - \hat b_i)_+
    - \sum_i \epsilon p_i (w_i'\psi - b_i)_+ + const

is again a knapsack with priced capacities, the predicted and the true ones: the same branch and bound solves it exactly. For
:math:`w = +\epsilon` the true loads are rewarded. With :math:`(z)_+ = \max(0, z)`, the maxima over the plans and over the sets S
of capacities whose reward is counted are exchanged:

.. math:: \max_\psi F + \epsilon L = \max_S \max_\psi \langle \hat v - \epsilon v + \epsilon \sum_{i \in S} p_i w_i, \psi\rangle
    - \sum_i q_i (\hat w_i'\psi - \hat b_i)_+ - \epsilon \sum_{i \in S} p_i b_i + const ,

:math:`2^m` knapsacks with the predicted capacities alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from taskloss import _output_checks, _solver_checks
from taskloss.kernels.priced_knapsack import best_subsets
from taskloss.layout import to_numpy
from taskloss.tasks.task import Call, Inference, Task

NODE_LIMIT = 100_000_000
"""Nodes of branch and bound, some seconds, after which an error is raised."""


@dataclass(frozen=True)
class PricedKnapsack(Task):
    """Regret after recourse of a knapsack with predicted values, weights and capacities; see the module.

    Scores and target are the predicted and the true data, each packed into one tensor ``(..., 1 + m, n + 1)`` by :meth:`pack`.
    Weights and capacities must be at least zero: ``softplus(output)``.

    Args:
        price: of one unit of load above a capacity, a number or one per capacity.
        planning_price: price in the joint score, by which plans are made; by default the same. The higher, the fewer plans exceed
            their predicted capacity, and only those have a gradient in the weights.

    Option of a call: ``weight``, one per instance.

    >>> import taskloss as tl
    >>> task = tl.PricedKnapsack(price=4.0)
    >>> values, capacity = torch.tensor([[3.0, 2.0]]), torch.tensor([[2.0]])
    >>> weights = torch.tensor([[[1.2, 1.2]]], requires_grad=True)          # predicted: both items cost 0.4 * 4 in overtime
    >>> truth = task.pack(values, torch.tensor([[[1.5, 2.0]]]), capacity)   # true: 1.5 * 4, and one item would have been better
    >>> loss = tl.DirectLoss(task, update="negative")(task.pack(values, weights, capacity), truth)
    >>> loss.item()
    4.0
    >>> loss.backward()
    >>> weights.grad.tolist()                                               # a step against it makes the items heavier
    [[[-4.0, -4.0]]]
    """

    target_kind: ClassVar[str] = "structure"
    options: ClassVar[frozenset[str]] = frozenset({"weight"})
    default_update: ClassVar[str] = "central"
    price: float | tuple[float, ...]
    planning_price: float | tuple[float, ...] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("price", "planning_price"):
            value = getattr(self, name)
            if value is not None:
                prices = _solver_checks.as_capacity(name, value, np.size(value))
                object.__setattr__(self, name, float(prices[0]) if np.ndim(value) == 0 else tuple(prices.tolist()))

    @staticmethod
    def pack(values: torch.Tensor, weights: torch.Tensor, capacity: torch.Tensor) -> torch.Tensor:
        """Return values ``(..., n)``, weights ``(..., m, n)`` and capacity ``(..., m)`` as one tensor ``(..., 1 + m, n + 1)``.

        Leading axes are broadcast. Gradients pass through.
        """
        for name, data in (("values", values), ("weights", weights), ("capacity", capacity)):
            if not isinstance(data, torch.Tensor):
                raise TypeError(f"{name} must be a torch.Tensor, got {type(data).__name__}; use torch.as_tensor({name})")
        same_items = weights.ndim >= 2 and values.ndim >= 1 and values.shape[-1] == weights.shape[-1]
        if not same_items or capacity.ndim < 1 or capacity.shape[-1] != weights.shape[-2]:
            raise ValueError(
                f"values has shape {tuple(values.shape)}, weights {tuple(weights.shape)} and capacity {tuple(capacity.shape)}; "
                "expected (..., n), (..., m, n) and (..., m) for n items and m capacities. For one capacity give "
                "weights[..., None, :] and a capacity of shape (..., 1)"
            )
        batch = torch.broadcast_shapes(values.shape[:-1], weights.shape[:-2], capacity.shape[:-1])
        values, weights = values.expand(*batch, -1), weights.expand(*batch, -1, -1)
        capacity = capacity.expand(*batch, -1)
        rows = torch.cat([values[..., None, :], weights], dim=-2)
        return torch.cat([rows, torch.cat([torch.zeros_like(capacity[..., :1]), capacity], dim=-1)[..., None]], dim=-1)

    def plan(self, predicted: torch.Tensor) -> torch.Tensor:
        """Return the best plans for packed predictions, float64 ``(..., n)``: they are made with the planning price."""
        array = to_numpy(predicted)
        _solver_checks.check_packed_knapsacks("predicted", array)
        plans = Knapsacks.unpack(array, self.price if self.planning_price is None else self.planning_price).best()
        return torch.from_numpy(plans.reshape(*array.shape[:-2], -1))

    def worth(self, plans: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
        """Return the worth after recourse of plans ``(..., n)`` under packed true data, float64 ``(...)``."""
        array = to_numpy(true)
        _solver_checks.check_packed_knapsacks("true", array)
        expected = (*array.shape[:-2], array.shape[-1] - 1)
        if plans.shape != expected:
            raise ValueError(f"plans has shape {tuple(plans.shape)}; expected one plan per packed instance, {expected}")
        worth = Knapsacks.unpack(array, self.price).worth(to_numpy(plans).reshape(-1, plans.shape[-1]))
        return torch.from_numpy(worth.reshape(array.shape[:-2]))

    def read(self, scores: np.ndarray, target: np.ndarray, call: Call) -> PricedKnapsackInference:
        self.refuse_unknown(call)
        _solver_checks.check_packed_knapsacks("scores", scores)
        _solver_checks.check_packed_knapsacks("target", target)
        if scores.shape != target.shape:
            raise ValueError(f"scores has shape {scores.shape} and target has shape {target.shape}; expected the same shape")
        values_shape = scores.shape[:-2]
        if call.weight is not None:
            _output_checks.check_instance_weight(call.weight, values_shape)
        weights = np.ones(values_shape) if call.weight is None else call.weight
        return PricedKnapsackInference(self, scores, target, weights.reshape(-1).astype(np.float64))

    def values_shape(
        self, scores: tuple[int, ...], target: tuple[int, ...], dims: tuple[int, ...] | None, groups: int | None
    ) -> tuple[int, ...]:
        return scores[:-2]


class Knapsacks(NamedTuple):
    """R knapsacks with n items and m priced capacities."""

    values: np.ndarray
    """``(R, n)``."""
    weights: np.ndarray
    """``(R, m, n)``."""
    capacity: np.ndarray
    """``(R, m)``."""
    price: np.ndarray
    """``(m,)``."""

    @classmethod
    def unpack(cls, packed: np.ndarray, price: Any) -> Knapsacks:
        """Read the form of :meth:`PricedKnapsack.pack`."""
        flat = packed.astype(np.float64).reshape(-1, *packed.shape[-2:])
        prices = _solver_checks.as_capacity("price", price, flat.shape[1] - 1)
        values, weights, capacity = map(np.ascontiguousarray, (flat[:, 0, :-1], flat[:, 1:, :-1], flat[:, 1:, -1]))
        return cls(values, weights, capacity, prices)

    def best(self) -> np.ndarray:
        """Return the best plans, ``(R, n)``."""
        plans, complete = best_subsets(self.values, self.weights, self.capacity, self.price, NODE_LIMIT)
        _solver_checks.check_searched(complete)
        return plans

    def overload(self, plans: np.ndarray) -> np.ndarray:
        """Return the load of the plans above each capacity, ``(R, m)``."""
        return np.maximum(np.einsum("rmn,rn->rm", self.weights, plans) - self.capacity, 0.0)

    def worth(self, plans: np.ndarray) -> np.ndarray:
        """Return the value of the plans less the price of their overload, ``(R,)``."""
        return (self.values * plans).sum(axis=1) - self.overload(plans) @ self.price


class PricedKnapsackInference(Inference[np.ndarray]):
    """An answer is the plans of all the instances, ``(R, n)``."""

    def __init__(self, task: PricedKnapsack, scores: np.ndarray, target: np.ndarray, weights: np.ndarray) -> None:
        self.values_shape = scores.shape[:-2]
        self.weights = weights
        self.defined = np.ones(len(weights), bool)
        self._shape, self._dtype = scores.shape, scores.dtype
        self._predicted = Knapsacks.unpack(scores, task.price if task.planning_price is None else task.planning_price)
        self._true = Knapsacks.unpack(target, task.price)
        self._best: np.ndarray | None = None

    def predict(self) -> np.ndarray:
        return self._predicted.best()

    def augment(self, weight: float) -> np.ndarray:
        predicted, true = self._predicted, self._true
        values = predicted.values - weight * true.values
        if weight < 0.0:
            weights = np.concatenate([predicted.weights, true.weights], axis=1)
            capacity = np.concatenate([predicted.capacity, true.capacity], axis=1)
            return Knapsacks(values, weights, capacity, np.concatenate([predicted.price, -weight * true.price])).best()
        answer, highest = np.zeros(values.shape), np.full(len(values), -np.inf)
        for counted in itertools.product((0.0, 1.0), repeat=len(true.price)):
            rewards = np.einsum("m,rmn->rn", weight * np.array(counted) * true.price, true.weights)
            plans = predicted._replace(values=values + rewards).best()
            objective = predicted.worth(plans) - weight * true.worth(plans)
            better = objective > highest
            answer[better], highest[better] = plans[better], objective[better]
        return answer

    def truth(self) -> np.ndarray:
        if self._best is None:
            self._best = self._true.best()
        return self._best

    def loss(self, answer: np.ndarray) -> np.ndarray:
        return self._true.worth(self.truth()) - self._true.worth(answer)

    def score_difference(self, answer: np.ndarray, reference: np.ndarray) -> np.ndarray:
        return self._predicted.worth(answer) - self._predicted.worth(reference)

    def feature_difference(self, answer: np.ndarray, reference: np.ndarray, factor: np.ndarray) -> np.ndarray:
        each = (self._gradient(answer) - self._gradient(reference)) * factor[:, None, None]
        return each.astype(self._dtype).reshape(self._shape)

    def owner(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.weights)), self._shape[-2] * self._shape[-1])

    def _gradient(self, plans: np.ndarray) -> np.ndarray:
        """Return the gradient of the joint score in the packed predictions, ``(R, 1 + m, n + 1)``."""
        priced = (self._predicted.overload(plans) > 0.0) * self._predicted.price
        result = np.zeros((len(plans), *self._shape[-2:]))
        result[:, 0, :-1] = plans
        result[:, 1:, :-1] = -priced[:, :, None] * plans[:, None, :]
        result[:, 1:, -1] = priced
        return result
