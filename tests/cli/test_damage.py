"""Damaged models and tables end with a message and a documented exit code; :mod:`tests.cli.mutations` tries many more by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from taskloss.cli.models import digest_of
from tests.cli.mutations import Workshop
from tests.cli.running import invoke


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("damage"))


def test_damaged_models(workshop):
    codes = [workshop.damaged_model(seed) for seed in range(150)]
    assert codes.count(3) > 100


def test_damaged_tables(workshop):
    codes = [workshop.damaged_table(seed) for seed in range(150)]
    assert codes.count(3) > 30


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("change", ["columns", "median", "metric", "negative"])
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
        record["facts"]["negative"] = []
    if signed:
        record["digest"] = digest_of(record)
    (tmp_path / "model" / "model.json").write_text(json.dumps(record))
    result = invoke("predict", tmp_path / "model", workshop.small)
    assert (result.exit_code, "is damaged" in result.stderr) == (3, True), result.output
