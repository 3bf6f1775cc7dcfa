"""The verdict and its statistics: means, standard deviations, the corrected test, Holm's correction."""

from __future__ import annotations

from dataclasses import replace

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


BETTER = comparison([0.60, 0.62, 0.61, 0.61, 0.60], [0.80, 0.83, 0.81, 0.82, 0.80])
WORSE = comparison([0.80, 0.83, 0.81, 0.82, 0.80], [0.60, 0.62, 0.61, 0.61, 0.60])
UNCLEAR = comparison([0.80, 0.70, 0.75], [0.81, 0.69, 0.78])


@pytest.mark.parametrize(
    ("records", "recommended", "outcome", "verdict", "gains"),
    [
        (
            BETTER,
            "direct",
            "clear",
            "Use direct: its mean test AP is 81.20, the highest of 2 methods. How sure is that? By 5 splits, it is clearly "
            "better than cross-entropy.",
            ["direct against cross-entropy: +20.40 (+18.98 to +21.82), clearly better"],
        ),
        (
            WORSE,
            "cross-entropy",
            "unclear",
            "Use cross-entropy: its mean test AP is 81.20, the highest of 2 methods. How sure is that? By 5 splits, it is "
            "clearly better than direct.",
            ["direct alone against cross-entropy: -20.40 (-21.82 to -18.98), clearly worse"],
        ),
        (
            UNCLEAR,
            "cross-entropy",
            "unclear",
            "Use cross-entropy: its mean test AP is 75.00; direct has 76.00, which is ahead by less than one standard error. How "
            "sure is that? By 3 splits, it cannot be told from direct.",
            ["direct alone against cross-entropy: +1.00 (-7.61 to +9.61), no clear difference"],
        ),
        (
            comparison([0.5, 0.6], [0.5, 0.6]),
            "cross-entropy",
            "unclear",
            "Use cross-entropy: its mean test AP is 55.00, the highest of 2 methods. How sure is that? By 2 splits, it cannot be "
            "told from direct.",
            ["direct alone against cross-entropy: +0.00 (+0.00 to +0.00), no clear difference"],
        ),
    ],
)
def test_verdict_tells_the_truth(records, recommended, outcome, verdict, gains):
    summary = summarize(records)
    assert (summary.recommended, summary.outcome, summary.verdict) == (recommended, outcome, verdict)
    assert [gain.sentence for gain in summary.gains] == gains


def test_verdict_says_how_sure_it_is_of_each_method():
    values = {"hinge": [0.78, 0.84, 0.82, 0.81, 0.80], "lp": [0.79, 0.81, 0.81, 0.80, 0.79]}
    summary = summarize(comparison([0.60, 0.62, 0.61, 0.61, 0.60], [0.80, 0.83, 0.81, 0.82, 0.80], **values))
    assert summary.verdict.endswith(
        "By 5 splits, it is clearly better than cross-entropy, it is probably better than lp, and it cannot be told from hinge."
    )


def test_nothing_is_clear_on_few_splits():
    summary = summarize(comparison([0.60, 0.62, 0.61], [0.80, 0.83, 0.81]))
    assert summary.gains[0].sentence.endswith(", better, but on few splits")
    assert "clearly" not in summary.verdict


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
    assert contrast.finding == "probably better"


def test_equal_differences_do_not_decide():
    """One test sample more in both splits: the spread of zero is chance, not certainty."""
    summary = summarize(comparison([0.5, 0.5], [0.75, 0.75]))
    contrast = summary.contrasts["direct"]
    assert (contrast.p_value, contrast.interval) == (0.5, (0.0, 0.5))
    assert (summary.recommended, summary.outcome) == ("cross-entropy", "unclear")


@pytest.mark.parametrize("values", [[0.01, 0.02, 0.03], [0.5, 0.9, 0.4], [0.03, 0.01, 0.04, 0.2], [0.7]])
def test_holm_against_its_definition(values):
    ranked = sorted(values)
    expected = [max(min(1.0, (len(values) - j) * ranked[j]) for j in range(ranked.index(value) + 1)) for value in values]
    assert holm(values) == pytest.approx(expected)


COMMANDS = {name: f"taskloss train file.csv --method {name}" for name in ("cross-entropy", "direct", "hinge", "auto", "LightGBM")}


def test_default_is_left_for_a_lead_of_more_than_one_standard_error():
    """By hand: the differences 1 and 3 have mean 2 and deviation sqrt(2), so an error of sqrt(2 (1/2 + 2/3)) = 1.53."""
    values = {"auto": [0.71, 0.73], "hinge": [0.72, 0.76]}
    records = replace(comparison([0.5, 0.5], [0.6, 0.6], **values), default="auto", train_commands=COMMANDS)
    summary = summarize(records)
    assert summary.recommended == "hinge"
    assert summary.train_command == "taskloss train file.csv --method hinge"
    assert "chosen by the splits that judge it" in summary.remark
    values["hinge"] = [0.71, 0.76]  # mean 1.5, deviation 2.12, error 2.29
    summary = summarize(replace(comparison([0.5, 0.5], [0.6, 0.6], **values), default="auto", train_commands=COMMANDS))
    assert summary.recommended == "auto"
    assert "hinge has 73.50, which is ahead by less than one standard error" in summary.verdict
    assert "auto trains several models; hinge alone trains faster and is within one standard error." in summary.remark


def test_only_what_train_can_train_is_recommended():
    values = {"direct LightGBM": [0.9, 0.91], "hinge": [0.80, 0.82]}
    records = comparison([0.5, 0.51], [0.6, 0.61], **values)
    summary = summarize(replace(records, train_commands=COMMANDS))
    assert summary.recommended == "hinge"
    assert "direct LightGBM has 90.50, but taskloss train cannot train it." in summary.verdict


def test_gains_over_the_baseline_over_trees_and_of_the_contender():
    values = {"auto": [0.8, 0.81, 0.82], "LightGBM": [0.7, 0.72, 0.71]}
    records = comparison([0.5, 0.51, 0.5], [0.6, 0.63, 0.61], **values)
    records = replace(records, default="auto", trees="LightGBM", train_commands=COMMANDS)
    gains = summarize(records).gains
    assert [(gain.method, gain.reference) for gain in gains] == [
        ("auto", "cross-entropy"),
        ("auto", "LightGBM"),
        ("direct", "cross-entropy"),
    ]
    assert gains[1].contrast.mean == pytest.approx(0.1)
    assert "LightGBM" not in summarize(records).remark
    without = comparison([0.5, 0.51, 0.5], [0.6, 0.63, 0.61], auto=values["auto"])
    summary = summarize(replace(without, default="auto", trees="LightGBM", train_commands=COMMANDS))
    assert [gain.reference for gain in summary.gains] == ["cross-entropy", "cross-entropy"]
    assert "LightGBM was not compared, so how it does on these data is not known." in summary.remark
    best_trees = comparison([0.5, 0.51, 0.5], [0.6, 0.63, 0.61], LightGBM=[0.9, 0.92, 0.9])
    summary = summarize(replace(best_trees, trees="LightGBM", train_commands=COMMANDS))
    assert [(gain.method, gain.reference) for gain in summary.gains] == [
        ("LightGBM", "cross-entropy"),
        ("direct", "cross-entropy"),
    ]


def test_more_splits_are_advised_where_they_are_few():
    assert "--splits 10 tells more" in summarize(UNCLEAR).remark
    many = comparison([0.80, 0.70, 0.75, 0.71] * 3, [0.81, 0.69, 0.78, 0.70] * 3)
    assert "--splits" not in summarize(many).remark


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
