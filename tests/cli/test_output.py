"""What ``predict`` and ``train`` write: formats, identifiers, files that exist, and what is said about the threshold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from taskloss.tables import read_table
from tests.cli.running import invoke, write_claims


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_claims(tmp_path_factory.mktemp("data") / "claims.csv", rows=300)


@pytest.fixture(scope="module")
def model(claims, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "model"
    assert invoke("train", claims, "--target", "label", "--iterations", "20", "--output", folder).exit_code == 0
    return folder


def test_identifiers_are_copied(model, claims, tmp_path: Path):
    assert invoke("predict", model, claims, "--output", tmp_path / "out.csv").exit_code == 0
    table = read_table(tmp_path / "out.csv")
    assert list(table.columns) == ["row", "id", "note", "score", "probability", "prediction"]
    given = read_table(claims)
    assert table.cells("id") == given.cells("id")
    assert table.cells("note") == given.cells("note")


def test_identifier_with_the_name_of_a_prediction(claims, tmp_path: Path):
    path = tmp_path / "claims.csv"
    path.write_text(claims.read_text().replace("id,", "score,", 1))
    assert invoke("train", path, "--target", "label", "--iterations", "5", "--output", tmp_path / "model").exit_code == 0
    header = invoke("predict", tmp_path / "model", path).stdout.splitlines()[0]
    assert header == "row,score (identifier),note,score,probability,prediction"


def test_name_of_the_file_chooses_the_format(model, claims, tmp_path: Path):
    for name in ("out.csv", "out.tsv", "out.parquet", "out.csv.gz", "out"):
        result = invoke("predict", model, claims, "--output", tmp_path / name)
        assert result.exit_code == 0, result.output
    tables = [read_table(tmp_path / name) for name in ("out.csv", "out.tsv", "out.parquet", "out.csv.gz", "out")]
    for table in tables:
        assert table.numbers("score").tolist() == tables[0].numbers("score").tolist()
    assert pq.read_table(tmp_path / "out.parquet").schema.field("id").type in ("string", "int64")
    assert "\t" in (tmp_path / "out.tsv").read_text()
    assert gzip.decompress((tmp_path / "out.csv.gz").read_bytes()) == (tmp_path / "out.csv").read_bytes()
    for name in ("out.xlsx", "out.parquet.gz", "out.json"):
        result = invoke("predict", model, claims, "--output", tmp_path / name)
        assert (result.exit_code, "expected .csv, .tsv" in result.stderr) == (2, True)
        assert not (tmp_path / name).exists()


def test_nothing_is_overwritten_without_force(model, claims, tmp_path: Path):
    output = tmp_path / "out.csv"
    output.write_text("precious")
    result = invoke("predict", model, claims, "--output", output)
    assert (result.exit_code, "exists already; give --force" in result.stderr) == (1, True)
    assert output.read_text() == "precious"
    assert invoke("predict", model, claims, "--output", output, "--force").exit_code == 0
    assert output.read_text() != "precious"

    before = (model / "model.json").read_bytes()
    arguments = ("train", claims, "--target", "label", "--iterations", "20", "--output", model)
    for more in ((), ("--resume",)):
        result = invoke(*arguments, *more)
        assert (result.exit_code, "exists already; give --force" in result.stderr) == (1, True)
    assert (model / "model.json").read_bytes() == before
    assert invoke(*arguments, "--force").exit_code == 0
    assert (model / "model.json").read_bytes() == before, "the same training gives the same model"


def test_threshold_is_explained(model, claims):
    result = invoke("predict", model, claims)
    flagged = sum(",fraud" in line for line in result.stdout.splitlines())
    assert f"threshold 0: the best for F1 on held-out training rows, without a guarantee; {flagged} of 300 rows" in result.stderr
    assert "threshold 0.5: as --threshold says" in invoke("predict", model, claims, "--threshold", "0.5").stderr
    assert json.loads(invoke("predict", model, claims, "--json").stdout)["flagged"] == flagged


def test_advice_names_options_of_the_command(model, claims, tmp_path: Path):
    path = tmp_path / "new.csv"
    path.write_text("amount,branch,age\n1,north,old\n2,south,3\n")
    result = invoke("predict", model, path)
    assert "--missing 'old'" in result.stderr
    assert "--categorical" not in result.stderr
    assert invoke("predict", model, path, "--missing", "old").exit_code == 0


def test_target_that_cannot_be_judged_is_said(model, claims, tmp_path: Path):
    lines = [line for line in claims.read_text().splitlines() if not line.endswith("fraud")]
    (tmp_path / "ok.csv").write_text("\n".join(lines) + "\n")
    result = invoke("predict", model, tmp_path / "ok.csv")
    assert result.exit_code == 0
    assert (
        "average precision is not defined on these rows: the target, column 'label' of ok.csv, has one class only"
        in result.stderr
    )


def test_no_held_out_figure_where_nothing_was_held_out(tmp_path: Path):
    path = tmp_path / "rare.csv"
    path.write_text("x,y\n" + "".join(f"{row % 7},{int(row == 3)}\n" for row in range(40)))
    result = invoke("train", path, "--target", "y", "--iterations", "5", "--output", tmp_path / "model")
    assert result.exit_code == 0, result.output
    assert "Held-out" not in result.stdout
    assert "Nothing was held out" in result.stdout
    assert json.loads((tmp_path / "model" / "model.json").read_text())["facts"]["held_out"] is None
    assert "the best for F1 on training rows, without a guarantee" in invoke("predict", tmp_path / "model", path).stderr
    result = invoke("train", path, "--target", "y", "--iterations", "5", "--output", tmp_path / "other", "--json")
    assert json.loads(result.stdout)["held_out"] is None
