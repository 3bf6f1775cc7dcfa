"""Several classes on the command line: train, predict and compare."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

from taskloss.cli import runs
from taskloss.cli.data import DataOptions, load_samples
from taskloss.cli.methods import choose_methods
from taskloss.cli.metric import parse_metric
from taskloss.cli.splits import split_samples
from taskloss.estimators import LOSSES_BY_METHOD
from taskloss.lp import MultiClassAUCLoss
from tests.cli.running import invoke

QUICK = ("--target", "kind", "--iterations", "30")
FEW = ("--target", "kind", "--splits", "2", "--iterations", "8", "--jobs", "1")


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
    assert f"{label} on these rows: " in result.stderr
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


# --- compare ------------------------------------------------------------------------------------------------------------------

ROWS = ["auto", "cross-entropy", "direct", "direct negative", "hinge"]


@pytest.mark.parametrize(
    ("metric", "label", "methods"),
    [
        ("average_precision", "macro average precision", [*ROWS, "LightGBM", "random forest"]),
        ("f_score", "macro F-score", [*ROWS, "linear program", "LightGBM", "random forest"]),
        ("multi_class", "accuracy", [*ROWS, "LightGBM", "random forest"]),
        ("top_k_error:k=2", "top-2 accuracy", [*ROWS, "LightGBM", "random forest"]),
    ],
)
def test_compare(flowers, metric, label, methods, tmp_path: Path):
    result = invoke("compare", flowers, *FEW, "--metric", metric, "--output", tmp_path)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    assert "240 samples, kind is one of 3 classes: daisy (" in text
    assert f"Test {label}, %" in text
    record = json.loads((tmp_path / "results.json").read_text())
    assert (record["metric"], list(record["methods"])) == (label, methods)
    assert list(record["data"]["classes"]) == ["daisy", "rose", "tulip"]
    assert sum(record["data"]["classes"].values()) == 240
    for run in record["runs"]:
        confusion = np.array(run["classes"]["confusion"])
        assert confusion.sum() == 96
        assert run["others"]["accuracy"] == pytest.approx(np.trace(confusion) / 96)
        recall, precision = np.diag(confusion) / confusion.sum(1), np.diag(confusion) / np.maximum(confusion.sum(0), 1)
        f_score = 2 * recall * precision / np.maximum(recall + precision, 1e-9)
        assert run["others"]["macro F-score"] == pytest.approx(f_score.mean())
        assert run["others"].get(label, run["value"]) == run["value"]
        assert run["others"]["macro ROC AUC"] > 0.8, "the scores rank the samples of each class"
        assert (run["curves"], run["thresholds"]) == (None, None)
        assert [effect["column"] for effect in run["effects"]] == ["width", "height"]
    page = (tmp_path / "index.html").read_text()
    assert "<h2>Which classes are confused" in page
    assert "Choose a threshold" not in page


def test_values_are_those_of_scikit_learn(flowers):
    samples = load_samples(DataOptions(flowers, target="kind"))
    training, test = split_samples(samples, seed=0)
    truth = np.eye(3)[test.target]
    expected = {
        "average_precision": lambda result: average_precision_score(truth, result.scores, average="macro"),
        "roc_auc": lambda result: roc_auc_score(test.target, result.probabilities, multi_class="ovr"),
        "f_score": lambda result: f1_score(test.target, result.scores.argmax(1), average="macro"),
    }
    for name, value in expected.items():
        metric = parse_metric(name, classes=3)
        methods = choose_methods("lightgbm", metric, queries=False, settings={"max_iter": 8})
        for label in ("cross-entropy", "LightGBM"):
            result = methods[label].fit(training, test, metric, 0, lambda share: None)
            np.testing.assert_allclose(result.probabilities.sum(1), 1)
            assert result.value(metric, test) == pytest.approx(value(result)), (name, label)
            np.testing.assert_allclose(result.score(test.features), result.scores)


def test_every_split_has_every_class_in_its_share(flowers):
    samples = load_samples(DataOptions(flowers, target="kind"))
    for seed in range(2):
        _, test = split_samples(samples, seed)
        np.testing.assert_allclose(np.bincount(test.target), 0.4 * np.bincount(samples.target), atol=1)


def test_compare_resumes(flowers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = ("compare", flowers, *FEW, "--methods", "lightgbm", "--metric", "multi_class", "--output")
    train_and_test, done = runs.train_and_test, []

    def interrupted(name, *arguments):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(name)
        return train_and_test(name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runs, "train_and_test", interrupted)
        assert invoke(*arguments, tmp_path / "two").exit_code == 130
    assert invoke(*arguments, tmp_path / "two", "--resume").exit_code == 0
    assert invoke(*arguments, tmp_path / "one").exit_code == 0
    first, second = (json.loads((tmp_path / name / "results.json").read_text())["runs"] for name in ("one", "two"))
    assert [{**run, "seconds": 0} for run in first] == [{**run, "seconds": 0} for run in second]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--metric", "zero_one"], "is for two classes, not for several classes; did you mean multi_class? (its value is the"),
        (["--metric", "accuracy"], "did you mean multi_class?"),
        (["--metric", "graded_ndcg"], "is for queries, not for several classes"),
        (["--metric", "top_k_error"], "k is 5, and there are 3 classes; expected k below 3"),
        (["--methods", "direct_lightgbm"], "direct_lightgbm has one score per sample, not one for each of several classes"),
        (["--methods", "lp"], "method='lp' has no loss for AveragePrecision"),
    ],
)
def test_what_does_not_fit_several_classes(flowers, arguments, words, tmp_path: Path):
    result = invoke("compare", flowers, *FEW, "--output", tmp_path, *arguments)
    assert (result.exit_code, words in " ".join(result.stderr.split())) == (2, True), result.stderr


def test_too_few_samples_of_a_class(tmp_path: Path):
    path = tmp_path / "few.csv"
    path.write_text("x,kind\n" + "".join(f"{n % 7},{'elm' if n < 4 else ['ash', 'oak', 'fir'][n % 3]}\n" for n in range(90)))
    result = invoke("compare", path, *FEW, "--output", tmp_path)
    assert result.exit_code == 3
    assert "too few samples of 1 of the 4 classes in 'kind': 'elm' (4)" in result.stderr
    assert "--positive LABEL" in result.stderr


@pytest.mark.parametrize("name", ["average_precision", "roc_auc", "f_score", "precision_at_k", "multi_class", "top_k_error"])
def test_no_two_rows_train_with_the_same_loss(name):
    metric = parse_metric(name, classes=9)
    methods = [method.name for method in choose_methods(None, metric, queries=False, settings={}).values()]
    losses = [repr(LOSSES_BY_METHOD[name](metric.task, 1.0)) for name in methods if name in LOSSES_BY_METHOD]
    assert len(set(losses)) == len(losses)


def test_linear_program_of_several_classes_is_that_of_each_against_the_rest():
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(50, 4, generator=generator), torch.arange(50) % 4
    loss = LOSSES_BY_METHOD["lp"](parse_metric("roc_auc", classes=4).task, 1.0)
    expected = MultiClassAUCLoss("one_vs_all")(scores, target)
    torch.testing.assert_close(loss(scores, torch.nn.functional.one_hot(target, 4)), expected)
