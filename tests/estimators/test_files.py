"""Estimators in files: the same predictions, the same bytes, and nothing that is not ours is read."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from torch import nn

import taskloss as tl
from taskloss import _storage
from taskloss.estimators import TaskLossClassifier, TaskLossRanker

SMALL = {"members": 2, "max_iter": 10, "random_state": np.int64(0)}


def data(classes: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(200, 5, n_informative=4, n_redundant=0, n_classes=classes, n_clusters_per_class=1, random_state=0)


@pytest.mark.parametrize(
    ("metric", "target"),
    [
        ("average_precision", lambda y: y > 0),
        (tl.FScore(2.0), lambda y: np.where(y > 0, "yes", "no")),
        (tl.MultiClass(cost=[[0, 1, 2], [1, 0, 1], [5, 1, 0]]), lambda y: y * 10),
        ("roc_auc", lambda y: np.array([None, "b", "c"], dtype=object)[np.maximum(y, 1)]),
        ("f_score", lambda y: np.eye(3, dtype=int)[y]),
    ],
)
def test_what_is_read_is_what_was_written(tmp_path, metric, target):
    X, y = data(3)
    X[::7, 1] = np.nan
    model = TaskLossClassifier(metric, **SMALL).fit(X, target(y))
    path = model.save(tmp_path / "model.safetensors")
    again = TaskLossClassifier.load(path)
    for function in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(again, function)(X), getattr(model, function)(X))
    assert again.metric == metric
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.get_params() == {**model.get_params(), "random_state": 0}
    assert again.save(tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_names_of_columns_are_kept(tmp_path):
    X, y = data(2)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = TaskLossClassifier(**SMALL).fit(frame, y)
    again = TaskLossClassifier.load(model.save(tmp_path / "model.safetensors"))
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame.rename(columns={"a": "z"}))


def test_ones_own_network_is_built_again(tmp_path):
    X, y = data(2)

    def module(features, outputs):
        return nn.Linear(features, outputs)

    model = TaskLossClassifier(module=module, **SMALL).fit(X, y)
    path = model.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(TaskLossClassifier.load(path, module=module).predict(X), model.predict(X))
    with pytest.raises(ValueError, match="pass the function that builds it"):
        TaskLossClassifier.load(path)


def test_refusals(tmp_path):
    X, y = data(2)
    with pytest.raises(NotFittedError):
        TaskLossClassifier().save(tmp_path / "model.safetensors")
    model = TaskLossClassifier(**SMALL).fit(X, y)
    path = model.save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="holds TaskLossClassifier, not TaskLossRanker"):
        TaskLossRanker.load(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TaskLossClassifier.load(tmp_path / "none")
    for content in (b"", path.read_bytes()[:-50], b"{" * 100):
        (tmp_path / "broken").write_bytes(content)
        with pytest.raises(ValueError, match="not written by taskloss, or is damaged"):
            TaskLossClassifier.load(tmp_path / "broken")
    tensors, facts = _storage.read_tensors(path)
    _storage.write_tensors(tmp_path / "newer", tensors, {**facts, "format": 99})
    with pytest.raises(ValueError, match="newer taskloss"):
        TaskLossClassifier.load(tmp_path / "newer")
    own = tl.ConfusionMetric(lambda tp, fp, fn, tn: tp / (tp + fp + fn))
    with pytest.raises(ValueError, match="holds your own code"):
        TaskLossClassifier(own, **SMALL).fit(X, y).save(tmp_path / "own")
    assert not (tmp_path / "own").exists()
