r"""Separable ranking metrics given as a function ``m(i, c)``: their terms and values.

.. math:: M = \frac{1}{Z} \sum_{i=1}^{P} m(i, c_i), \qquad Z = \sum_{i=1}^{R} m(i, 0) \text{ or } 1,

with i the rank of a positive among the positives, from 1, ``c_i`` the negatives above it, and Z the value of a perfect list of
the R relevant items.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from taskloss.kernels import ragged, user_functions
from taskloss.kernels.ranking import tie_orders
from taskloss.layout import Rankings
from taskloss.metrics import term_checks

TermFunction = Callable[..., Any]
"""``m(i, c)``, vectorized; see :class:`taskloss.SeparableMetric`."""
TIES = ("mean", "together", "worst")
SIZES = ("num_relevant", "num_negatives")
"""Names of parameters that give a term function the sizes of the ranking."""

# Rows and columns of the grid on which the shape of m is checked.
_SAMPLED_ROWS, _SAMPLED_COLUMNS = 64, 256


class BatchTerms:
    """The terms of one batch: ``m`` at positives of the flat list of all of them."""

    def __init__(self, m: TermFunction, rankings: Rankings) -> None:
        self.ranking = np.repeat(np.arange(len(rankings.positives)), rankings.positives)
        """Ranking of each positive, int64 ``(P,)``."""
        self.rank = ragged.index_in_row(rankings.positives) + 1
        """Rank of each positive among those of its ranking, from 1, int64 ``(P,)``."""
        self._m = m
        self._relevant = rankings.relevant.astype(np.int64)
        self._negatives = np.maximum(rankings.negatives, 1)
        self._sizes = _sizes_wanted(m, self._relevant, rankings.negatives)

    def __call__(self, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return ``m(i, c)`` of the positives ``rows`` with ``counts`` negatives above them."""
        sizes = {name: size[self.ranking[rows]] for name, size in self._sizes.items()}
        return _evaluate(self._m, self.rank[rows], counts, sizes)

    def of_rows(self, rows: np.ndarray, start: np.ndarray, step: int, cells: np.ndarray) -> np.ndarray:
        """Return the terms of positives ``rows`` in turn, each with ``cells`` counts from ``start`` on, in steps of 1 or -1."""
        if not user_functions.is_compiled(self._m):
            return self(np.repeat(rows, cells), np.repeat(start, cells) + step * ragged.index_in_row(cells))
        owner, term = self.ranking[rows], user_functions.term_of_numbers(self._m, frozenset(self._sizes))
        values = np.empty(cells.sum())
        sizes = (self._relevant[owner], self._negatives[owner])
        user_functions.write_terms(term, self.rank[rows], *sizes, start, step, cells, values)
        if not np.isfinite(values).all():
            term_checks.as_terms(
                values, np.repeat(self.rank[rows], cells), np.repeat(start, cells) + step * ragged.index_in_row(cells)
            )
        return values

    def sums(self, rows: np.ndarray, terms: np.ndarray) -> np.ndarray:
        """Return the sum of each ranking, ``(R,)``."""
        return np.bincount(self.ranking[rows], terms, len(self._relevant))

    def perfect(self) -> np.ndarray:
        """Return ``sum_{i <= R} m(i, 0)`` of each ranking, missing relevant items included; equal sizes share one evaluation."""
        key = np.stack([self._relevant, *self._sizes.values()])
        (relevant, *sizes), same = np.unique(key, axis=1, return_inverse=True)
        owner, i = np.repeat(np.arange(len(relevant)), relevant), ragged.index_in_row(relevant) + 1
        named = {name: size[owner] for name, size in zip(self._sizes, sizes, strict=True)}
        return np.bincount(owner, _evaluate(self._m, i, np.zeros_like(i), named), len(relevant))[same.reshape(-1)]


def _sizes_wanted(m: TermFunction, relevant: np.ndarray, negatives: np.ndarray) -> dict[str, np.ndarray]:
    """Return the sizes that the function has a parameter for."""
    # A ranking without negatives has c = 0 only; a function that divides by N must not divide by zero.
    sizes = zip(SIZES, (relevant, np.maximum(negatives, 1)), strict=True)
    return {name: size for name, size in sizes if name in _names_wanted(m)}


@functools.lru_cache(maxsize=256)
def _names_wanted(m: TermFunction) -> frozenset[str]:
    return term_checks.check_term_function(m, SIZES)


