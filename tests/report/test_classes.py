"""The report of several classes: what each method takes for what, and no curves of two classes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from taskloss.report import as_json, describe_classes, read_results
from taskloss.report.classes import class_rows
from taskloss.report.page import render_page
from tests.report.sample import simulated, simulated_classes
from tests.report.test_page import outline_of

FOUR = simulated_classes(4)


def test_confusion_by_hand():
    # Three cats, one of them taken for a dog; a dog taken for a cat; birds are never predicted.
    chosen, target = np.array([0, 0, 1, 0, 1]), np.array([0, 0, 0, 1, 2])
    results = describe_classes(np.eye(3)[chosen], target, np.full((5, 3), 1 / 3))
    assert results.confusion == ((2, 1, 0), (1, 0, 0), (0, 1, 0))
    assert sum(part.samples for part in results.calibration) == 5
    assert sum(part.samples * part.observed for part in results.calibration) == pytest.approx(2)
    records = simulated_classes(3)
    card = replace(records.data, classes={"cat": 3, "dog": 1, "bird": 1})
    records = replace(records, data=card, runs=tuple(replace(run, classes=results) for run in records.runs))
    cat, dog, bird = class_rows(records, "direct")
    assert (cat.recall, cat.precision, cat.taken_for) == (pytest.approx(2 / 3), pytest.approx(2 / 3), "dog")
    assert (dog.recall, dog.precision, dog.taken_for, dog.taken_share) == (0.0, 0.0, "cat", 1.0)
    assert (bird.samples, bird.recall, np.isnan(bird.precision)) == (4, 0.0, True), "four splits"


@pytest.mark.parametrize("classes", [4, 20])
def test_page(classes):
    records = simulated_classes(classes)
    page = render_page(records)
    cells = outline_of(page).cells
    assert f"1,500 samples of {classes} classes." in page
    assert f"kind, one of {classes} classes: class 0 ({1500 // classes})" in page
    for heading in ("Recall by class", "Precision by class", "Which classes are confused", "Learning curves", "Calibration"):
        assert f"<h2>{heading}" in page
    for words in ("<h2>ROC", "<h2>Precision and recall", "<h2>Choose a threshold", "positive:", "nan"):
        assert words not in page
    row = class_rows(records, "direct")[1]
    if classes == 4:
        shares = [f"{100 * share:.0f}" for share in row.shares]
        assert ["class 1", *shares, f"{row.samples:,}"] in cells
        assert "The 12 classes with the lowest recall" not in page
    else:
        taken = f"{row.taken_for} ({100 * row.taken_share:.0f}%)"
        assert ["class 1", str(row.samples), f"{100 * row.recall:.2f}", f"{100 * row.precision:.2f}", taken] in cells
        assert "The 12 classes with the lowest recall" in page


def test_labels_are_escaped():
    evil = "<b>&"
    card = replace(FOUR.data, classes={evil + label: samples for label, samples in FOUR.data.classes.items()})
    page = render_page(replace(FOUR, data=card))
    assert evil not in page
    assert outline_of(page).tags == outline_of(render_page(FOUR)).tags


def test_records_are_read_back(tmp_path: Path):
    path = tmp_path / "results.json"
    path.write_text(as_json(FOUR))
    assert read_results(path) == FOUR
    older = json.loads(as_json(simulated()))
    del older["data"]["classes"]
    path.write_text(json.dumps(older))
    assert read_results(path).data.classes == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["runs"][0].update(classes=None),
        lambda record: record["runs"][0]["classes"]["confusion"].pop(),
        lambda record: record["runs"][0]["classes"]["confusion"][0].pop(),
        lambda record: record["data"]["classes"].popitem(),
        lambda record: record["data"].update(classes={}),
    ],
)
def test_damaged_records_are_refused(tmp_path: Path, change):
    record = json.loads(as_json(FOUR))
    change(record)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="the confusion matrix does not have the"):
        read_results(path)
