"""A blend: the mean of the standardized scores of several ensembles, which were trained in different ways on the same folds.

Every sample was held out by a member of each ensemble, so each ensemble has a held-out score for it. Their mean and standard
deviation standardize the scores of the ensemble before the scores are averaged; scores of the training samples would not do,
because trees spread those much wider than scores of new samples. The mean of the held-out scores then chooses thresholds and
calibrates probabilities for the blend as it does for one ensemble.

Networks and trees count for one half each: networks that were trained with different losses err alike, so three of them are worth
less than three votes. A part is dropped if it is clearly behind the one with the best held-out metric: by more than 2.5 standard
errors of the difference, as the mean over the metric and the log loss. The metric alone would tell too little where a few
positives decide it. With few samples parts are hardly ever that far behind, and with many dropping them is the better choice.
Anything finer that the held-out metric chooses, such as the best subset or weights, was behind (docs/estimators.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from taskloss.estimators.calibration import BrokenLine, VectorScaling
from taskloss.estimators.ensemble import Ensemble, Member, location_and_scale
from taskloss.estimators.methods import TREE_METHODS
from taskloss.estimators.problem import Problem
from taskloss.training import TrainingData

STANDARD_ERRORS = 2.5
"""A part is dropped if it is farther behind the best one than this, as the mean over the metric and the log loss."""
RESAMPLES = 50
"""Number of bootstrap samples for the standard errors."""
SMALLEST_ERROR = 1e-9
"""Standard errors below this, relative to the value, are rounding."""


@dataclass(frozen=True)
class Part:
    """An ensemble of a blend, with what its scores need to be averaged with those of the others."""

    problem: Problem
    ensemble: Ensemble
    location: Tensor
    """Mean of the held-out scores, float64, in the shape of one sample's scores."""
    scale: Tensor
    """Their standard deviation."""
    logits: VectorScaling | None
    """Makes log-probabilities of scores that only compare the classes of a sample; None for all others."""

    @classmethod
    def of_ensemble(cls, problem: Problem, ensemble: Ensemble, held_out: np.ndarray, known: np.ndarray, target: Tensor) -> Part:
        """Return the part with the location and scale of its held-out scores; ``known`` masks the samples that have one."""
        logits = None
        if problem.compares_classes:
            classes = target.numpy() if problem.chooses_class else target.numpy().argmax(1)
            logits = VectorScaling.fit(held_out[known], classes[known])
        scores = torch.from_numpy(_comparable(logits, held_out[known]))
        return cls(problem, ensemble, *location_and_scale(problem, scores), logits)

    def scores(self, features: Tensor, table: np.ndarray) -> np.ndarray:
        """Return the scores of the ensemble, from the features of the networks and the table itself, which trees read."""
        return self.ensemble.scores(table_tensor(table) if self.problem.method in TREE_METHODS else features)

    def standardize(self, scores: np.ndarray) -> np.ndarray:
        """Return scores of the ensemble, or held-out ones of its members, in the units of a blend."""
        return (_comparable(self.logits, scores) - self.location.numpy()) / self.scale.numpy()


def table_tensor(table: np.ndarray) -> Tensor:
    """Return a table as a tensor; torch warns of arrays that are read-only, so these are copied."""
    return torch.from_numpy(np.require(table, requirements="W"))


def _comparable(logits: VectorScaling | None, scores: np.ndarray) -> np.ndarray:
    return scores if logits is None else log_softmax(logits.logits(scores), axis=1)


