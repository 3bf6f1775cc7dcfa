"""The classifier: what it trains on, what it decides, what it keeps."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.metrics import balanced_accuracy_score, f1_score
from torch import nn

import taskloss as tl
from taskloss.estimators import LOSSES_BY_METHOD, TaskLossClassifier
from taskloss.metrics import average_precision_score

SMALL = {"members": 2, "max_iter": 40, "random_state": 0}


def rare_positives(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        n, 6, n_informative=4, n_redundant=0, weights=[0.85], class_sep=2.0, flip_y=0.02, random_state=seed
    )


def several_classes() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        400,
        6,
        n_informative=4,
        n_redundant=0,
        n_classes=3,
        n_clusters_per_class=1,
        class_sep=1.5,
        weights=[0.6, 0.3],
        random_state=0,
    )


@pytest.mark.parametrize("method", sorted(LOSSES_BY_METHOD.keys() - {"lp"}))
@pytest.mark.parametrize(
    "metric", ["average_precision", "roc_auc", "f_score", "multi_class", tl.PrecisionAtRecall(0.5), tl.RecallAtPrecision(0.8)]
)
def test_every_method_learns_every_kind_of_metric(method, metric):
    X, y = rare_positives()
    model = TaskLossClassifier(metric, method=method, **{**SMALL, "max_iter": 120}).fit(X[:200], y[:200])
    decision = model.decision_function(X[200:])
    assert decision.shape == (200,)
    assert average_precision_score(decision, y[200:]) > 0.5
    np.testing.assert_array_equal(model.predict(X[200:]), (decision > 0).astype(int))


@pytest.mark.parametrize("metric", ["average_precision", "f_score", "multi_class", "zero_one"])
@pytest.mark.parametrize("method", ["direct", "cross_entropy"])
def test_several_classes(metric, method):
    X, y = several_classes()
    names = np.array(["ash", "birch", "cedar"])[y]
    model = TaskLossClassifier(metric, method=method, **SMALL).fit(X[::2], names[::2])
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert model.score(X[1::2], names[1::2]) > 0.8
    probabilities = model.predict_proba(X[1::2])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    decision = model.decision_function(X[1::2])
    np.testing.assert_array_equal(model.predict(X[1::2]), model.classes_[decision.argmax(1)])
    if method == "direct" and metric != "multi_class":
        order = np.argsort(model._scores(X[1::2])[:, 0])
        assert (np.diff(decision[order, 0]) >= 0).all(), "calibration keeps the order of each column"
    else:
        offsets = decision - np.log(probabilities)
        assert np.ptp(offsets, axis=0).max() < 1e-9, "log-probabilities: scores that compare classes do not rank samples"


def test_labels():
    X, Y = make_multilabel_classification(300, 8, n_classes=4, random_state=0)
    model = TaskLossClassifier(**SMALL).fit(X[:200], Y[:200])
    assert model.predict(X).shape == model.predict_proba(X).shape == model.decision_function(X).shape == Y.shape
    assert average_precision_score(model.decision_function(X[200:]), Y[200:]) > Y[200:].mean() + 0.15
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X) > 0)


@pytest.mark.parametrize("seed", range(3))
def test_the_threshold_is_the_metrics_own(seed):
    X, y = rare_positives(1200, seed)
    options = {**SMALL, "method": "direct", "max_iter": 60}
    by_f1, by_balance, by_half = (
        TaskLossClassifier(metric, threshold=threshold, **options).fit(X[:600], y[:600]).predict(X[600:])
        for metric, threshold in (("average_precision", "metric"), ("roc_auc", "metric"), ("roc_auc", "probability"))
    )
    assert balanced_accuracy_score(y[600:], by_balance) > balanced_accuracy_score(y[600:], by_half) - 0.01
    assert by_balance.sum() > by_f1.sum(), "balanced accuracy of rare positives asks for more alerts than F1"
    assert f1_score(y[600:], by_f1) > 0.5


def test_operating_points_are_met_on_held_out_samples():
    X, y = rare_positives(5000)
    for task, check in [
        (tl.PrecisionAtRecall(0.8), lambda p, y: abs(p[y == 1].mean() - 0.8) < 0.1),
        (tl.RecallAtFPR(0.05), lambda p, y: p[y == 0].mean() <= 0.09),
        (tl.RecallAtK(0.1), lambda p, y: abs(p.mean() - 0.1) < 0.05),
    ]:
        predicted = TaskLossClassifier(task, **{**SMALL, "max_iter": 100}).fit(X[:2000], y[:2000]).predict(X[2000:])
        assert check(predicted, y[2000:]), task


def test_probabilities_are_calibrated_and_rank_as_the_scores():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    truth = 1 / (1 + np.exp(3 - 2 * X[:, 0]))
    y = (rng.random(6000) < truth).astype(int)
    model = TaskLossClassifier(members=3, max_iter=60, random_state=0).fit(X[:3000], y[:3000])
    found, decision = model.predict_proba(X[3000:])[:, 1], model.decision_function(X[3000:])
    assert (np.diff(found[np.argsort(decision)]) >= 0).all()
    for low in np.arange(0, 0.8, 0.2):
        inside = (found >= low) & (found < low + 0.2)
        assert abs(found[inside].mean() - truth[3000:][inside].mean()) < 0.06
    assert np.abs(found - truth[3000:]).mean() < 0.04


def test_missing_values_and_constant_columns():
    X, y = rare_positives()
    rng = np.random.default_rng(0)
    X = np.column_stack([X, np.full(len(X), 7.0), np.full(len(X), np.nan)])
    X[rng.random(X.shape) < 0.1] = np.nan
    model = TaskLossClassifier(**SMALL).fit(X[:200], y[:200])
    assert average_precision_score(model.decision_function(X[200:]), y[200:]) > 0.4
    assert np.isfinite(model.predict_proba(np.full((1, 8), np.nan))).all()
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.full((1, 8), np.inf))


def test_missing_can_be_the_signal():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), np.arange(300) % 4 == 0
    X[y, 0] = np.nan
    assert TaskLossClassifier(**SMALL).fit(X, y).score(X, y) == 1.0


def test_a_network_of_ones_own():
    built = []

    def module(features: int, outputs: int) -> nn.Module:
        built.append((features, outputs))
        return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, outputs))

    X, y = several_classes()
    model = TaskLossClassifier(module=module, **SMALL)
    assert model.fit(X, y).score(X, y) > 0.7
    assert model.fit(X, y == 0).score(X, y == 0) > 0.7
    assert set(built) == {(6, 3), (6, 1)}
    first = model.decision_function(X)
    torch.manual_seed(1)
    np.testing.assert_array_equal(model.fit(X, y == 0).decision_function(X), first)
    with pytest.raises(ValueError, match="expected \\(.*3\\)"):
        TaskLossClassifier(module=lambda features, outputs: nn.Linear(features, 2), **SMALL).fit(X, y)
    with pytest.raises(TypeError, match="must return a torch.nn.Module"):
        TaskLossClassifier(module=lambda features, outputs: None, **SMALL).fit(X, y)


def test_warm_start_goes_on():
    X, y = rare_positives()
    model = TaskLossClassifier(warm_start=True, members=2, max_iter=5, random_state=0).fit(X, y)
    before = [result.losses[0] for result in model.history_]
    after = [result.losses[0] for result in model.fit(X, y).history_]
    for part in range(3):
        assert sum(after[2 * part : 2 * part + 2]) < sum(before[2 * part : 2 * part + 2])
    assert after[6:] == before[6:]  # Trees are grown anew.
    with pytest.raises(ValueError, match="has changed"):
        model.fit(X[:, :3], y)
    assert TaskLossClassifier(members=2, max_iter=5, random_state=0).fit(X, y).fit(X, y).history_[0].losses[0] == before[0]


def test_a_warm_up_that_nothing_beats_is_kept(monkeypatch):
    """A loss that leads astray: the networks are then those of cross-entropy, and the history says so."""
    monkeypatch.setitem(LOSSES_BY_METHOD, "astray", lambda task, epsilon: lambda scores, target: (scores * target).mean())
    X, y = rare_positives()
    model = TaskLossClassifier("f_score", method="astray", members=2, max_iter=100, random_state=0).fit(X[:200], y[:200])
    assert all(result.best_iteration < 60 < len(result.losses) for result in model.history_)
    assert f1_score(y[200:], model.predict(X[200:])) > 0.5


@pytest.mark.parametrize("few", [0, 6])
@pytest.mark.parametrize("task", [tl.PartialAUC(max_fpr=0.05), tl.AveragePrecision(at=20), tl.NDCG(at=20)])
def test_metrics_of_the_top_get_going(task, few):
    """Some fresh networks put all positives but these few at the bottom, where the positive update has no gradient."""
    X = np.random.default_rng(0).normal(size=(600, 1)).astype(np.float32)
    y = (X[:, 0] > 1.6) | (X[:, 0] < np.sort(X[:, 0])[few])
    models = [
        TaskLossClassifier(task, method="direct", members=1, max_iter=100, random_state=seed).fit(X, y) for seed in range(3)
    ]
    assert min(model.score(X, y) for model in models) > 0.8


def test_a_loss_that_stays_at_its_maximum_warns():
    """Features that say nothing: all samples are tied beyond the cut, so the metric is 0 for every network."""
    X, y = np.ones((100, 2)), np.arange(100) % 5 == 0
    with pytest.warns(UserWarning, match="stayed at its maximum"):
        TaskLossClassifier(tl.AveragePrecision(at=5), members=1, max_iter=20, random_state=0).fit(X, y)


def test_callback_and_history():
    X, y = rare_positives()
    told = []
    model = TaskLossClassifier(callback=lambda member, progress: told.append((member, progress)), **SMALL).fit(X, y)
    assert [progress.metric for member, progress in told if member == 1] == list(model.history_[1].metrics)
    assert model.n_iter_ == max(len(result.losses) for result in model.history_)


KILLED = """
import os, signal, sys, numpy as np
from taskloss.estimators import TaskLossClassifier
folder, kill = sys.argv[1], int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(200, 3)); y = X[:, 0] + X[:, 1] ** 2 > 1.5
steps = []
def callback(member, progress):
    steps.append(0)
    if len(steps) == kill:
        os.kill(os.getpid(), signal.SIGKILL)
