"""Probabilities: rising in the score, right where the model is right, finite where samples are few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

from taskloss.estimators.calibration import BrokenLine, VectorScaling


def test_one_segment_is_platt_scaling():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=40)
    target = (rng.random(40) < expit(2 * scores - 1)).astype(int)
    line = BrokenLine.fit(scores, target)
    positives, negatives = target.sum(), (1 - target).sum()
    wanted = np.where(target == 1, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    twice = (np.tile(scores, 2)[:, None], np.repeat([1, 0], 40), np.append(wanted, 1 - wanted))
    reference = LogisticRegression(C=np.inf, tol=1e-8).fit(twice[0], twice[1], sample_weight=twice[2])
    assert len(line.slopes) == 1
    assert line.slopes[0] == pytest.approx(reference.coef_[0, 0], rel=1e-3)
    assert line.offset == pytest.approx(reference.intercept_[0], abs=1e-3)


def test_a_broken_line_follows_what_a_straight_one_cannot():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    truth = expit(np.where(scores < 0, 0.3 * scores, 4 * scores) - 1)
    line = BrokenLine.fit(scores, (rng.random(20_000) < truth).astype(int))
    straight = BrokenLine._fit(scores, truth, np.ones(len(scores)), np.empty(0), None)
    error, straight_error = (np.abs(fit.probabilities(scores) - truth).mean() for fit in (line, straight))
    assert error < 0.02 < straight_error


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 200), st.sampled_from([0.0, 0.02, 0.5, 1.0]), st.booleans())
def test_always_rising_and_finite(seed, n, share, tied):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    line = BrokenLine.fit(scores.round() if tied else scores, (rng.random(n) < share).astype(int))
    grid = np.linspace(-10, 10, 101)
    assert (np.diff(line.logits(grid)) > 0).all()
    assert np.isfinite(line.logits(grid)).all()


def test_vector_scaling_finds_the_scale_of_each_class():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 3)) * 2
    target = np.array([rng.choice(3, p=row) for row in softmax(logits, axis=1)])
    found = VectorScaling.fit((logits - [0, 1, 0]) / [1.0, 2.0, 0.5], target)
    np.testing.assert_allclose(found.slopes, [1.0, 2.0, 0.5], rtol=0.08)
    np.testing.assert_allclose(found.probabilities((logits - [0, 1, 0]) / [1, 2, 0.5]), softmax(logits, axis=1), atol=0.05)


def test_a_weight_counts_as_copies_do():
    rng = np.random.default_rng(0)
    scores, target, weights = rng.normal(size=(200, 3)), rng.integers(0, 3, 200), rng.integers(1, 4, 200)
    copies = np.repeat(np.arange(200), weights)
    by_weight, by_copies = VectorScaling.fit(scores, target, weights), VectorScaling.fit(scores[copies], target[copies])
    np.testing.assert_allclose(by_weight.probabilities(scores), by_copies.probabilities(scores), atol=1e-4)
    probabilities = 1 / (1 + np.exp(-scores[:, 0]))
    by_weight = BrokenLine._fit(scores[:, 0], probabilities, weights, np.empty(0), None)
    by_copies = BrokenLine._fit(scores[copies, 0], probabilities[copies], np.ones(len(copies)), np.empty(0), None)
    np.testing.assert_allclose(by_weight.logits(scores[:, 0]), by_copies.logits(scores[:, 0]), atol=1e-4)