@dataclass(frozen=True)
class Blend:
    """One ensemble as it is, or the weighted mean of the standardized scores of several."""

    parts: tuple[Part, ...]
    weights: tuple[float, ...]
    """Weight of each part, 0 for those that were dropped; the sum is 1."""

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of all parts, part by part."""
        return tuple(member for part in self.parts for member in part.ensemble.members)

    def scores(self, features: Tensor, table: np.ndarray) -> np.ndarray:
        """Return the scores of rows, given as features of the networks and as a table."""
        pairs = zip(self.parts, self.weights, strict=True)
        return self.mean([part.scores(features, table) if weight else None for part, weight in pairs])

    def mean(self, scores: Sequence[np.ndarray | None]) -> np.ndarray:
        """Return the blend of the scores of each part; those of an only part stay as they are, dropped ones are not needed."""
        used = [(part, each, w) for part, each, w in zip(self.parts, scores, self.weights, strict=True) if each is not None and w]
        if len(self.parts) == 1:
            return used[0][1]
        return np.sum([weight * part.standardize(each) for part, each, weight in used], axis=0)


def weigh_parts(parts: Sequence[Part], kept: Sequence[bool]) -> tuple[float, ...]:
    """Return the weights of the parts that are kept: one half for the networks and one for the trees, if there are both."""
    trees = np.array([part.problem.method in TREE_METHODS for part in parts])
    weights = np.zeros(len(parts))
    for family in (trees & kept, ~trees & kept):
        weights[family] = 1.0 / max(family.sum(), 1)
    return tuple((weights / weights.sum()).tolist())


def find_weak_parts(
    problem: Problem,
    scores: Sequence[np.ndarray],
    data: TrainingData,
    units: np.ndarray | None,
    rng: np.random.Generator,
) -> dict[int, str]:
    """Return the parts that are clearly behind the best one, each with the reason.

    Args:
        problem: the problem of the blend.
        scores: the held-out scores of each part in the units of a blend.
        data: the samples of these scores; the features are not used.
        units: index of the unit of each sample, which are resampled whole; None where each sample is a unit.
        rng: for the resamples, by which the standard errors are estimated.
    """
    log_losses = _log_losses(problem, scores, data)
    measures = [_measure(problem, scores, data, log_losses)]
    if not np.isfinite(measures[0]).all():
        return {}
    order = np.arange(len(data.target)) if units is None else np.argsort(units, kind="stable")
    sizes = np.ones(len(order), np.int64) if units is None else np.unique(units, return_counts=True)[1]
    starts = np.cumsum(sizes) - sizes
    for _ in range(RESAMPLES):
        drawn = rng.integers(len(sizes), size=len(sizes))
        counts = sizes[drawn]
        copy = np.repeat(np.arange(len(drawn)), counts)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = order[starts[drawn][copy] + within]
        resample = data.rows(torch.from_numpy(rows))
        if data.groups is not None:
            resample = resample._replace(groups=torch.from_numpy(copy))  # A query that is drawn twice is two queries.
        measures.append(_measure(problem, [each[rows] for each in scores], resample, log_losses[:, :, rows]))
    values = np.array(measures)
    best = int(np.lexsort(values[0, ::-1])[-1])  # Of parts with equal metrics, the one with the lowest log loss.
    gaps = values[0][:, [best]] - values[0]
    errors = np.nanstd(values[1:][:, :, [best]] - values[1:], axis=0)
    # Without an error, as where every resample is the same query, a gap tells nothing.
    known = errors > SMALLEST_ERROR * np.abs(values[0])
    behind = np.divide(gaps, errors, out=np.zeros_like(gaps), where=known).mean(0)
    signs = {"held-out metric": 1, "held-out log loss": -1}
    measured = [(name, sign * row) for (name, sign), row in zip(signs.items(), values[0], strict=False)]
    return {
        part: " and ".join(f"its {name}, {row[part]:.4f} (of the best part {row[best]:.4f})," for name, row in measured)
        + f" {'are on average' if len(measured) > 1 else 'is'} {behind[part]:.1f} standard errors worse"
        for part in range(len(scores))
        if behind[part] > STANDARD_ERRORS
    }


def _measure(problem: Problem, scores: Sequence[np.ndarray], data: TrainingData, log_losses: np.ndarray) -> np.ndarray:
    """Return the metric of each part and, where it is known, its negative log loss: shape ``(measures, parts)``."""
    metrics = [problem.metric(torch.from_numpy(each), data.target, **data.options()) for each in scores]
    return np.vstack([[metrics], -log_losses.mean(2)])


def _log_losses(problem: Problem, scores: Sequence[np.ndarray], data: TrainingData) -> np.ndarray:
    """Return the log loss of each sample by the calibrated scores of each part, times its weight: shape ``(1, parts, n)``.

    With several columns of labels, it is the mean over them. Queries and grades have none: ``(0, parts, n)``.
    """
    samples, target = len(data.target), data.target.numpy()
    if data.groups is not None or problem.task.target_kind == "graded":
        return np.empty((0, len(scores), samples))
    weights = np.ones(samples) if data.weights is None else data.weights.numpy() / data.weights.numpy().mean()
    if problem.chooses_class:
        logits = [VectorScaling.fit(each, target, weights).logits(each) for each in scores]
        losses = [-log_softmax(each, axis=1)[np.arange(samples), target] for each in logits]
    else:
        columns = target.reshape(samples, -1).T
        losses = [
            np.mean([_log_loss(*pair, weights) for pair in zip(each.reshape(samples, -1).T, columns, strict=True)], axis=0)
            for each in scores
        ]
    return weights * np.array([losses])


def _log_loss(scores: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    logits = BrokenLine.fit(scores, target, weights).logits(scores)
    return np.logaddexp(0.0, np.where(target == 1, -logits, logits))
