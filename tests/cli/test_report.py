"""``taskloss report``, ``taskloss tasks``, and the tables of methods and labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskloss.cli.method_table import ALL_METHODS, BASELINE, CONTENDER, NETWORK_METHODS
from taskloss.cli.methods import choose_methods
from taskloss.cli.metric import parse_metric
from taskloss.estimators import LOSSES_BY_METHOD
from taskloss.report import as_json, write_report
from taskloss.tasks.registry import registered
from tests.cli.running import invoke
from tests.report.sample import simulated


def test_page_is_made_again(tmp_path: Path):
    page, results = write_report(simulated(), tmp_path)
    before = page.read_text()
    page.unlink()
    for source in (tmp_path, results):
        result = invoke("report", source)
        assert result.exit_code == 0, result.output
        assert page.read_text() == before
    other = tmp_path / "other"
    assert invoke("report", results, "--output", other).exit_code == 0
    assert (other / "index.html").read_text() == before
    assert (other / "results.json").read_text() == as_json(simulated())


def test_no_results(tmp_path: Path):
    result = invoke("report", tmp_path)
    assert result.exit_code == 3
    assert "cannot read" in result.stderr
    (tmp_path / "results.json").write_text("{}")
    result = invoke("report", tmp_path)
    assert result.exit_code == 3
    assert "holds no results" in result.stderr


def test_tasks_lists_all():
    text = invoke("tasks").stdout
    rows = json.loads(invoke("tasks", "--json").stdout)
    assert [row["name"] for row in rows] == list(registered())
    for row in rows:
        assert row["name"] in text
        assert row["summary"]
        assert row["for"] in ("classes and queries", "classes", "several classes", "queries", "Python code only")
    assert {row["name"]: row["settings"] for row in rows}["recall_at_fpr"] == "fpr=0.05"


def test_method_table_has_every_method_of_the_estimators():
    assert NETWORK_METHODS.keys() == LOSSES_BY_METHOD.keys()
    labels = [info.label for info in ALL_METHODS.values()]
    assert len(set(labels)) == len(labels)
    assert {BASELINE, CONTENDER} <= set(labels)


@pytest.mark.parametrize("name", [name for name, task in registered().items() if task.target_kind in ("binary", "labels")])
def test_no_two_rows_of_a_comparison_train_with_the_same_loss(name):
    metric = parse_metric(name)
    methods = [method.name for method in choose_methods(None, metric, queries=False, settings={}).values()]
    losses = [repr(LOSSES_BY_METHOD[name](metric.task, 1.0)) for name in methods if name in LOSSES_BY_METHOD]
    assert len(set(losses)) == len(losses)
    assert sum(loss.startswith("DirectLoss") for loss in losses) == 2


def test_every_task_has_a_label_of_its_own():
    labels = {name: cls.label for name, cls in registered().items()}
    assert len(set(labels.values())) == len(labels)
    assert labels["average_precision"] == "average precision"
    assert labels["zero_one"] == "accuracy", "the value that is shown is one minus the loss"
