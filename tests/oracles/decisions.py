"""Enumeration of all decisions of a small instance, and the losses of predicted costs as their papers write them.

Independent of the library: decisions come from walks, products and permutations, and the best one is found in the list of all.
``answers`` are all decisions of an instance, ``(A, n)``; costs and scores are ``(R, n)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def all_edge_paths(edges: np.ndarray, start: int, end: int, directed: bool = True) -> np.ndarray:
    """Return indicators of the edge sets of all simple paths from start to end, one per row."""

    def walk(visited: list[int], used: list[int]) -> Iterator[list[int]]:
        if visited[-1] == end:
            yield used
            return
        for number, (tail, head) in enumerate(edges.tolist()):
            for here, there in ((tail, head), (head, tail))[: 1 if directed else 2]:
                if here == visited[-1] and there not in visited:
                    yield from walk([*visited, there], [*used, number])

    paths = list(walk([start], []))
    psi = np.zeros((len(paths), len(edges)))
    for row, used in zip(psi, paths, strict=True):
        row[used] = 1.0
    return psi


def all_subsets(items: int) -> np.ndarray:
    """Return indicators of all subsets, ``(2^n, n)``."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=items)))


def all_tours(cities: int) -> np.ndarray:
    """Return indicators of the edges, pairs in lexicographic order, of all round trips."""
    number = {pair: k for k, pair in enumerate(itertools.combinations(range(cities), 2))}
    rows = set()
    for order in itertools.permutations(range(1, cities)):
        tour = (0, *order)
        row = [0.0] * len(number)
        for i, j in zip(tour, (*tour[1:], 0), strict=True):
            row[number[min(i, j), max(i, j)]] = 1.0
        rows.add(tuple(row))
    return np.array(sorted(rows))


def assert_best(psi: np.ndarray, scores: np.ndarray, known: np.ndarray) -> None:
    """Assert that every answer ``(R, n)`` is one of the known decisions, and none of these scores higher."""
    for answer, row in zip(psi.reshape(-1, psi.shape[-1]), scores.reshape(-1, scores.shape[-1]), strict=True):
        assert (known == answer).all(axis=1).any()
        totals = known @ row
        assert answer @ row >= totals.max() - 1e-12 * max(1.0, np.abs(row).sum())


# --- losses of predicted costs ------------------------------------------------------------------------------------------------


def cheapest(answers: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return ``argmin <costs, psi>`` of each instance, ``(R, n)``."""
    return answers[(costs @ answers.T).argmin(axis=1)]


def least_cost(answers: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return ``min <costs, psi>`` of each instance, ``(R,)``."""
    return (costs @ answers.T).min(axis=1)


def spo_plus(answers: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return values and gradients of SPO+ (Elmachtoub and Grigas 2022, definition 3 and proposition 3, for a minimum)."""
    best = cheapest(answers, true)
    values = ((true - 2 * predicted) @ answers.T).max(axis=1) + 2 * (predicted * best).sum(axis=1) - least_cost(answers, true)
    return values, 2 * (best - cheapest(answers, 2 * predicted - true))


def blackbox_gradient(answers: np.ndarray, predicted: np.ndarray, true: np.ndarray, lambda_: float) -> np.ndarray:
    """Return the gradient of Vlastelica et al. (2020), algorithm 1, for the incoming gradient ``true``."""
    return -(cheapest(answers, predicted) - cheapest(answers, predicted + lambda_ * true)) / lambda_


def perturbation_gradient(
    answers: np.ndarray, predicted: np.ndarray, true: np.ndarray, step: float, difference: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return values and gradients of the finite differences of ``min <costs, psi>`` (Huang and Gupta 2024)."""
    above = step if difference in ("forward", "central") else 0.0
    below = step if difference in ("backward", "central") else 0.0
    points = predicted + above * true, predicted - below * true
    values, decisions = ([f(answers, costs) for costs in points] for f in (least_cost, cheapest))
    return (values[0] - values[1]) / (above + below), (decisions[0] - decisions[1]) / (above + below)


def fenchel_young(
    answers: np.ndarray, scores: np.ndarray, truth: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the perturbed Fenchel-Young loss of Berthet et al. (2020) for noise ``(S, R, n)``.

    The values come twice: as in the paper, and less the noise at the truth, whose mean is zero. The gradient is that in the
    scores.
    """
    best = np.stack([cheapest(answers, -(scores + sample)) for sample in noise])
    maxima = ((scores + noise) * best).sum(axis=-1)
    as_published = (maxima - (scores * truth).sum(axis=-1)).mean(axis=0)
    without_noise = (maxima - ((scores + noise) * truth).sum(axis=-1)).mean(axis=0)
    return as_published, without_noise, best.mean(axis=0) - truth


def implicit_mle_gradient(
    answers: np.ndarray, scores: np.ndarray, incoming: np.ndarray, lambda_: float, noise: np.ndarray, symmetric: bool
) -> np.ndarray:
    """Return the gradient of Niepert et al. (2021), algorithm 1, for noise ``(S, R, n)``; or its difference to both sides."""
    above, width = (lambda_, 2 * lambda_) if symmetric else (0.0, lambda_)
    differences = [
        cheapest(answers, -(scores + sample + above * incoming)) - cheapest(answers, -(scores + sample - lambda_ * incoming))
        for sample in noise
    ]
    return np.mean(differences, axis=0) / width
