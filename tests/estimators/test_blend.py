"""Blends: what ``method="auto"`` trains, how it averages, and what it leaves out."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import taskloss as tl
from taskloss import _storage
from taskloss.estimators import TaskLossClassifier, TaskLossRanker, base
from taskloss.estimators.blend import find_weak_parts
from taskloss.estimators.methods import AUTO_METHODS
from taskloss.estimators.problem import Problem
from taskloss.training import TrainingData

SMALL = {"members": 2, "max_iter": 20, "random_state": 0}
FORMAT_1 = Path(__file__).parent / "data" / "format_1.safetensors"


class Spy(TaskLossClassifier):
    """A classifier that keeps the held-out scores of the blend, or of its only part."""

    def _fit_ensemble(self, *arguments):
        self.held_out, self.known = super()._fit_ensemble(*arguments)
        return self.held_out, self.known


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(300, 6, n_informative=4, n_redundant=0, weights=[0.8], class_sep=1.0, random_state=0)


def of_classes(classes: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(240, 6, n_informative=4, n_redundant=0, n_classes=classes, n_clusters_per_class=1, random_state=0)


def blend_by_definition(
    fits: dict[str, Spy], scores: dict[str, np.ndarray], dropped: dict[str, str], as_log_probabilities: bool
) -> np.ndarray:
    """Return the mean of the networks' standardized scores and those of the trees, one half each."""
    standardized = {}
    for method, values in scores.items():
        held_out = fits[method].held_out[fits[method].known]
        if as_log_probabilities and method in ("cross_entropy", "lightgbm", "random_forest"):
            logits = fits[method].calibration_[0].logits
            values, held_out = log_softmax(logits(values), axis=1), log_softmax(logits(held_out), axis=1)
        standardized[method] = (values - held_out.mean(0)) / held_out.std(0, ddof=1)
    networks = [standardized[method] for method in AUTO_METHODS[:3] if method not in dropped]
    trees = [standardized[method] for method in AUTO_METHODS[3:] if method not in dropped]
    return np.mean([np.mean(family, axis=0) for family in (networks, trees) if family], axis=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_auto_is_the_blend_of_separate_fits(classes):
    """Each part is what a fit of that method alone gives, to the last bit; so are their held-out scores."""
    X, y = of_classes(classes)
    auto = Spy(**SMALL).fit(X, y)
    fits = {method: Spy(method=method, **SMALL).fit(X, y) for method in AUTO_METHODS}
    features = auto.features_.transform(X)
    scores = {part.problem.method: part.scores(features, X) for part in auto.ensemble_.parts}
    assert tuple(scores) == AUTO_METHODS
    for method, fit in fits.items():
        np.testing.assert_array_equal(scores[method], fit._scores(X))
    blended = blend_by_definition(fits, {method: fit._scores(X) for method, fit in fits.items()}, auto.left_out_, classes > 2)
    np.testing.assert_allclose(auto._scores(X), blended, rtol=1e-9, atol=1e-9)
    held_out = blend_by_definition(fits, {method: fit.held_out for method, fit in fits.items()}, auto.left_out_, classes > 2)
    np.testing.assert_allclose(auto.held_out, held_out, rtol=1e-9, atol=1e-9)
    assert len(auto.history_) == 10
    assert auto.history_ == tuple(result for fit in fits.values() for result in fit.history_)


def test_parts_can_be_switched_off(data, tmp_path):
    X, y = data
    model = TaskLossClassifier(method=("hinge", "lightgbm"), **SMALL).fit(X, y)
    assert [part.problem.method for part in model.ensemble_.parts] == ["hinge", "lightgbm"]
    again = TaskLossClassifier.load(model.save(tmp_path / "model"))
    assert again.method == ("hinge", "lightgbm")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    search = GridSearchCV(TaskLossClassifier(**SMALL), {"method": ["lightgbm", ("direct", "lightgbm")]}, cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 2
    alone = TaskLossClassifier(method=["direct"], **SMALL).fit(X, y).decision_function(X)
    np.testing.assert_array_equal(alone, TaskLossClassifier(method="direct", **SMALL).fit(X, y).decision_function(X))


@pytest.mark.parametrize("method", ["boosting", ("direct", "auto"), ("direct", "direct"), ()])
def test_unknown_methods(data, method):
    with pytest.raises(ValueError, match="method"):
        TaskLossClassifier(method=method, **SMALL).fit(*data)


def test_without_lightgbm(data, monkeypatch):
    monkeypatch.setattr(base, "lightgbm_is_installed", lambda: False)
    X, y = data
    with pytest.warns(UserWarning, match=r"goes without trees.*pip install 'taskloss\[estimators\]'") as caught:
        model = TaskLossClassifier(**SMALL).fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]
    assert [part.problem.method for part in model.ensemble_.parts] == ["cross_entropy", "direct", "hinge"]
    assert {model.left_out_[method] for method in ("lightgbm", "random_forest")} == {"LightGBM is not installed"}
    with pytest.raises(ValueError, match=r"needs LightGBM, which is not installed: pip install"):
        model.set_params(method=("direct", "lightgbm")).fit(X, y)


def test_weights_leave_out_the_losses_of_the_whole_list(data, tmp_path):
    X, y = data
    weights = np.linspace(1.0, 2.0, len(y))
    model = TaskLossClassifier(**SMALL).fit(X, y, sample_weight=weights)
    assert [part.problem.method for part in model.ensemble_.parts] == ["cross_entropy", "lightgbm", "random_forest"]
    assert {"direct", "hinge"} <= set(model.left_out_)
    assert "sample_weight has no place in average precision" in model.left_out_["hinge"]
    assert TaskLossClassifier.load(model.save(tmp_path / "model")).left_out_ == model.left_out_
    same = TaskLossClassifier(method=("cross_entropy", "lightgbm", "random_forest"), **SMALL).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(same.decision_function(X), model.decision_function(X))
    balanced = TaskLossClassifier(class_weight="balanced", **SMALL).fit(X, y)
    assert "class_weight has no place" in balanced.left_out_["direct"]
    for suits in (
        TaskLossClassifier(**SMALL).fit(X, y, sample_weight=1 + y),
        TaskLossClassifier("multi_class", class_weight="balanced", **SMALL).fit(X, y),
    ):
        assert len(suits.ensemble_.parts) == 5


def test_parts_far_behind_are_dropped():
    """Neither the metric nor the log loss decides alone. The oracle draws its own rows, with probabilities of scikit-learn."""
    rng = np.random.default_rng(0)
    y = (np.arange(600) % 5 == 0).astype(int)
    good, tiny = y + rng.normal(size=600), 1e-6 * rng.normal(size=600)
    without_top = np.minimum(good, np.quantile(good, 0.7)) + tiny
    without_bottom = np.maximum(good, np.quantile(good, 0.55)) + tiny
    scores = [good, without_top, without_bottom, 0.2 * y + rng.normal(size=600)]
    fits = [LogisticRegression(C=1e6).fit(each[:, None], y).predict_log_proba(each[:, None]) for each in scores]
    losses = [-each[np.arange(600), y] for each in fits]

    def measure(rows: np.ndarray) -> np.ndarray:
        metrics = [tl.metrics.average_precision_score(each[rows], y[rows]) for each in scores]
        return np.array([metrics, [-loss[rows].mean() for loss in losses]])

    def gaps(rows: np.ndarray) -> np.ndarray:
        return measure(rows)[:, :1] - measure(rows)[:, 1:]

    behind = gaps(np.arange(600)) / np.std([gaps(rows) for rows in rng.integers(600, size=(400, 600))], axis=0)
    by_metric, by_both = behind[0], behind.mean(0)
    assert by_metric[0] > 2.6 > 2.4 > by_both[0]
    assert by_metric[1] < 2.4 < 2.6 < by_both[1]
    assert by_both[2] > 3.5
    problem = Problem(tl.AveragePrecision(), "auto", 1.0)
    data = TrainingData(torch.zeros(600, 1), torch.from_numpy(y))
    weak = find_weak_parts(problem, scores, data, None, np.random.default_rng(0))
    assert set(weak) == {2, 3}
    told = float(weak[3].partition("on average ")[2].partition(" ")[0])
    assert told == pytest.approx(by_both[2], rel=0.35)
    queries = np.arange(600) // 20
    grouped = data._replace(groups=torch.from_numpy(queries))
    weak = find_weak_parts(problem, scores, grouped, queries, np.random.default_rng(0))
    assert "log loss" not in weak[3]


def weak_parts(task: tl.tasks.Task, scores: list[np.ndarray], target: np.ndarray, **layout) -> dict[int, str]:
    problem = Problem(task, "auto", 1.0, **{key: layout.pop(key) for key in ("outputs", "exclusive") if key in layout})
    units = layout.pop("units", None)
    data = TrainingData(torch.zeros(len(target), 1), torch.from_numpy(target), **layout)
    return find_weak_parts(problem, scores, data, units, np.random.default_rng(0))


def test_weak_parts_of_labels_classes_and_weighted_rows():
    rng = np.random.default_rng(0)
    value = rng.normal(size=500)
    good, bad = value + 0.3 * rng.normal(size=500), rng.normal(size=500)
    labels = np.column_stack([value > 1, np.zeros(500)]).astype(int)  # The second label has no positives.
    columns = [np.column_stack([each, bad]) for each in (good, bad)]
    assert set(weak_parts(tl.AveragePrecision(), columns, labels, outputs=2)) == {1}
    assert set(weak_parts(tl.AveragePrecision(), columns[::-1], labels, outputs=2)) == {0}
    classes = np.digitize(value, [-0.5, 0.5])
    logits = [np.column_stack([-each, -(each**2), each]) for each in (good, bad)]
    worse = weak_parts(tl.MultiClass(5.0 * (1 - np.eye(3))), logits, classes, outputs=3, exclusive=True)
    assert set(worse) == {1}
    metric, best = worse[1].removeprefix("its held-out metric, ").partition(",")[0].split(" (of the best part ")
    assert float(metric) < float(best.rstrip(")")) < 0, "costs above 1 make the metric negative"
    # A part that is worse only in rows with a weight of nearly 0 has the log loss of the other part; the metric has no weights.
    y, equal = (value > 1).astype(int), np.arange(500) < 400
    scores = [good, np.where(equal, good, bad)]
    weights = torch.from_numpy(np.where(equal, 1.25, 1e-6))
    assert set(weak_parts(tl.AveragePrecision(), scores, y)) == {1}
    assert weak_parts(tl.AveragePrecision(), scores, y, weights=weights) == {}


def test_equal_parts_and_single_queries_are_not_dropped():
    y = (np.arange(400) % 10 == 0).astype(int)
    rng = np.random.default_rng(0)
    likely, unlikely = 8.0 * y + rng.random(400), 1.2 * y + rng.random(400)
    for scores in ([likely, unlikely], [unlikely, likely]):
        reasons = weak_parts(tl.PrecisionAtK(5), scores, y)
        assert not any(scores[part] is likely for part in reasons), "of equal metrics, the lower log loss is the best part"
    query = np.zeros(400, np.int64)
    scores = [likely, rng.random(400)]
    options = {"groups": torch.from_numpy(query), "units": query}
    assert weak_parts(tl.NDCG(), scores, y, **options) == {}, "one query has no standard error"
    query = np.arange(400) // 200
    one_defined = np.where(query == 0, y, 0)
    options = {"groups": torch.from_numpy(query), "units": query}
    assert weak_parts(tl.NDCG(), scores, one_defined, **options) == {}


def test_copies_of_rows_do_not_enlarge_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.normal(size=300) > 0.5).astype(int)
    settings = {"method": ("direct", "lightgbm"), "members": 1, "max_iter": 5, "random_state": 0}
    model = TaskLossClassifier(**settings).fit(X, y, sample_weight=np.full(300, 20))
    assert model.ensemble_.parts[1].ensemble.members[0].net.forests[0].splits.max() + 1 <= 7


