"""Sorting into one list of positives and one of negatives per ranking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taskloss.kernels.sort import IGNORED, POSITIVE, split_by_label


def check_lists(scores, labels, owner, rankings):
    lists = split_by_label(scores, labels, owner, rankings)
    full_owner = owner if len(owner) else np.zeros(len(scores), np.int64)
    for sorted_scores, index, start, label in (
        (lists.positives, lists.positive_index, lists.positive_start, POSITIVE),
        (lists.negatives, lists.negative_index, lists.negative_start, 0),
    ):
        np.testing.assert_array_equal(scores[index].astype(np.float64), sorted_scores)
        for r in range(rankings):
            segment = slice(start[r], start[r + 1])
            assert (np.diff(sorted_scores[segment]) <= 0).all()
            assert sorted(index[segment]) == np.flatnonzero((labels == label) & (full_owner == r)).tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_lists_are_sorted_and_complete(dtype, data):
    n = data.draw(st.integers(0, 40))
    width = np.dtype(dtype).itemsize * 8
    scores = data.draw(hnp.arrays(dtype, n, elements=st.floats(allow_nan=False, allow_infinity=False, width=width)))
    labels = data.draw(hnp.arrays(np.uint8, n, elements=st.integers(0, 2)))
    rankings = data.draw(st.integers(1, 4))
    owner = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, rankings - 1)))
    if rankings == 1:
        owner = np.empty(0, np.int64)
    check_lists(scores, labels, owner, rankings)


def test_both_zeros_are_one_score_and_ignored_samples_are_left_out():
    scores = np.array([-0.0, 0.0, 5.0], np.float32)
    lists = split_by_label(scores, np.array([1, 0, IGNORED], np.uint8), np.empty(0, np.int64), 1)
    assert lists.positives.tolist() == lists.negatives.tolist() == [0.0]
    assert not np.signbit(lists.positives[0])
