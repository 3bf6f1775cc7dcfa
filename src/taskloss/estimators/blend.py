"""A blend: the mean of the standardized scores of several ensembles, which were trained in different ways on the same folds.

Every sample was held out by a member of each ensemble, so each ensemble has a held-out score for it. Their mean and standard
deviation standardize the scores of the ensemble before the scores are averaged; scores of the training samples would not do,
because trees spread those much wider than scores of new samples. The mean of the held-out scores then chooses thresholds and
calibrates probabilities for the blend as it does for one ensemble.

Networks and trees count for one half each: networks that were trained with different losses err alike, so three of them are worth
less than three votes. No weights or parts are chosen by the held-out metric: on our tables every such choice was behind in the
mean or on single tables (docs/estimators.md).
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
from taskloss.estimators.methods import LIGHTGBM
from taskloss.estimators.problem import Problem


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
        return self.ensemble.scores(table_tensor(table) if self.problem.method == LIGHTGBM else features)

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
    """One ensemble as it is, or the mean of the networks' ensembles and that of the trees, one half each."""

    parts: tuple[Part, ...]

    @property
    def members(self) -> tuple[Member, ...]:
        """The members of all parts, part by part."""
        return tuple(member for part in self.parts for member in part.ensemble.members)

    def scores(self, features: Tensor, table: np.ndarray) -> np.ndarray:
        """Return the scores of rows, given as features of the networks and as a table."""
        return self.mean([part.scores(features, table) for part in self.parts])

    def mean(self, scores: Sequence[np.ndarray]) -> np.ndarray:
        """Return the blend of the scores of each part; one part's are left as they are."""
        if len(self.parts) == 1:
            return scores[0]
        standardized = np.stack([part.standardize(each) for part, each in zip(self.parts, scores, strict=True)])
        trees = np.array([part.problem.method == LIGHTGBM for part in self.parts])
        families = [standardized[family].mean(0) for family in (~trees, trees) if family.any()]
        return np.mean(families, axis=0)
