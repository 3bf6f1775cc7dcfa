"""``taskloss train`` and ``predict``: files of the model, kill and resume, predictions, operating points."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskloss.cli.method_table import ESTIMATOR_METHODS
from taskloss.cli.models import Model
from taskloss.tables import read_table
from taskloss.thresholds import for_precision
from tests.cli.running import invoke, write_claims, write_queries

QUICK = ("--iterations", "30")


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_claims(tmp_path_factory.mktemp("data") / "claims.csv", rows=600)


@pytest.fixture(scope="module")
def model(claims, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    result = invoke("train", claims, "--target", "label", *QUICK, "--output", folder)
    assert result.exit_code == 0, result.output
    for words in ("Held-out average precision", "label is fraud", "it counts the rows", f"taskloss predict {folder}"):
        assert words in result.stdout
    return folder


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_files(model):
    assert sorted(path.name for path in model.iterdir()) == ["model.json", "model.safetensors"]
    record = json.loads((model / "model.json").read_text())
    assert (record["facts"]["positive"], record["facts"]["negative"]) == ("fraud", ["ok"])


def test_predictions_are_the_models_own(model, claims):
    result = invoke("predict", model, claims)
    assert result.exit_code == 0, result.output
    rows = rows_of(result.stdout)
    loaded = Model.load(model)
    features = loaded.encoder.encode(read_table(claims))
    scores = loaded.estimator.decision_function(features)
    assert [int(row["row"]) for row in rows] == list(range(1, 601))
    np.testing.assert_array_equal([float(row["score"]) for row in rows], scores)
    np.testing.assert_allclose([float(row["probability"]) for row in rows], loaded.estimator.predict_proba(features)[:, 1])
    assert [row["prediction"] for row in rows] == np.where(scores > 0, "fraud", "ok").tolist()
    assert "average precision on these rows" in result.stderr


def test_rows_without_target_and_in_another_order(model, claims, tmp_path: Path):
    table = list(csv.reader(claims.open()))
    order = [3, 2, 4, 1]
    new = tmp_path / "new.tsv"
    new.write_text("\n".join("\t".join(row[column] for column in order) for row in table[:21]) + "\n")
    result = invoke("predict", model, new, "--output", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "20 rows" in result.stderr
    assert "on these rows" not in result.stderr
    alone, among_others = rows_of((tmp_path / "out.csv").read_text()), rows_of(invoke("predict", model, claims).stdout)[:20]
    # Sums of products are taken in another order for another number of rows.
    scores = [[float(row["score"]) for row in rows] for rows in (alone, among_others)]
    np.testing.assert_allclose(*scores, rtol=1e-12)
    assert [row["prediction"] for row in alone] == [row["prediction"] for row in among_others]


def test_json(model, claims, tmp_path: Path):
    record = json.loads(invoke("predict", model, claims, "--json").stdout)
    assert record["rows"] == 600
    assert len(record["predictions"]["score"]) == 600
    record = json.loads(invoke("predict", model, claims, "--json", "--output", tmp_path / "out.csv").stdout)
    assert "predictions" not in record
    assert record["output"] == str(tmp_path / "out.csv")


def test_threshold_moves_the_decisions(model, claims):
    def flagged(*options: str) -> int:
        return sum(row["prediction"] == "fraud" for row in rows_of(invoke("predict", model, claims, *options).stdout))

    assert flagged("--threshold", "1e9") == 0
    assert flagged("--threshold", "-1e9") == 600
    assert 0 < flagged() < 600


@pytest.mark.parametrize(("name", "share"), [("precision", 0.5), ("recall", 0.7), ("fpr", 0.3), ("budget", 0.4)])
def test_requirements(model, claims, tmp_path: Path, name, share):
    held_out = write_claims(tmp_path / "held-out.csv", rows=600, seed=1)
    result = invoke("predict", model, claims, "--held-out", held_out, f"--{name}", str(share), "--json")
    assert result.exit_code == 0, result.output
    point = json.loads(result.stdout)["operating_point"]
    assert point["confidence"] == 0.95
    assert point["bound"] >= share if name in ("precision", "recall") else point["bound"] <= share
    if name == "precision":
        loaded = Model.load(model)
        table = read_table(held_out)
        target = np.array(table.columns["label"].to_pylist()) == "fraud"
        scores = loaded.estimator.decision_function(loaded.encoder.encode(table))
        assert point["threshold"] == for_precision(scores, target.astype(int), share).threshold


def test_requirement_that_cannot_be_promised(model, claims, tmp_path: Path):
    held_out = write_claims(tmp_path / "held-out.csv", rows=600, seed=1)
    result = invoke("predict", model, claims, "--held-out", held_out, "--precision", "0.9999")
    assert result.exit_code == 1
    assert "no threshold guarantees precision >= 0.9999 at 95% confidence" in result.stderr


def test_training_rows_promise_nothing(model, claims, tmp_path: Path):
    """The file of the training, a part of it, and a mixture with new rows; also with columns in another order and format."""
    new = write_claims(tmp_path / "new.csv", rows=600, seed=1)
    header, *lines = claims.read_text().splitlines()
    part, mixture, other = tmp_path / "part.csv", tmp_path / "mixture.csv", tmp_path / "other.parquet"
    part.write_text("\n".join([header, *lines[300:500]]) + "\n")
    mixture.write_text(new.read_text() + "\n".join(lines[:60]) + "\n")
    table = read_table(claims)
    pq.write_table(pa.table({name: table.columns[name] for name in reversed(table.columns)}), other)
    for path in (claims, part, mixture, other):
        result = invoke("predict", model, claims, "--held-out", path, "--recall", "0.5")
        assert (result.exit_code, "holds rows that the model was trained on" in result.stderr) == (3, True), result.output
    assert invoke("predict", model, claims, "--held-out", new, "--recall", "0.5").exit_code == 0
    assert "(too optimistic: the model was trained on many of them)" in invoke("predict", model, claims).stderr
    assert "optimistic" not in invoke("predict", model, new).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--precision", "0.9"], 2, "--held-out and a requirement"),
        (["--held-out", "x.csv"], 2, "--held-out and a requirement"),
        (["--precision", "0.9", "--recall", "0.5", "--held-out", "x.csv"], 2, "give one of"),
        (["--threshold", "0", "--recall", "0.5", "--held-out", "x.csv"], 2, "give one of"),
        (["--recall", "1.5", "--held-out", "x.csv"], 2, "--recall must be above 0 and below 1"),
        (["--recall", "nan", "--held-out", "x.csv"], 2, "--recall must be above 0 and below 1"),
        (["--recall", "0.5", "--held-out", "x.csv", "--confidence", "2"], 2, "--confidence must be"),
        (["--recall", "0.5", "--held-out", "no-such.csv"], 3, "No such file"),
        (["--output", "/no/such/folder/x.csv"], 1, "No such file"),
        (["--threshold", "high"], 2, "--threshold"),
    ],
)
def test_bad_options(model, claims, arguments, code, words):
    result = invoke("predict", model, claims, *arguments)
    assert result.exit_code == code, result.output
    assert words in " ".join(result.stderr.split())


def test_bad_tables(model, tmp_path: Path):
    path = tmp_path / "new.csv"
    path.write_text("amount,branch\n1,north\n")
    result = invoke("predict", model, path)
    assert (result.exit_code, "has no column 'age'" in result.stderr) == (3, True)
    path.write_text("amount,branch,age\n1,north,old\n")
    result = invoke("predict", model, path)
    assert (result.exit_code, "row 1, column 'age' of new.csv: 'old' is not a number" in result.stderr) == (3, True)


def test_damaged_models(model, claims, tmp_path: Path):
    def predicted(change) -> str:
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(model, folder)
        change(folder)
        result = invoke("predict", folder, claims)
        assert result.exit_code == 3, result.output
        return result.stderr

    assert "holds no model" in predicted(shutil.rmtree)
    assert "holds no model" in predicted(lambda folder: (folder / "model.json").unlink())
    assert "do not belong together" in predicted(lambda folder: (folder / "model.safetensors").write_bytes(b"junk"))
    assert "is damaged" in predicted(lambda folder: (folder / "model.json").write_text("{}"))
    assert "is damaged" in predicted(lambda folder: (folder / "model.json").write_bytes(b"\xff"))

    def lose_encoder(folder: Path) -> None:
        record = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps({**record, "encoder": {"columns": [{"kind": "numeric", "x": 1}]}}))

    assert "is damaged" in predicted(lose_encoder)


def test_queries(tmp_path: Path):
    path = write_queries(tmp_path / "docs.svm")
    assert invoke("train", path, *QUICK, "--output", tmp_path / "model").exit_code == 0
    result = invoke("predict", tmp_path / "model", path)
    assert result.exit_code == 0, result.output
    rows = rows_of(result.stdout)
    assert list(rows[0]) == ["row", "query", "score"]
    assert len({row["query"] for row in rows}) == 15
    result = invoke("predict", tmp_path / "model", path, "--threshold", "0")
    assert (result.exit_code, "makes no decisions" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--method", "magic"], 2, "--method 'magic' is not known"),
        (["--method", "lp"], 3, "method='lp' has no loss for AveragePrecision"),
        (["--target", "nothing"], 3, "has no column 'nothing'"),
        (["--metric", "nonsense"], 2, "--metric 'nonsense'"),
    ],
)
def test_bad_training(claims, arguments, code, words, tmp_path: Path):
    target = [] if "--target" in arguments else ["--target", "label"]
    result = invoke("train", claims, *target, *QUICK, "--output", tmp_path, *arguments)
    assert result.exit_code == code, result.output
    assert words in " ".join(result.stderr.split())


def test_few_rows_of_a_class_make_a_rough_figure(claims, tmp_path: Path):
    few = tmp_path / "few.csv"
    head, *rows = claims.read_text().splitlines()
    few.write_text(
        "\n".join([head, *[row for row in rows if row.endswith("ok")], *[row for row in rows if row.endswith("fraud")][:12]])
    )
    words = "with only 12 rows of the rarest class it is rough"
    outputs = [
        invoke("train", path, "--target", "label", *QUICK, "--output", tmp_path / path.stem).stdout for path in (few, claims)
    ]
    assert [words in " ".join(output.split()) for output in outputs] == [True, False]


def test_a_random_forest_is_not_stopped_by_held_out_rows(claims, tmp_path: Path):
    result = invoke("train", claims, "--target", "label", "--method", "random_forest", *QUICK, "--output", tmp_path / "model")
    assert "Held-out average precision" in result.stdout
    assert "optimistic" not in result.stdout


def test_warnings_are_messages(tmp_path: Path):
    path = tmp_path / "tiny.csv"
    path.write_text("x,y\n1,0\n2,0\n3,0\n5,1\n")
    result = invoke("train", path, "--target", "y", "--iterations", "2", "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("taskloss: too few samples of a class to hold any out")
    assert "Warning" not in result.stderr


def start_training(claims: Path, output: Path, *options: str) -> list[str]:
    program = "from taskloss.cli import main; main()"
    data = [str(claims), "--target", "label", "--iterations", "100", "--output", str(output)]
    return [sys.executable, "-c", program, "train", *data, *options]


def test_killed_training_goes_on_to_the_same_files(claims, tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = subprocess.Popen(start_training(claims, killed), stdout=subprocess.DEVNULL)
    try:
        checkpoints = killed / "checkpoint"
        deadline = time.monotonic() + 240
        # Wait until the second network has begun.
        while len(list(checkpoints.glob("*.safetensors"))) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait(30) == -signal.SIGKILL, "killed before its end"
    finally:
        process.kill()
    assert not (killed / "model.json").exists()
    result = invoke("predict", killed, claims)
    assert (result.exit_code, "run taskloss train again with --resume" in result.stderr) == (3, True)
    subprocess.run(start_training(claims, killed, "--resume"), check=True, stdout=subprocess.DEVNULL)
    subprocess.run(start_training(claims, whole), check=True, stdout=subprocess.DEVNULL)
    for name in ("model.safetensors", "model.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    assert sorted(path.name for path in killed.iterdir()) == ["model.json", "model.safetensors"]


def test_checkpoint_of_another_training_is_refused(claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from taskloss.cli import train as command

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "_save", interrupted)
        result = invoke("train", claims, "--target", "label", *QUICK, "--output", tmp_path)
    assert result.exit_code == 130
    assert f"To continue: taskloss train {claims} --target label" in result.stderr
    assert (tmp_path / "checkpoint").exists()
    result = invoke("train", claims, "--target", "label", *QUICK, "--output", tmp_path, "--method", "hinge", "--resume")
    assert result.exit_code == 3
    assert "belongs to another run" in result.stderr
    assert invoke("train", claims, "--target", "label", *QUICK, "--output", tmp_path, "--resume").exit_code == 0
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("method", list(ESTIMATOR_METHODS))
def test_every_method_that_a_comparison_may_recommend(method, tmp_path: Path):
    claims = write_claims(tmp_path / "claims.csv", rows=120)
    options = ("--target", "label", "--metric", "f_score", "--iterations", "3", "--method", method)
    result = invoke("train", claims, *options, "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "model" / "model.json").read_text())["facts"]["method"] == method
    result = invoke("predict", tmp_path / "model", claims, "--output", tmp_path / "scored.csv")
    assert result.exit_code == 0, result.output


def test_bundled_set_by_its_name(tmp_path: Path):
    options = ("--method", "lightgbm", "--iterations", "3", "--output", tmp_path / "model")
    assert invoke("train", "wine", *options).exit_code == 0
    result = invoke("predict", tmp_path / "model", "wine", "--output", tmp_path / "scored.csv")
    assert result.exit_code == 0, result.output
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 901
