"""Feature effects: columns that a model uses have one, others have none; the cost is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from taskloss.cli import feature_effects
from taskloss.cli.feature_effects import measure_effects
from taskloss.cli.splits import Subset
from taskloss.metrics import average_precision_score


def precision(samples: Subset, scores: np.ndarray) -> float:
    return average_precision_score(scores, samples.target)


def table(rows: int, columns: tuple[str, ...], seed: int = 0, share: float = 0.2) -> Subset:
    rng = np.random.default_rng(seed)
    target = (rng.random(rows) < share).astype(np.int64)
    features = rng.normal(size=(rows, len(columns))).astype(np.float32)
    features[:, 0] += 2 * target
    return Subset(features, target, None, columns)


def test_only_columns_that_the_model_uses_have_an_effect():
    test = table(1500, ("amount", "noise"))
    amount, noise = measure_effects(lambda features: features[:, 0], precision, test, seed=3)
    assert (amount.column, noise.column) == ("amount", "noise")
    assert noise.fall == 0.0
    # A random order has an average precision near the share of positives.
    expected = precision(test, test.features[:, 0]) - test.target.mean()
    assert amount.fall == pytest.approx(expected, abs=0.02)
    assert amount.repeats == feature_effects.MAX_REPEATS


def test_the_features_of_one_column_are_shuffled_together():
    test = table(1200, ("branch", "branch", "age"))
    test.features[:, 1] = -test.features[:, 0]
    seen = []

    def score(features: np.ndarray) -> np.ndarray:
        seen.append(features.copy())
        return features[:, 0] - features[:, 1]

    effects = measure_effects(score, precision, test, seed=0)
    assert [effect.column for effect in effects] == ["branch", "age"]
    assert all((features[:, 1] == -features[:, 0]).all() for features in seen), "no sample gets an impossible pair"


def test_the_same_shuffles_for_every_method():
    test = table(700, ("a", "b"))
    first, again = (measure_effects(lambda features: features @ [1.0, 0.5], precision, test, seed=1) for _ in range(2))
    assert first == again
    assert first != measure_effects(lambda features: features @ [1.0, 0.5], precision, test, seed=2)


@pytest.mark.parametrize(
    ("rows", "columns", "share"), [(50_000, 20, 0.2), (50_000, 20, 0.004), (3_000, 190, 0.2), (1_000, 4, 0.5)]
)
def test_cost_is_bounded(rows, columns, share):
    test = table(rows, tuple(f"column {index}" for index in range(columns)), share=share)
    scored = []

    def score(features: np.ndarray) -> np.ndarray:
        scored.append(len(features))
        return features[:, 0]

    effects = measure_effects(score, precision, test, seed=0)
    assert len(effects) == columns
    assert effects[0].fall > 10 * max(abs(effect.fall) for effect in effects[1:])
    assert sum(scored[1:]) <= feature_effects.BUDGET
    assert scored[0] == (1_000 if rows == 1_000 else max(scored))


def test_too_many_columns_or_too_few_positives_have_no_effects():
    names = tuple(map(str, range(feature_effects.MAX_COLUMNS + 1)))
    assert measure_effects(lambda features: features[:, 0], precision, table(50, names), seed=0) == ()
    rare = table(60_000, ("a", "b"))._replace(target=(np.arange(60_000) < 2).astype(np.int64))
    assert measure_effects(lambda features: features[:, 0], precision, rare, seed=0) == ()


def test_whole_queries():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(600), 20)
    test = table(12_000, ("a", "b"))._replace(groups=groups)
    seen = []

    def value(samples: Subset, scores: np.ndarray) -> float:
        seen.append(np.unique(samples.groups, return_counts=True)[1])
        return float(np.corrcoef(scores, samples.target)[0, 1])

    a, b = measure_effects(lambda features: features[:, 0] + 0.0 * rng.random(), value, test, seed=0)
    assert a.fall > 0.2
    assert b.fall == pytest.approx(0, abs=1e-9)
    assert all((sizes == 20).all() for sizes in seen)
    assert seen[0].sum() <= feature_effects.MAX_ROWS
