"""Several classes on the command line."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from taskloss.cli.metric import parse_metric
from tests.cli.running import invoke

QUICK = ("--target", "kind", "--iterations", "30")


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "flowers.csv"
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 240)
    width, height = rng.normal(size=(2, 240)) + 2.5 * np.array([[0, 1, 2], [2, 0, 2]])[:, kind]
    names = np.array(["rose", "tulip", "daisy"])[kind]
    path.write_text(
        "width,height,kind\n" + "".join(f"{w:.3f},{h:.3f},{name}\n" for w, h, name in zip(width, height, names, strict=True))
    )
    return path


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("average_precision", "macro average precision"),
        ("f_score", "macro F-score"),
        ("multi_class", "accuracy"),
        ("top_k_error:k=2", "top-2 accuracy"),
    ],
)
def test_train_and_predict(flowers, metric, label, tmp_path: Path):
    result = invoke("train", flowers, *QUICK, "--metric", metric, "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "kind is one of 3 classes: daisy (" in result.stdout
    assert f"Held-out {label}" in result.stdout
    result = invoke("predict", tmp_path / "model", flowers)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == ["row", "prediction", "probability daisy", "probability rose", "probability tulip"]
    truth = [row["kind"] for row in csv.DictReader(flowers.open())]
    assert np.mean([row["prediction"] == kind for row, kind in zip(rows, truth, strict=True)]) > 0.9
    np.testing.assert_allclose([sum(float(row[f"probability {name}"]) for name in ("daisy", "rose", "tulip")) for row in rows], 1)
    assert f"{metric} on these rows: " in result.stderr
    record = json.loads(invoke("predict", tmp_path / "model", flowers, "--json").stdout)
    if metric == "multi_class":
        right = np.mean([row["prediction"] == kind for row, kind in zip(rows, truth, strict=True)])
        assert record["value"] == pytest.approx(right)


def test_thresholds_are_refused(flowers, tmp_path: Path):
    assert invoke("train", flowers, *QUICK, "--output", tmp_path / "model").exit_code == 0
    result = invoke("predict", tmp_path / "model", flowers, "--threshold", "0")
    assert (result.exit_code, "several classes" in result.stderr) == (2, True)
    strange = tmp_path / "strange.csv"
    strange.write_text("width,height,kind\n1,2,oak\n")
    result = invoke("predict", tmp_path / "model", strange)
    assert (result.exit_code, "labels that the model has not seen: 'oak'; it knows 'daisy'" in result.stderr) == (0, True)


def test_positive_makes_two_classes(flowers, tmp_path: Path):
    result = invoke("train", flowers, *QUICK, "--positive", "rose", "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(invoke("predict", tmp_path / "model", flowers).stdout)))
    assert {row["prediction"] for row in rows} == {"rose", "not rose"}


@pytest.mark.parametrize(("column", "words"), [("width", "more than 100"), ("rare", "'once' occurs once only")])
def test_what_is_no_class(flowers, column, words, tmp_path: Path):
    rows = flowers.read_text().splitlines()
    path = tmp_path / "more.csv"
    path.write_text(
        f"{rows[0]},rare\n" + "".join(f"{row},{'once' if i == 3 else 'ab'[i % 2]}\n" for i, row in enumerate(rows[1:]))
    )
    result = invoke("train", path, "--target", column, "--output", tmp_path / "model")
    assert (result.exit_code, words in result.stderr) == (3, True)


@pytest.mark.parametrize(
    ("name", "classes", "meant"),
    [
        ("auc", 2, "roc_auc"),
        ("AUROC", 2, "roc_auc"),
        ("f1", 2, "f_score"),
        ("F1-score", 2, "f_score"),
        ("accuracy", 2, "zero_one"),
        ("accuracy", 3, "multi_class"),
        ("auc", 3, "roc_auc"),
        ("iou", 2, "jaccard"),
        ("avg_precision", 2, "average_precision"),
        ("balanced accuracy", 2, "balanced_error"),
    ],
)
def test_usual_names_lead_to_the_right_one(name, classes, meant):
    from taskloss.cli.errors import CommandError

    with pytest.raises(CommandError, match=f"did you mean {meant}"):
        parse_metric(name, classes=classes)
