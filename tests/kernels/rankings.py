"""Rankings for the kernel tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from taskloss.kernels.sort import TwoLists, split_by_label


def one_ranking(positives: np.ndarray, negatives: np.ndarray) -> TwoLists:
    """Return a single ranking from two lists in any order."""
    s = np.sort(np.asarray(positives, np.float64))[::-1].copy()
    t = np.sort(np.asarray(negatives, np.float64))[::-1].copy()
    index = np.arange(len(s) + len(t))
    return TwoLists(
        positives=s,
        negatives=t,
        positive_index=index[: len(s)],
        negative_index=index[len(s) :],
        positive_start=np.array([0, len(s)]),
        negative_start=np.array([0, len(t)]),
    )


def four_items() -> TwoLists:
    """Return the example of the tests by hand: positives 3 and 1, negatives 2 and 0, so the prediction has the counts 0 and 1."""
    return one_ranking(np.array([3.0, 1.0]), np.array([2.0, 0.0]))


def adversarial_scores(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Return scores that break careless arithmetic, by name."""
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


def adversarial_rankings(positives: int, negatives: int) -> Iterator[TwoLists]:
    """Yield one ranking for each of :func:`adversarial_scores`, with random labels."""
    rng = np.random.default_rng([positives, negatives])
    for scores in adversarial_scores(rng, positives + negatives).values():
        labels = rng.permutation(np.arange(positives + negatives) < positives)
        yield one_ranking(scores[labels], scores[~labels])


def check_rankings_are_independent(
    augment: Callable[[TwoLists], tuple[np.ndarray, np.ndarray]], scores: np.ndarray, labels: np.ndarray, owner: np.ndarray
) -> None:
    """Check that ``augment`` gives the same counts for rankings in one call as for each alone."""
    rankings = int(owner.max()) + 2  # the last one is empty
    together = split_by_label(scores, labels, owner, rankings)
    answers = augment(together)
    for r in range(rankings):
        inside = owner == r
        alone = augment(one_ranking(scores[inside & (labels == 1)], scores[inside & (labels == 0)]))
        rows = slice(together.positive_start[r], together.positive_start[r + 1])
        np.testing.assert_array_equal(answers[0][rows], alone[0])
        np.testing.assert_array_equal(answers[1][rows], alone[1])