def test_a_dropped_part_has_no_weight(monkeypatch, data, tmp_path):
    monkeypatch.setattr(base, "find_weak_parts", lambda *_: {1: "too weak", 3: "too weak"})
    X, y = data
    model = TaskLossClassifier(**SMALL).fit(X, y)
    assert model.ensemble_.weights == (0.25, 0.0, 0.25, 0.0, 0.5)
    assert model.left_out_ == {"direct": "too weak", "lightgbm": "too weak"}
    again = TaskLossClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.ensemble_.weights == model.ensemble_.weights


def test_missing_values_and_frames(data, tmp_path):
    X, y = data
    frame = pd.DataFrame(np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X), columns=list("abcdef"))
    frame["branch"] = np.where(X[:, 0] > 0, "north", "south")
    model = TaskLossClassifier(**{**SMALL, "max_iter": 40}).fit(frame[:200], y[:200])
    assert model.score(frame[200:], y[200:]) > 0.5
    again = TaskLossClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(frame), model.decision_function(frame))


@pytest.mark.parametrize("metric", ["average_precision", "f_score"])
def test_a_label_that_no_sample_of_a_fold_has(metric, tmp_path):
    """One label has two positives for five folds, another has none at all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    Y = np.column_stack([X[:, 0] > 0.5, np.arange(100) < 2, np.zeros(100)]).astype(int)
    model = TaskLossClassifier(metric, members=5, max_iter=20, random_state=0).fit(X, Y)
    assert np.isfinite(model.predict_proba(X)).all()
    again = TaskLossClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("grades", ["whole", "fractions", "binary"])
@pytest.mark.parametrize("grouped", [True, False])
def test_rankers(grades, grouped, tmp_path):
    rng = np.random.default_rng(0)
    X, query = rng.normal(size=(400, 4)), np.repeat(np.arange(40), 10)
    y = np.clip(np.round(X[:, 0] + X[:, 1], 0 if grades == "whole" else 1), 0, 2)
    y = (y > 1).astype(float) if grades == "binary" else y
    options = {"groups": query} if grouped else {}
    order = rng.permutation(400)
    shuffled = {"groups": query[order]} if grouped else {}
    for method in ("auto", "lightgbm", "random_forest"):
        model = TaskLossRanker(method=method, members=2, max_iter=40, random_state=0).fit(X[order], y[order], **shuffled)
        assert model.score(X, y, **options) > 0.8
        again = TaskLossRanker.load(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_files_of_one_ensemble_still_load():
    """The file was written in format 1, by ``TaskLossClassifier(members=2, max_iter=10, hidden=(4,), scaling="standard")``."""
    X, _ = make_classification(200, 5, n_informative=4, n_redundant=0, n_classes=2, n_clusters_per_class=1, random_state=0)
    model = TaskLossClassifier.load(FORMAT_1)
    assert (model.method, model.left_out_) == ("direct", {})
    expected = [4.781394966989412, 3.263012303696102, 3.0871372164837156, 5.190691912959259]
    np.testing.assert_allclose(model.decision_function(X[:4]), expected, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X[:1])[:, 1], 0.4877258729387799, rtol=1e-12)


def test_edited_trees_are_refused(data, tmp_path):
    X, y = data
    path = TaskLossClassifier(method="lightgbm", **SMALL).fit(X, y).save(tmp_path / "model")
    tensors, facts = _storage.read_tensors(path)
    tensors["part.0.member.0.forest.0.feature"][0] = 10_000
    _storage.write_tensors(path, tensors, facts)
    with pytest.raises(ValueError, match="the trees cannot be used: feature must be from 0 to 5"):
        TaskLossClassifier.load(path)
    X, y = of_classes(3)
    three = TaskLossClassifier(method="lightgbm", **SMALL).fit(X, y).save(tmp_path / "three")
    other = {name: tensor for name, tensor in _storage.read_tensors(three)[0].items() if ".forest." in name}
    _storage.write_tensors(path, {**tensors, **other}, facts)
    with pytest.raises(ValueError, match="the trees have 3 scores per row, but 1 is needed"):
        TaskLossClassifier.load(path)


def test_the_blend_is_ahead_where_half_of_the_signal_is_for_trees():
    """A linear part suits networks, a parity of two columns suits trees."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 8))
    y = (X[:, :4].sum(1) + 3.0 * np.sign(X[:, 4] * X[:, 5]) + rng.normal(size=1500) > 4.0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = {
            method: TaskLossClassifier(tl.AveragePrecision(), method=method, members=3, max_iter=100, random_state=0)
            .fit(X[:600], y[:600])
            .score(X[600:], y[600:])
            for method in ("auto", "cross_entropy", "lightgbm", "random_forest")
        }
    assert fits.pop("auto") > max(fits.values())
