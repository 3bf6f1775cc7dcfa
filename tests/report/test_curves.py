"""The values behind the charts, compared with the metrics that they must agree with."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskloss.metrics import average_precision_score, roc_auc_score
from taskloss.report import describe_curves, describe_thresholds, precision_at_positives, thin_curve
from taskloss.report.curves import CALIBRATION_BINS, FALSE_POSITIVE_RATES, MAX_POINTS, calibration_bins, recall_at_rates
from taskloss.report.figures import pooled_bins


def draw(n: int, levels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 2, n)
    target[:2] = 0, 1
    return rng.integers(0, levels, n) + target * 0.5, target


@given(n=st.integers(2, 60), levels=st.integers(1, 30), seed=st.integers(0, 99))
def test_curve_averages_to_the_metric(n, levels, seed):
    scores, target = draw(n, levels, seed)
    precision = precision_at_positives(scores, target)
    assert len(precision) == target.sum()
    assert precision.mean() == pytest.approx(average_precision_score(scores, target), abs=1e-12)


def test_long_curves_keep_their_area():
    scores, target = draw(3001, 200)
    curve = describe_curves(scores, target, None).precision
    assert len(curve) == MAX_POINTS
    assert np.mean(curve) == pytest.approx(average_precision_score(scores, target), abs=1e-6)


@pytest.mark.parametrize("levels", [3, 10, 4000])
def test_roc_has_the_area_of_the_metric(levels):
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 4000)
    scores = rng.integers(0, levels, 4000) + (rng.integers(0, levels, 4000)) * target
    area = np.trapezoid(recall_at_rates(scores, target), FALSE_POSITIVE_RATES)
    assert area == pytest.approx(roc_auc_score(scores, target), abs=2e-3)


@given(n=st.integers(2, 400), levels=st.integers(1, 300), seed=st.integers(0, 99), chosen=st.none() | st.floats(-5, 300))
def test_thresholds_count_right(n, levels, seed, chosen):
    scores, target = draw(n, levels, seed)
    points = describe_thresholds(scores, target, chosen)
    assert list(points.values) == sorted(points.values, reverse=True)
    for value, hits, alarms in zip(points.values, points.true_positives, points.false_positives, strict=True):
        assert hits == (target[scores >= value] == 1).sum()
        assert alarms == (target[scores >= value] == 0).sum()
    assert (points.true_positives[-1], points.false_positives[-1]) == (points.positives, points.negatives)
    assert sum(points.positive_scores) == points.positives
    assert sum(points.negative_scores) == points.negatives
    if chosen is not None and chosen < scores.max():
        flagged = {hits + alarms for hits, alarms in zip(points.true_positives, points.false_positives, strict=True)}
        assert (scores > chosen).sum() in flagged


def test_calibration():
    rng = np.random.default_rng(0)
    probabilities = rng.beta(0.3, 4, 20_000)
    target = (rng.uniform(size=20_000) < probabilities).astype(int)
    bins = calibration_bins(probabilities, target)
    assert len(bins) == CALIBRATION_BINS
    assert sum(part.samples for part in bins) == 20_000
    for part in bins:
        assert part.observed == pytest.approx(part.predicted, abs=4 * np.sqrt(part.predicted / part.samples))
        assert part.predicted * part.samples == pytest.approx(probabilities.sum() / CALIBRATION_BINS, abs=1.5)
    pooled = pooled_bins([describe_curves(probabilities, target, probabilities)] * 2)
    np.testing.assert_allclose(pooled[:, 2], [2 * part.samples for part in bins])
    np.testing.assert_allclose(pooled[:, 1], [part.observed for part in bins])


@pytest.mark.parametrize("probabilities", [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5]])
def test_calibration_of_few_samples(probabilities):
    bins = calibration_bins(np.array(probabilities), np.ones(len(probabilities), dtype=int))
    assert (len(bins), sum(part.samples for part in bins)) == (CALIBRATION_BINS, len(probabilities))


def test_thin_curve():
    assert thin_curve([0.1, 0.2]) == ((1, 2), (0.1, 0.2))
    steps, values = thin_curve(list(np.linspace(0, 1, 5000)))
    assert (steps[0], steps[-1], len(steps), values[-1]) == (1, 5000, MAX_POINTS, 1.0)