def _evaluate(m: TermFunction, i: np.ndarray, c: np.ndarray, sizes: dict[str, np.ndarray]) -> np.ndarray:
    """Return ``m`` for arrays of one shape, which it may not write to; float64 and finite."""
    if i.size == 0:
        return np.empty(0)
    i, c = i.view(), c.view()
    i.flags.writeable = c.flags.writeable = False
    return term_checks.as_terms(user_functions.term_of_arrays(m, frozenset(sizes))(i, c, **sizes), i, c)


def scale(terms: BatchTerms, rankings: Rankings, normalize: bool) -> np.ndarray:
    """Return ``1/Z``, ``(R,)``, zero where undefined; raise when the metric of a ranking could leave [0, 1]."""
    everything = np.arange(len(terms.rank))
    # The value of an undefined ranking is not used.
    perfect = np.where(rankings.undefined, 1.0, terms.perfect()) if normalize else np.ones(len(rankings.relevant))
    term_checks.check_perfect(perfect, rankings.relevant)
    lowest, highest = (
        np.where(rankings.undefined, 0.0, terms.sums(everything, terms(everything, counts)) / perfect)
        for counts in (rankings.negatives[terms.ranking], np.zeros(len(everything), np.int64))
    )
    term_checks.check_unit_interval(lowest, highest, normalize)
    return np.where(rankings.undefined, 0.0, 1.0 / perfect)


def of_counts(m: TermFunction, rankings: Rankings, counts: np.ndarray, normalize: bool) -> np.ndarray:
    """Return the metric of one answer, ``(R,)``."""
    terms = BatchTerms(m, rankings)
    everything = np.arange(len(counts))
    return scale(terms, rankings, normalize) * terms.sums(everything, terms(everything, counts))


def of_prediction(m: TermFunction, rankings: Rankings, normalize: bool, ties: str) -> np.ndarray:
    """Return the metric of the prediction, ``(R,)``; tied samples by the convention named ``ties``."""
    if ties == "worst":
        return of_counts(m, rankings, rankings.at_or_above, normalize)
    terms = BatchTerms(m, rankings)
    k, p = tie_orders.ranks_in_groups(rankings.lists)
    if ties == "together":
        everything = np.arange(len(k))
        values = scale(terms, rankings, normalize) * terms.sums(everything, terms(everything + p - k, rankings.at_or_above))
        term_checks.check_retrieved_together(values)
        return values
    total = np.zeros(len(rankings.positives))
    n = rankings.at_or_above - rankings.above
    least, greatest = tie_orders.likely_counts(k, p, n)
    width = greatest - least + 1
    for block in ragged.blocks(width):
        rows = np.repeat(np.arange(block.start, block.stop), width[block])
        counts = rankings.above[rows] + least[rows] + ragged.index_in_row(width[block])
        probabilities = tie_orders.count_probabilities(k[block], p[block], n[block], least[block], greatest[block])
        total += terms.sums(rows, probabilities * terms(rows, counts))
    return scale(terms, rankings, normalize) * total


@functools.lru_cache(maxsize=1024)
def check_shape(m: TermFunction, convex: bool, positives: int, negatives: int, relevant: int) -> None:
    """Raise when m grows with c, or is not convex in c though declared so, in a ranking of these sizes.

    A small grid is checked cell by cell; a large one at some rows and columns, denser where i and c are small.
    """
    rows, columns = _sample(1, positives, _SAMPLED_ROWS), _sample(0, negatives, _SAMPLED_COLUMNS)
    i, c = (axis.reshape(-1) for axis in np.meshgrid(rows, columns, indexing="ij"))
    sizes = _sizes_wanted(m, np.full(len(i), relevant), np.full(len(i), negatives))
    values = _evaluate(m, i, c, sizes).reshape(len(rows), len(columns))
    term_checks.check_falling(values, rows, columns)
    if convex:
        term_checks.check_convex(values, rows, columns)


def _sample(first: int, last: int, count: int) -> np.ndarray:
    """Return all whole numbers from ``first`` to ``last``, or about ``count`` of them, denser where they are small."""
    if last - first < count:
        return np.arange(first, last + 1)
    steps = np.geomspace(1, last - first + 1, count).astype(np.int64) - 1
    return np.unique(first + steps)
