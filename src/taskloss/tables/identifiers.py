"""Recognizing identifiers: columns that name the rows, such as counters and customer numbers, and say nothing about them."""

from __future__ import annotations

import re

import numpy as np
from scipy.special import pdtr

MIN_ROWS = 10
"""Tables with fewer rows are too small to recognize identifiers in."""
MAX_PROBABILITY = 1e-6
"""A column of whole numbers is an identifier if its values would be this different by chance with at most this probability."""
MIN_DISTINCT = 0.9
"""Share of different values that a column needs to be an identifier by its name."""
MAX_LENGTH = 40
"""Longest text of an identifier; longer ones are prose."""
WORDS = frozenset({"id", "ids", "uid", "uuid", "guid", "key", "index", "idx", "rowid", "unnamed", "nr", "no"})
"""Words at the beginning or the end of a name that tell an identifier."""


def why_identifier(name: str, values: np.ndarray) -> str:
    """Return why a column of numbers is an identifier, or an empty string if it does not look like one; ``values`` has no NaN.

    The test for whole numbers: n independent draws from R possible values agree in n (n - 1) / (2 R) pairs on average, and in
    more if some values are more likely than others. A column with far fewer equal pairs was not drawn but dealt, as identifiers
    are, in whatever order and with whatever gaps.

    >>> why_identifier("size", np.arange(200.0)[::-1]), why_identifier("customer_id", np.arange(20.0) ** 5)
    ('an identifier, whole numbers 0 to 199', 'an identifier by its name, all different')
    >>> why_identifier("size", np.round(np.random.default_rng(0).uniform(0, 199, 200)))
    ''
    """
    rows = len(values)
    if rows < MIN_ROWS or (values != np.floor(values)).any() or np.abs(values).max() > 2.0**53:
        return ""
    if np.array_equal(values, values[0] + np.arange(rows)):
        return "it counts the rows"
    low, high = values.min(), values.max()
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    equal_pairs = float((counts * (counts - 1)).sum()) / 2
    expected_pairs = rows * (rows - 1) / 2 / (high - low + 1)
    # Equal pairs are rare and nearly independent: their number has a Poisson distribution.
    if pdtr(equal_pairs, expected_pairs) < MAX_PROBABILITY:
        return f"an identifier, whole numbers {low:.12g} to {high:.12g}"
    if names_identifier(name) and len(counts) >= MIN_DISTINCT * rows:
        return f"an identifier by its name, {'' if len(counts) == rows else 'nearly '}all different"
    return ""


def names_identifier(name: str) -> bool:
    """Whether a name tells an identifier.

    >>> [names_identifier(name) for name in ("id", "PassengerId", "customer_id", "Unnamed: 0", "width", "paid")]
    [True, True, True, True, False, False]
    """
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    return bool(words) and not WORDS.isdisjoint((words[0], words[-1]))
