"""Small helpers of the kernel tests."""

from __future__ import annotations

import numpy as np

from taskloss.kernels.sort import TwoLists


def one_ranking(positives: np.ndarray, negatives: np.ndarray) -> TwoLists:
    """A single ranking from two lists in any order."""
    s = np.sort(np.asarray(positives, np.float64))[::-1].copy()
    t = np.sort(np.asarray(negatives, np.float64))[::-1].copy()
    index = np.arange(len(s) + len(t))
    return TwoLists(s, t, index[: len(s)], index[len(s) :], np.array([0, len(s)]), np.array([0, len(t)]))


def adversarial_scores(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Scores that break careless arithmetic, by name."""
    normal = rng.standard_normal(n)
    one_huge = normal.copy()
    one_huge[rng.integers(n)] = 1e30
    return {
        "normal": normal,
        "constant": np.full(n, 0.3),
        "duplicated": np.round(normal),
        "tiny": normal * 1e-300,
        "one huge": one_huge,
        "one huge negative": -one_huge,
        "sorted": np.sort(normal),
        "reversed": np.sort(normal)[::-1].copy(),
        "heavy tails": rng.standard_cauchy(n) ** 3,
        "offset": normal + 1e12,
    }
