"""A blend: the mean of the standardized scores of several ensembles, which were trained in different ways on the same folds.

Every sample was held out by a member of each ensemble, so each ensemble has a held-out score for it. Their mean and standard
deviation standardize the scores of the ensemble before the scores are averaged; scores of the training samples would not do,
because trees spread those much wider than scores of new samples. The mean of the held-out scores then chooses thresholds and
calibrates probabilities for the blend as it does for one ensemble.

Networks and trees count for one half each: networks that were trained with different losses err alike, so three of them are worth
less than three votes. A part is dropped if its held-out metric is clearly behind that of the best one, by more than three
standard errors of the difference. With few samples that hardly ever happens, and with many it is then the better choice. Anything
finer that the held-out metric chooses, such as the best subset or weights, was behind on our tables (docs/estimators.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from taskloss.estimators.calibration import VectorScaling
from taskloss.estimators.ensemble import Ensemble, Member, location_and_scale
from taskloss.estimators.methods import TREE_METHODS
from taskloss.estimators.problem import Problem
from taskloss.training import TrainingData

STANDARD_ERRORS = 3
"""A part is dropped if it is farther behind the best one than this."""
RESAMPLES = 50
"""Number of bootstrap samples for the standard errors."""


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
    values = np.array([_values(problem, scores, data)])
    if not np.isfinite(values).all():
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
        values = np.vstack([values, _values(problem, [each[rows] for each in scores], resample)])
    best = int(values[0].argmax())
    gaps = values[:, [best]] - values
    errors = np.nanstd(gaps[1:], axis=0)
    return {
        part: f"its held-out metric, {values[0, part]:.4f}, is more than {STANDARD_ERRORS} standard errors of the difference, "
        f"{errors[part]:.4f}, behind the best one, {values[0, best]:.4f}"
        for part in range(len(scores))
        if gaps[0, part] > STANDARD_ERRORS * errors[part]
    }


def _values(problem: Problem, scores: Sequence[np.ndarray], data: TrainingData) -> list[float]:
    return [problem.metric(torch.from_numpy(each), data.target, **data.options()) for each in scores]
