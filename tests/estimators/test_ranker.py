"""The ranker: queries, grades, folds of whole queries."""

from __future__ import annotations

import numpy as np
import pytest

import taskloss as tl
from taskloss.estimators import TaskLossRanker
from taskloss.metrics import average_precision_score

SMALL = {"members": 2, "max_iter": 40, "random_state": 0}


def queries(seed: int = 0, number: int = 30, size: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, query = rng.normal(size=(number * size, 4)), np.repeat(np.arange(number), size)
    hidden = X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=len(X)) + rng.normal(size=number)[query]
    return X, np.digitize(hidden, [1.0, 2.0, 3.0]), query


@pytest.mark.parametrize("method", ["direct", "direct_negative", "hinge", "cross_entropy"])
def test_learns_grades(method):
    X, y, query = queries()
    model = TaskLossRanker(method=method, **SMALL).fit(X, y, groups=query)
    assert isinstance(model.problem_.task, tl.GradedNDCG)
    test_X, test_y, test_query = queries(1)
    value = model.score(test_X, test_y, groups=test_query)
    assert value == pytest.approx(tl.metrics.graded_ndcg_score(model.predict(test_X), test_y, groups=test_query))
    assert value > tl.metrics.graded_ndcg_score(test_X[:, 0], test_y, groups=test_query) + 0.05


@pytest.mark.parametrize("metric", ["average_precision", "reciprocal_rank", tl.NDCG(at=5)])
def test_binary_relevance(metric):
    X, y, query = queries()
    model = TaskLossRanker(metric, **SMALL).fit(X, y > 1, qid=[f"q{number}" for number in query])
    assert model.score(X, y > 1, qid=query) > 0.7


def test_order_of_rows_and_names_of_queries_do_not_matter_to_the_score():
    X, y, query = queries()
    model = TaskLossRanker(**SMALL).fit(X, y, groups=query)
    order = np.random.default_rng(0).permutation(len(y))
    assert model.score(X[order], y[order], groups=100 - query[order]) == pytest.approx(model.score(X, y, groups=query))


def test_queries_are_held_out_whole():
    X, y, query = queries(number=10)
    held_out = []

    def spy(member, progress):
        held_out.append(member)

    model = TaskLossRanker(members=5, folds=5, max_iter=2, random_state=0, callback=spy).fit(X, y, groups=query)
    assert set(held_out) == set(range(25))
    assert [len(part.ensemble.members) for part in model.ensemble_.parts] == [5] * 5


def test_one_list_without_groups():
    X, y, _ = queries()
    assert TaskLossRanker(**SMALL).fit(X, y).score(X, y) > 0.8


def test_files(tmp_path):
    X, y, query = queries()
    model = TaskLossRanker(tl.NDCG(at=10), **SMALL).fit(X, y, groups=query)
    again = TaskLossRanker.load(model.save(tmp_path / "ranker.safetensors"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.score(X, y, groups=query) == model.score(X, y, groups=query)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, q: ("f_score", X, y > 0, {"groups": q}), "does not measure rankings"),
        (lambda X, y, q: ("average_precision", X, y, {"groups": q}), "takes relevance of 0 and 1"),
        (lambda X, y, q: ("ndcg", X, y - 1, {"groups": q}), "relevance of at least 0"),
        (lambda X, y, q: ("ndcg", X, y, {"groups": q, "qid": q}), "two names for the query ids"),
        (lambda X, y, q: ("ndcg", X, y, {"groups": q[:5]}), "one per row. Group sizes"),
        (lambda X, y, q: ("ndcg", X, y * 0, {"groups": q}), "in all rows of every query"),
    ],
)
def test_bad_input(change, message):
    metric, X, y, options = change(*queries())
    with pytest.raises(ValueError, match=message):
        TaskLossRanker(metric, **SMALL).fit(X, y, **options)


def test_held_out_metric():
    """It is the mean over the queries of the metric of scores by members that did not train on the query."""
    X, relevance, query = queries()
    model = TaskLossRanker("average_precision", method="direct", random_state=0, max_iter=20).fit(X, relevance > 0, groups=query)
    scores, target, groups, _ = model.held_out_
    values = [
        average_precision_score(scores[groups == index], target[groups == index])
        for index in np.unique(groups)
        if 0 < target[groups == index].mean() < 1
    ]
    assert model.held_out_metric() == pytest.approx(np.mean(values))
