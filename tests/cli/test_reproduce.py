"""``taskloss reproduce`` as a user sees it: the list, a page, resuming, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskloss.experiments import catalog, linear
from taskloss.experiments.catalog import CATALOG, Form
from tests.cli.running import invoke


@pytest.fixture
def small(monkeypatch):
    """A small experiment under the name of ``linear``."""
    monkeypatch.setattr(
        linear, "GRIDS", {"normal": linear.Grid((1.0,), (1.0,), (0.1,)), "adam": linear.Grid((1.0,), (0.1,), (0.1,))}
    )
    form = Form(linear.Linear(points=200, iterations=20), "a second")
    monkeypatch.setitem(catalog.CATALOG, "linear", {"quick": form, "full": form})


def test_the_list_names_every_experiment_and_its_cost():
    result = invoke("reproduce", "--list")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for name, forms in CATALOG.items():
        assert f"{name} --quick" in words
        assert f"{name} --full" in words
        for form in forms.values():
            assert form.cost.split()[0] in words
            assert "?" not in form.cost
    assert "figure 3" in words


def test_a_page_with_figures_results_and_a_verdict(small, tmp_path):
    result = invoke("reproduce", "linear", "--seeds", "2", "--jobs", "1", "--output", tmp_path)
    assert result.exit_code == 0, result.output
    assert "Verdict" in result.stdout
    assert f"Page: {tmp_path / 'linear.md'}" in result.stdout
    page = (tmp_path / "linear.md").read_text()
    assert "`taskloss reproduce linear --seeds 2`" in page
    results = json.loads((tmp_path / "linear.json").read_bytes())
    assert results["made"]["runs"] == 2 * 2 * 2 * 9
    assert len(results["searched"]["rows"]) == 72
    assert (tmp_path / "linear.svg").stat().st_size > 1000


def test_finished_runs_are_kept_unless_they_are_given_up(small, tmp_path):
    arguments = ("reproduce", "linear", "--seeds", "2", "--jobs", "1", "--output", tmp_path)
    assert invoke(*arguments).exit_code == 0
    first = (tmp_path / "linear.json").read_bytes()
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "--resume" in refused.output
    assert "--force" in refused.output
    assert invoke(*arguments, "--resume").exit_code == 0
    assert (tmp_path / "linear.json").read_bytes() == first
    assert invoke(*arguments, "--force").exit_code == 0
    assert _without_seconds(tmp_path / "linear.json") == _without_seconds_of(first)


def _without_seconds(path: Path) -> dict:
    return _without_seconds_of(path.read_bytes())


def _without_seconds_of(content: bytes) -> dict:
    results = json.loads(content)
    results["made"]["seconds"] = 0
    seconds = results["searched"]["columns"].index("seconds")
    for row in results["searched"]["rows"]:
        row[seconds] = 0
    for record in results["chosen"]:
        record["seconds"] = 0
    return results


def test_an_unknown_name_lists_the_known_ones():
    for arguments in ((), ("nothing",)):
        result = invoke("reproduce", *arguments)
        assert result.exit_code == 2
        assert "synthetic, noise-robustness, linear, action, detection" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("action", "PASCAL VOC 2012: expected"),
        ("detection", "PASCAL VOC 2012: expected"),
        ("auc", "no data set cat_dog: expected PetImages/Cat/*.jpg and PetImages/Dog/*.jpg or"),
        ("multiclass-auc", "no data set stl10: expected stl10_binary with"),
    ],
)
def test_missing_data_are_an_error_that_says_what_is_expected(name, expected, tmp_path):
    result = invoke("reproduce", name, "--output", tmp_path)
    assert result.exit_code == 3
    assert "--data DIR" in result.output
    result = invoke("reproduce", name, "--output", tmp_path, "--data", tmp_path / "none")
    assert result.exit_code == 3
    assert expected in " ".join(result.output.split())


def test_a_missing_package_is_named(small, tmp_path, monkeypatch):
    def need_package(cell, files):
        raise ImportError("this needs cvxpy: pip install 'taskloss[peers]'")

    monkeypatch.setattr(linear, "run_cell", need_package)
    result = invoke("reproduce", "linear", "--seeds", "2", "--jobs", "1", "--output", tmp_path)
    assert result.exit_code == 1
    assert "taskloss: this needs cvxpy: pip install 'taskloss[peers]'" in " ".join(result.output.split())


def test_a_damaged_journal_is_named(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "linear-quick.jsonl").write_text("nonsense\n{}\n")
    result = invoke("reproduce", "linear", "--output", tmp_path, "--resume")
    assert result.exit_code == 3
    assert "linear-quick.jsonl is damaged" in " ".join(result.output.split())
