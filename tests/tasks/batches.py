"""Many small instances through the library at once: those of one length and one epsilon are the rows of a batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

import taskloss as tl


def _criterion(loss: str, task: tl.Task, epsilon: float) -> torch.nn.Module:
    """A loss by its name; one value a row."""
    rows = {"dim": 1, "reduction": "none"}
    if loss in ("positive", "negative"):
        return tl.DirectLoss(task, epsilon=epsilon, update=loss, **rows)
    return {"hinge": tl.StructuredHingeLoss, "perceptron": tl.PerceptronLoss}[loss](task, **rows)


def values_and_gradients(
    loss: str, task: tl.Task, instances: Sequence[tuple[np.ndarray, Sequence[int] | np.ndarray, float]]
) -> list[tuple[float, np.ndarray]]:
    """Of each instance: scores, target, epsilon."""
    rows = defaultdict(list)
    for number, (scores, _, epsilon) in enumerate(instances):
        rows[len(scores), epsilon].append(number)
    results: dict[int, tuple[float, np.ndarray]] = {}
    for (_, epsilon), numbers in rows.items():
        scores = torch.tensor(np.array([instances[number][0] for number in numbers]), requires_grad=True)
        target = torch.tensor(np.array([instances[number][1] for number in numbers]))
        values = _criterion(loss, task, epsilon)(scores, target)
        (gradient,) = torch.autograd.grad(values.sum(), scores)
        results |= zip(numbers, zip(values.tolist(), gradient.numpy(), strict=True), strict=True)
    return [results[number] for number in range(len(instances))]
