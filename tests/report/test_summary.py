"""The verdict and its statistics: means, standard deviations, the corrected test, Holm's correction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from taskloss.report import Comparison, DataCard, Run, split_rows, summarize, summary_rows
from taskloss.report.rows import other_rows
from taskloss.report.summary import holm

CARD = DataCard("file.csv", "file.csv", 1000, 90, "y", "1", (), ())


def comparison(baseline: list[float], contender: list[float], **others: list[float]) -> Comparison:
    values = {"hinge": [], **others, "direct": contender, "cross-entropy": baseline}
    values = {method: by_seed for method, by_seed in values.items() if by_seed}
    # The seeds are in reverse order: the report must sort them.
    runs = [
        Run(method, seed, value, {"ROC AUC": value / 2}, (), (), 3, 0.5)
        for method, by_seed in values.items()
        for seed, value in reversed(list(enumerate(by_seed)))
    ]
    methods = dict.fromkeys(reversed(values), "what it is")
    return Comparison("AP", CARD, 0.4, methods, "cross-entropy", "direct", tuple(runs), {}, "taskloss compare", {"taskloss": "9"})


BETTER = comparison([0.60, 0.62, 0.61], [0.80, 0.83, 0.81])
WORSE = comparison([0.80, 0.83, 0.81], [0.60, 0.62, 0.61])
UNCLEAR = comparison([0.80, 0.70, 0.75], [0.81, 0.69, 0.78])


@pytest.mark.parametrize(
    ("records", "outcome", "finding"),
    [
        (BETTER, "helps", "Direct training helps on this data: mean test AP 81.33 with direct against 61.00 with cross-entropy"),
        (
            WORSE,
            "hurts",
            "Direct training does not help on this data, it does worse: mean test AP 61.00 with direct against 81.33",
        ),
        (UNCLEAR, "unclear", "Direct training does not clearly help on this data: mean test AP 76.00 with direct against 75.00"),
        (comparison([0.5, 0.6], [0.5, 0.6]), "unclear", "Direct training does not clearly help on this data: mean test AP 55.00"),
    ],
)
def test_verdict_tells_the_truth(records, outcome, finding):
    summary = summarize(records)
    assert summary.outcome == outcome
    assert summary.verdict.startswith(finding)


def test_interval_and_p_are_the_corrected_ones():
    contrast = summarize(UNCLEAR).contrasts["direct"]
    spread = np.std([0.01, -0.01, 0.03], ddof=1)
    error = spread * np.sqrt(1 / 3 + 0.4 / 0.6)
    np.testing.assert_allclose(contrast.interval, (0.01 - 4.302652729749464 * error, 0.01 + 4.302652729749464 * error))
    assert contrast.p_value == pytest.approx(2 * stats.t.sf(0.01 / error, 2))
    assert contrast.spread == pytest.approx(spread)


def test_plain_t_test_would_be_too_sure():
    """The plain paired t-test calls this case a win, the corrected one does not."""
    records = comparison([0.70, 0.70, 0.70, 0.70], [0.71, 0.72, 0.71, 0.73])
    contrast = summarize(records).contrasts["direct"]
    assert stats.ttest_1samp(contrast.differences, 0).pvalue < 0.05
    assert summarize(records).outcome == "unclear"


def test_equal_differences_do_not_decide():
    """One test sample more in both splits: the spread of zero is chance, not certainty."""
    summary = summarize(comparison([0.5, 0.5], [0.75, 0.75]))
    contrast = summary.contrasts["direct"]
    assert (contrast.p_value, contrast.interval) == (0.5, (0.0, 0.5))
    assert summary.outcome == "unclear"


@pytest.mark.parametrize("values", [[0.01, 0.02, 0.03], [0.5, 0.9, 0.4], [0.03, 0.01, 0.04, 0.2], [0.7]])
def test_holm_against_its_definition(values):
    ranked = sorted(values)
    expected = [max(min(1.0, (len(values) - j) * ranked[j]) for j in range(ranked.index(value) + 1)) for value in values]
    assert holm(values) == pytest.approx(expected)


def test_remark_names_the_highest_mean():
    assert summarize(BETTER).remark == "No other method has a higher mean than direct."
    assert summarize(WORSE).remark == "The highest mean is that of cross-entropy."
    clear = comparison([0.6, 0.61, 0.6], [0.61, 0.61, 0.61], hinge=[0.90, 0.91, 0.91])
    assert summarize(clear).remark.startswith(
        "The highest mean is that of hinge, 90.67: +30.33 points against cross-entropy, which is clear"
    )
    unclear = comparison([0.6, 0.7, 0.6], [0.61, 0.65, 0.61], hinge=[0.7, 0.6, 0.7])
    assert "which is not clear" in summarize(unclear).remark


def test_rows():
    assert [tuple(row) for row in summary_rows(UNCLEAR)] == [
        ("cross-entropy", "75.00", "5.00", "", "", "", ""),
        ("direct", "76.00", "6.24", "+1.00", "-7.61 to +9.61", "0.667", "2 of 3"),
    ]
    assert split_rows(UNCLEAR) == [["1", "80.00", "81.00"], ["2", "70.00", "69.00"], ["3", "75.00", "78.00"]]
    assert other_rows(UNCLEAR) == (["ROC AUC"], [["cross-entropy", "37.50", "0.5"], ["direct", "38.00", "0.5"]])


@pytest.mark.parametrize("records", [comparison([0.5], [0.6]), comparison([0.5, 0.6, 0.7], [0.5, 0.6])])
def test_unpaired_or_single_splits_are_refused(records):
    with pytest.raises(ValueError, match="two or more splits"):
        summarize(records)
