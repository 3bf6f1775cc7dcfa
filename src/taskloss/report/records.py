"""What a comparison leaves behind: plain records, which the page, the table and ``results.json`` are all made from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Run:
    """One network, trained by one method on the split of one seed, and how well it ranks the test samples."""

    method: str
    seed: int
    average_precision: float
    """On the test samples, in [0, 1]."""
    precision: tuple[float, ...]
    """Precision at each positive of the test samples, best first: the curve whose mean is the average precision."""
    best_iteration: int
    """The step whose weights were kept."""
    iterations: int
    """The steps that were taken."""
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Runs of two methods over the same seeds, and what one needs to know to judge and to repeat them."""

    data: str
    """Where the samples come from, licence included."""
    samples: int
    positives: int
    test_fraction: float
    """Share of the samples that no method sees before the end."""
    baseline: str
    contender: str
    runs: tuple[Run, ...]
    settings: dict[str, str]
    """What was done, in words: name of the setting, its value."""
    command: str
    """What to type to get the same again."""
    versions: dict[str, str]

    def runs_of(self, method: str) -> tuple[Run, ...]:
        """The runs of one method, by seed."""
        return tuple(sorted((run for run in self.runs if run.method == method), key=lambda run: run.seed))

    def pairs(self) -> list[tuple[Run, Run]]:
        """Baseline and contender of each seed."""
        baseline, contender = self.runs_of(self.baseline), self.runs_of(self.contender)
        seeds = [run.seed for run in baseline]
        if len(seeds) < 2 or seeds != [run.seed for run in contender]:
            raise ValueError(f"a comparison needs two or more seeds, the same for both; {self.baseline} has {len(seeds)}")
        return list(zip(baseline, contender, strict=True))


def precision_at_positives(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Precision at the threshold of each positive, best first; samples with equal scores are retrieved together.

    Read as steps over recall 1/P, 2/P, ..., 1, this is the precision-recall curve whose area is the average precision: the mean
    of these values. So the mean of several such curves has the mean average precision under it.

    >>> precision_at_positives(np.array([0.9, 0.8, 0.7, 0.6]), np.array([1, 0, 1, 0])).round(3).tolist()
    [1.0, 0.667]
    """
    everything = np.sort(scores)
    positives = np.sort(scores[target == 1])
    retrieved = len(everything) - np.searchsorted(everything, positives)
    relevant = len(positives) - np.searchsorted(positives, positives)
    precision: np.ndarray = (relevant / retrieved)[::-1]
    return precision
