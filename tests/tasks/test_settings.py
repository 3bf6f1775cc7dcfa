"""Settings of the ranking tasks that make no sense are refused."""

from __future__ import annotations

import pytest

import taskloss as tl


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tl.PartialAUC(max_fpr=0.0), "max_fpr must be finite and above zero"),
        (lambda: tl.PartialAUC(max_fpr=5), "max_fpr must be at most 1, got 5; 5% is 0.05"),
        (lambda: tl.PartialAUC(max_fpr=0.2, min_fpr=0.2), "min_fpr must be at least 0 and below max_fpr=0.2"),
        (lambda: tl.RecallAtFPR(1.5), "fpr must be at most 1"),
        (lambda: tl.PrecisionAtRecall(0.0), "recall must be finite and above zero"),
        (lambda: tl.RecallAtPrecision(2.0), "precision must be at most 1"),
        (lambda: tl.PrecisionAtK(0), "k must be at least 1, got 0"),
        (lambda: tl.RecallAtK(1.5), "a fractional k must be at most 1"),
    ],
)
def test_values_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_k_must_be_a_number():
    with pytest.raises(TypeError, match="k must be a count"):
        tl.PrecisionAtK("10")
