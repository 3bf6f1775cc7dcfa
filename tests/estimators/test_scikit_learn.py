"""The estimators keep scikit-learn's contract: its own checks, its tools."""

from __future__ import annotations

import dataclasses
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import taskloss as tl
from taskloss.estimators import EstimatorSettings, TaskLossClassifier, TaskLossRanker

SMALL = {"members": 2, "max_iter": 40, "random_state": 0}

FOLDS = "a row with a weight is in one fold, and repeated rows are dealt into folds one by one, so the networks differ"
EQUIVALENCE = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
QUERIES = "weights of rows have no place in the metric of one list; with groups, each query can have a weight"


def expected_failures(estimator) -> dict[str, str]:
    if isinstance(estimator, TaskLossRanker):
        return dict.fromkeys(["check_sample_weights_not_overwritten", *EQUIVALENCE], QUERIES)
    failures = dict.fromkeys(EQUIVALENCE, FOLDS)
    if estimator.method == "direct":
        failures["check_class_weight_classifiers"] = (
            "the metric itself says what each class is worth, so class weights are refused; the other methods pass"
        )
    if estimator.threshold == "metric":
        failures["check_class_weight_classifiers"] = (
            "the threshold of predict is the best one for the metric, which counts every sample once; with "
            "threshold='probability' the check passes"
        )
    return failures


@parametrize_with_checks(
    [
        TaskLossClassifier(members=2, max_iter=20),
        TaskLossClassifier(members=2, max_iter=20, threshold="probability"),
        TaskLossClassifier("f_score", method="direct", members=2, max_iter=20, threshold="probability"),
        TaskLossClassifier(method="cross_entropy", members=1, max_iter=20, threshold="probability"),
        TaskLossClassifier(method="lightgbm", members=1, max_iter=20, threshold="probability"),
        TaskLossRanker(members=2, max_iter=20),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:too few samples of a class", "ignore:the labels .* do not say which class is positive")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_both_estimators_have_the_shared_settings_and_each_is_described():
    shared = [field.name for field in dataclasses.fields(EstimatorSettings)]
    assert sorted(TaskLossRanker().get_params()) == sorted(shared)
    assert sorted(TaskLossClassifier().get_params()) == sorted([*shared, "threshold", "pos_label", "class_weight"])
    assert re.findall(r"^ {8}(\w+): ", EstimatorSettings.__doc__, re.MULTILINE) == shared


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 + 0.5 * rng.normal(size=240) > 2.0).astype(int)


def test_cross_validation_grid_search_and_pipelines(data):
    X, y = data
    model = TaskLossClassifier(**SMALL)
    assert cross_val_score(model, X, y, scoring="average_precision", cv=2).mean() > 0.6
    search = GridSearchCV(make_pipeline(StandardScaler(), model), {"tasklossclassifier__epsilon": [0.5, 2.0]}, cv=2)
    search.set_params(scoring="roc_auc").fit(X, y)
    assert search.best_score_ > 0.7
    assert search.best_estimator_.predict(X).shape == y.shape


def test_clones_fit_alike(data):
    X, y = data
    model = TaskLossClassifier(tl.FScore(2.0), **SMALL).fit(X, y)
    again = clone(model)
    assert not hasattr(again, "ensemble_")
    assert again.metric == tl.FScore(2.0)
    np.testing.assert_array_equal(again.fit(X, y).predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).decision_function(X), model.decision_function(X))


def test_every_form_of_a_table_gives_the_same(data):
    X, y = data
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    expected = TaskLossClassifier(**SMALL).fit(X, y).decision_function(X)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = TaskLossClassifier(**SMALL).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_array_equal(model.decision_function(frame), expected)
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csc_array, scipy.sparse.coo_array):
        np.testing.assert_array_equal(TaskLossClassifier(**SMALL).fit(form(X), y).decision_function(form(X)), expected)


def test_sparse_tables_that_would_not_fit_are_refused():
    X = scipy.sparse.csr_array((20_000, 100_000))
    with pytest.raises(ValueError, match=r"14.9 GiB.*TruncatedSVD"):
        TaskLossClassifier().fit(X, np.arange(20_000) % 2)


def test_ranker_in_cross_validation():
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    y = np.clip(np.round(X[:, 0] + X[:, 1] ** 2), 0, 3)
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        model = TaskLossRanker(**SMALL).set_fit_request(groups=True).set_score_request(groups=True)
        values = cross_val_score(model, X, y, params={"groups": query}, cv=GroupKFold(2))
    assert values.min() > 0.6
