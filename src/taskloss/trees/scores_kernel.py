"""Raw scores of gradient-boosted trees, equal to those of LightGBM to the last bit.

A block of rows goes down a tree together, one level at a time; rows that have reached a leaf leave the list of active rows. The
next node is looked up, not branched to, and no row waits for another, so the processor neither guesses directions nor idles.
"""

from __future__ import annotations

import numpy as np

from taskloss.kernels._numba import inlined_kernel, kernel

BLOCK_ROWS = 256
"""Rows that go down a tree together; more would not stay in the nearest cache."""

_LARGEST_ZERO = float(np.float32(1e-35))
"""LightGBM reads values of at most this size as zero, and keeps the bound as a float32."""


@kernel
def sum_leaf_values(
    table, first_split, feature, threshold, zero_left, nan_left, children, leaf_value, category_start, categories, outputs
):
    """Return the sums of the leaf values that each row reaches, float64 ``(n, outputs)``, added in the order of the trees.

    The kernel checks no index: the arrays must be those of a :class:`taskloss.trees.forest.Forest`, which has checked them.
    There are T trees with S splits and S + T leaves in all, those of a tree next to one another.

    Args:
        table: the rows, float64 ``(n, features)``, read.
        first_split: the first split of each tree, and S; int64 ``(T + 1,)``, read. The leaves of tree t begin at
            ``first_split[t] + t``, as a tree has one leaf more than splits.
        feature: the column that a split reads, int32 ``(S,)``, read.
        threshold: values up to this go left, float64 ``(S,)``, read; not used where a split has categories.
        zero_left: 1 where zero goes left, uint8 ``(S,)``, read; not used where a split has categories.
        nan_left: 1 where NaN goes left, uint8 ``(S,)``, read; not used where a split has categories.
        children: left and right child, int32 ``(S, 2)``, read: ``c >= 0`` is split c of the tree, ``c < 0`` its leaf ``-1 - c``.
        leaf_value: float64 ``(S + T,)``, read.
        category_start: where the categories of a split begin, and B; int64 ``(S + 1,)``, read. Splits of numbers have none.
        categories: sets of categories that go left, uint8 ``(B,)``, read: category c is bit ``c % 8`` of byte ``c // 8``.
        outputs: the number of columns of the result; tree t adds to column ``t % outputs``.
    """
    scores = np.zeros((len(table), outputs), np.float64)
    rows = np.empty((BLOCK_ROWS, table.shape[1]), np.float64)
    node, active = np.empty(BLOCK_ROWS, np.int32), np.empty(BLOCK_ROWS, np.int32)
    for start in range(0, len(table), BLOCK_ROWS):
        count = min(BLOCK_ROWS, len(table) - start)
        for i in range(count):
            for column in range(table.shape[1]):
                value = table[start + i, column]
                rows[i, column] = 0.0 if abs(value) <= _LARGEST_ZERO else value
        for tree in range(len(first_split) - 1):
            first = first_split[tree]
            is_leaf = first_split[tree + 1] == first
            for i in range(count):
                node[i], active[i] = -1 if is_leaf else 0, i
            remaining = 0 if is_leaf else count
            while remaining > 0:
                kept = 0
                for k in range(remaining):
                    i = active[k]
                    split = first + node[i]
                    value = rows[i, feature[split]]
                    category, end = category_start[split], category_start[split + 1]
                    if end > category:
                        left = _is_in_set(value, categories[category:end])
                    else:
                        left = (value <= threshold[split]) | ((value != value) & (nan_left[split] == 1))
                        left = zero_left[split] == 1 if value == 0.0 else left
                    node[i] = children[split, 1 - left]
                    active[kept] = i
                    kept += node[i] >= 0
                remaining = kept
            for i in range(count):
                # A leaf is stored as -1 - leaf.
                scores[start + i, tree % outputs] += leaf_value[first + tree - 1 - node[i]]
    return scores


@inlined_kernel
def _is_in_set(value, members):
    """Whether a value, rounded toward zero, is a member of a set of bits; NaN and what the set has no bit for are not."""
    if not -1.0 < value < 8.0 * len(members):
        return False
    category = np.int64(value)
    return (members[category >> 3] >> (category & 7)) & 1 == 1