model = TaskLossClassifier("f_score", members=2, max_iter=60, random_state=0, dropout=0.2, checkpoint=folder, callback=callback)
model.fit(X, y).save(folder + "/model.safetensors")
"""


def test_a_killed_fit_goes_on_to_the_same_file(tmp_path):
    def run(name: str, kill: int) -> int:
        return subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / name), str(kill)], check=False).returncode

    assert run("whole", -1) == 0
    assert run("killed", 105) == -signal.SIGKILL
    assert run("killed", -1) == 0
    assert (tmp_path / "killed/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("settings", "target", "message"),
    [
        ({"metric": "no_such"}, "two", "no task is named 'no_such'"),
        ({"method": "magic"}, "two", "method='magic' is not known"),
        ({"method": "lp"}, "two", "method='lp' has no loss for AveragePrecision; the metrics with one are roc_auc"),
        ({"metric": "graded_ndcg"}, "two", "use TaskLossRanker"),
        ({"metric": "multi_class"}, "labels", "does not apply to labels"),
        ({"scaling": "log"}, "two", "scaling='log' is not known"),
        ({"threshold": "best"}, "two", "threshold='best' is not known"),
        ({"members": 0}, "two", "members must be a whole number"),
        ({"learning_rate": 0.0}, "two", "learning_rate must be finite and above zero"),
        ({}, "one", "1 class only"),
        ({}, "numbers", "Unknown label type"),
    ],
)
def test_bad_settings_and_targets(settings, target, message):
    X, y = rare_positives(60)
    targets = {"two": y, "labels": np.column_stack([y, 1 - y]), "one": np.zeros(60), "numbers": X[:, 0]}
    with pytest.raises(ValueError, match=message):
        TaskLossClassifier(**{**SMALL, **settings}).fit(X, targets[target])


def test_too_few_to_hold_out_is_told():
    X, y = rare_positives(40)
    y[:] = 0
    y[3] = 1
    with pytest.warns(UserWarning, match="too few samples of a class"):
        TaskLossClassifier(**SMALL).fit(X, y)


def test_large_sets_are_trained_in_batches():
    X, y = rare_positives(1000)
    model = TaskLossClassifier(batch_size=128, **SMALL).fit(X[:600], y[:600])
    assert average_precision_score(model.decision_function(X[600:]), y[600:]) > 0.5


@pytest.mark.parametrize("metric", ["average_precision", "multi_class"])
def test_cross_entropy_starts_from_the_shares_of_the_classes(metric):
    """From scores near 0, a baseline on few positives would rank below chance for a long time: no fair comparison."""
    X, y = rare_positives(600, 3)
    model = TaskLossClassifier(metric, method="cross_entropy", members=2, max_iter=1, learning_rate=1e-9, random_state=0).fit(
        X, y
    )
    for member in model.ensemble_.members:
        raw = member.net(model.features_.transform(X)).detach()
        start = torch.sigmoid(raw if raw.ndim == 1 else raw[:, 1] - raw[:, 0])
        assert start.mean().item() == pytest.approx(y.mean(), abs=0.05)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [
        ("average_precision", lambda y: y),
        ("average_precision", lambda y: np.where(y == 1, "fraud", "ok")),  # the positive class comes first
        ("f_score", lambda y: np.where(y == 1, "fraud", "ok")),
        ("multi_class", lambda y: y),
        ("f_score", lambda y: np.column_stack([y, 1 - y, y])),
    ],
)
def test_held_out_metric(metric, labels, tmp_path):
    X, y = rare_positives()
    model = TaskLossClassifier(metric, method="direct", pos_label="fraud" if labels(y).dtype.kind == "U" else None, **SMALL)
    model.set_params(members=5).fit(X[:300], labels(y[:300]))
    scores, target, _ = model.held_out_
    value = model.held_out_metric()
    if metric == "average_precision":
        column = list(model.classes_).index(model.pos_label_)
        assert value == pytest.approx(average_precision_score(scores, target[:, column])), "a ranking needs no decisions"
    else:
        before = model.decision_function(X)
        assert value == pytest.approx(model.score(X[300:], labels(y[300:])), abs=0.25)
        np.testing.assert_array_equal(model.decision_function(X), before, "nothing of the model has changed")
    assert TaskLossClassifier.load(model.save(tmp_path / "model")).held_out_metric() is None


def test_held_out_metric_does_not_see_its_own_decisions():
    """Labels without any relation to the features: what was chosen on the same samples seems to predict them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), np.repeat(np.arange(8), 50)
    model = TaskLossClassifier("f_score", method="direct", random_state=0, max_iter=30).fit(X[::2], y[::2])
    chosen_there = np.mean([result.best_metric for result in model.history_])
    assert chosen_there > 0.25
    assert model.held_out_metric() < 0.18, "an eighth by chance"
    assert model.score(X[1::2], y[1::2]) < 0.18


def test_no_held_out_metric_where_nothing_was_held_out():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) == 3
    with pytest.warns(UserWarning, match="too few samples"):
        model = TaskLossClassifier(method="direct", **SMALL).fit(X, y)
    assert model.held_out_metric() is None
