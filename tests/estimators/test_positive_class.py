"""The positive class: one rule for every kind of label, scikit-learn's orientation whatever the rule says."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, make_scorer
from sklearn.model_selection import cross_val_score

import taskloss as tl
from taskloss.estimators import TaskLossClassifier
from taskloss.estimators.decisions import is_symmetric
from taskloss.tables import Table, binary_target

SMALL = {"members": 2, "max_iter": 40, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(500, 6, n_informative=3, weights=[0.88], class_sep=0.8, flip_y=0.03, random_state=1)
    return X, y == 1


def labelled(positive: np.ndarray, yes, no) -> np.ndarray:
    return np.array([yes if one else no for one in positive])


@pytest.mark.parametrize(("yes", "no"), [(1, 0), (1, -1), (True, False), ("1", "0"), (1.0, 0.0)])
def test_labels_that_say_which_class_is_positive_bring_no_warning(data, yes, no):
    X, positive = data
    for truth in (positive, ~positive):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = TaskLossClassifier(members=1, max_iter=3, random_state=0).fit(X, labelled(truth, yes, no))
        assert model.pos_label_ == yes


def test_other_labels_train_on_the_rarer_class_and_say_so(data):
    """The labels "fraud" and "ok" give exactly the model of the labels 1 and 0."""
    X, positive = data
    words = labelled(positive, "fraud", "ok")
    with pytest.warns(UserWarning, match="'fraud' is taken, the rarer class. Pass pos_label='fraud' or pos_label='ok'") as caught:
        model = TaskLossClassifier(**SMALL).fit(X, words)
    assert [(warning.category, warning.filename) for warning in caught] == [(UserWarning, __file__)]
    assert model.pos_label_ == "fraud"
    expected = TaskLossClassifier(**SMALL).fit(X, positive)
    assert model.classes_.tolist() == ["fraud", "ok"]
    np.testing.assert_array_equal(model.decision_function(X), -expected.decision_function(X))
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X)[:, ::-1])
    np.testing.assert_array_equal(model.predict(X) == "fraud", expected.predict(X))
    np.testing.assert_array_equal(model.predict(X), model.classes_[(model.decision_function(X) > 0).astype(int)])
    assert model.threshold_ == expected.threshold_


def test_the_last_class_where_none_is_rare(data):
    X, _ = data
    y = labelled(np.arange(len(X)) % 20 < 9, "a", "b")
    with pytest.warns(UserWarning, match="'b' is taken, the last class in sorted order"):
        assert TaskLossClassifier(members=1, max_iter=3, random_state=0).fit(X, y).pos_label_ == "b"


def test_pos_label_chooses(data, tmp_path):
    X, positive = data
    words = labelled(positive, "fraud", "ok")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TaskLossClassifier(pos_label="ok", **SMALL).fit(X, words)
        zero = TaskLossClassifier(pos_label=0, **SMALL).fit(X, positive.astype(int))
    expected = TaskLossClassifier(**SMALL).fit(X, ~positive)
    np.testing.assert_array_equal(model.decision_function(X), expected.decision_function(X))
    np.testing.assert_array_equal(zero.decision_function(X), -expected.decision_function(X))
    again = TaskLossClassifier.load(zero.save(tmp_path / "model.safetensors"))
    assert (again.pos_label, again.pos_label_) == (0, 0)
    np.testing.assert_array_equal(again.predict_proba(X), zero.predict_proba(X))


def test_scikit_learns_scorers_see_the_same_orientation(data):
    X, positive = data
    words = labelled(positive, "fraud", "ok")
    model = TaskLossClassifier(pos_label="fraud", **SMALL)
    scorer = make_scorer(average_precision_score, response_method="decision_function", pos_label="fraud")
    by_words = cross_val_score(model, X, words, scoring=scorer, cv=3)
    by_numbers = cross_val_score(TaskLossClassifier(**SMALL), X, positive, scoring="average_precision", cv=3)
    np.testing.assert_allclose(by_words, by_numbers)


def test_the_rule_is_that_of_the_command_line(data):
    X, positive = data
    pa = pytest.importorskip("pyarrow", reason="tables are read by pyarrow")
    for truth in (positive, ~positive, np.arange(len(X)) % 20 < 9):
        for yes, no in (("1", "0"), ("fraud", "ok"), ("2", "1"), ("True", "False"), ("1", "-1")):
            y = labelled(truth, yes, no)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = TaskLossClassifier(members=1, max_iter=1, random_state=0).fit(X, y)
            assert binary_target(Table("file", {"y": pa.array(y.tolist())}), "y").positive == model.pos_label_


def test_metrics_without_a_positive_class_bring_no_warning(data):
    X, positive = data
    words = labelled(positive, "fraud", "ok")
    cost = tl.MultiClass(cost=[[0, 5], [1, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TaskLossClassifier("roc_auc", members=1, max_iter=3, random_state=0).fit(X, words)
        model = TaskLossClassifier(cost, **SMALL).fit(X, words)
    assert model.pos_label_ == "fraud"
    named = TaskLossClassifier(cost, pos_label="ok", **SMALL).fit(X, words)
    np.testing.assert_array_equal(named.decision_function(X), model.decision_function(X))
    plain = TaskLossClassifier("multi_class", **SMALL).fit(X, words)
    frauds, fewer = ((each.predict(X) == "fraud").sum() for each in (model, plain))
    assert frauds > fewer, "missing a fraud costs five times as much as a false alarm"


def test_symmetric_metrics_are_symmetric():
    rng = np.random.default_rng(0)
    for name in (
        "roc_auc",
        "zero_one",
        "balanced_error",
        "g_mean",
        "mcc",
        "f_score",
        "average_precision",
        "partial_auc",
        "jaccard",
    ):
        task = tl.tasks.registry.as_task(name)
        scores, target = rng.normal(size=40), rng.random(40) < 0.3
        same = task.score(scores, target) == pytest.approx(task.score(-scores, ~target), abs=1e-12)
        assert same == is_symmetric(task), name


@pytest.mark.parametrize(
    ("pos_label", "target", "message"),
    [
        ("fruad", "words", "pos_label='fruad' is not among the labels 'fraud', 'ok'"),
        ("a", "several", "y holds 3 classes; leave it out, or pass y == 'a'"),
        (1, "labels", "y holds 2 labels"),
    ],
)
def test_a_label_that_does_not_fit_is_refused(data, pos_label, target, message):
    X, positive = data
    targets = {
        "words": labelled(positive, "fraud", "ok"),
        "several": np.array(["a", "b", "c"])[np.arange(len(X)) % 3],
        "labels": np.column_stack([positive, ~positive]).astype(int),
    }
    with pytest.raises(ValueError, match=message):
        TaskLossClassifier(pos_label=pos_label).fit(X, targets[target])
