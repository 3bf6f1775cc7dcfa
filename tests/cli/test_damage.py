"""Damaged models and tables end with a message and a documented exit code; :mod:`tests.cli.mutations` tries many more by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taskloss.cli.models import digest_of
from taskloss.tables import TableError, read_table
from tests.cli.mutations import Workshop
from tests.cli.running import invoke


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("damage"))


def test_damaged_models(workshop):
    codes = [workshop.damaged_model(seed) for seed in range(150)]
    assert codes.count(3) > 100


@pytest.mark.parametrize("damaged", [b"kestrel", b"branch"])
def test_parquet_text_that_is_not_utf8(damaged, tmp_path: Path):
    """Bytes of a cell and of the name of a column; both ended in a traceback."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"branch": ["kestrel", "b"]}), path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(damaged, b"\xff" + damaged[1:]))
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        read_table(path)


def test_damaged_tables(workshop):
    codes = [workshop.damaged_table(seed) for seed in range(150)]
    assert codes.count(3) > 30


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("change", ["columns", "median", "metric", "negative", "classes"])
def test_every_change_is_noticed(workshop, change, signed, tmp_path: Path):
    """Without its columns, the encoder of a model makes too few features; that ended in a traceback."""
    shutil.copytree(workshop.model, tmp_path / "model")
    record = json.loads((tmp_path / "model" / "model.json").read_text())
    if change == "columns":
        del record["encoder"]["columns"][-1]
    elif change == "median":
        record["encoder"]["columns"][0]["median"] = "much" if signed else 17.0
    elif change == "metric":
        record["facts"]["metric"] = "nonsense"
    else:
        record["facts"][change] = [] if change == "negative" else ["fraud", "ok"]
    if signed:
        record["digest"] = digest_of(record)
    (tmp_path / "model" / "model.json").write_text(json.dumps(record))
    result = invoke("predict", tmp_path / "model", workshop.small)
    assert (result.exit_code, "is damaged" in result.stderr) == (3, True), result.output
