"""The page needs no other file, shows the records and escapes them; the files are read back and replaced as a whole."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from taskloss.report import as_json, read_results, split_rows, summarize, summary_rows, write_report
from taskloss.report.effects import column_effects
from taskloss.report.page import render_page
from taskloss.report.summary import as_points
from tests.report.sample import simulated

VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
RECORDS = simulated()


class Outline(HTMLParser):
    """A parser that collects what the tests check, and fails on tags that do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.cells: list[list[str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "srcset", "href", "data", "action")]
        if tag == "tr":
            self.cells.append([])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1].append(data)


def outline_of(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def test_page_is_well_formed_and_stands_alone():
    page = render_page(RECORDS)
    outline = outline_of(page)
    assert page.startswith("<!doctype html>")
    assert outline.addresses == []
    assert "link" not in outline.tags
    assert outline.tags.count("script") == 2
    without_names = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|@import|url\(", without_names)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_page_shows_verdict_tables_settings_and_command():
    page = render_page(RECORDS)
    heading, *rows = outline_of(page).cells
    assert heading == ["method", "mean", "std", "difference", "95% interval", "p", "ahead"]
    shown = [[cell for cell in row if cell] for row in summary_rows(RECORDS)]
    assert [[cell for cell in row if cell.strip()] for row in rows[: len(shown)]] == shown
    assert rows[len(shown) + 1 : len(shown) + 5] == split_rows(RECORDS)
    summary = summarize(RECORDS)
    for words in (
        summary.verdict,
        summary.remark,
        *(as_points(gain.contrast.mean) for gain in summary.gains),
        "two hidden layers",
        "taskloss compare claims.csv --target fraud",
    ):
        assert words in page
    for words in (
        "taskloss[cli,estimators]==9.9",
        "Python 3.x",
        "structured hinge loss",
        "it counts the rows",
        "0.5 to 120, median 17",
    ):
        assert words in page
    headings = ("Precision and recall", "ROC", "Learning curves", "Calibration", "Choose a threshold", "Differences to")
    for heading in (*headings, "Feature effects"):
        assert f"<h2>{heading}" in page


def test_feature_effects_have_intervals_over_the_splits():
    first, *_, last = column_effects(RECORDS, "direct")
    assert (first.column, last.column) == ("amount", "branch"), "the largest first"
    falls = [next(effect.fall for effect in run.effects if effect.column == "amount") for run in RECORDS.runs_of("direct")]
    assert first.falls == tuple(falls)
    assert first.mean == pytest.approx(np.mean(falls))
    # Nadeau and Bengio: four splits, 40% test samples.
    half_width = 3.182446 * np.std(falls, ddof=1) * np.sqrt(1 / 4 + 0.4 / 0.6)
    assert first.interval == pytest.approx((first.mean - half_width, first.mean + half_width))
    assert last.interval[0] < 0 < last.interval[1]
    page = render_page(RECORDS)
    low, high = map(as_points, first.interval)
    assert ["amount", as_points(first.mean), f"{low} to {high}"] in outline_of(page).cells
    assert "each the mean of 3 shuffles" in page


def test_page_without_feature_effects():
    """Older results, and tables with too many columns, have none."""
    runs = tuple(dataclasses.replace(run, effects=()) for run in RECORDS.runs)
    page = render_page(dataclasses.replace(RECORDS, runs=runs))
    outline_of(page)
    assert "Feature effects" not in page
    one_is_missing = (dataclasses.replace(RECORDS.runs[0], effects=()), *RECORDS.runs[1:])
    assert column_effects(dataclasses.replace(RECORDS, runs=one_is_missing), RECORDS.runs[0].method) == []


def test_page_escapes_what_it_is_given():
    evil = "<script>alert(1)</script>&'\""
    methods = {f"{name}{evil}": text + evil for name, text in RECORDS.methods.items()}
    feature = dataclasses.replace(RECORDS.data.features[0], name=evil, kind=evil, values=evil)
    card = dict.fromkeys(("name", "source", "target", "positive"), evil)
    records = dataclasses.replace(
        RECORDS,
        metric=evil,
        data=dataclasses.replace(RECORDS.data, **card, features=(feature,), notices=(evil,)),
        methods=methods,
        baseline="cross-entropy" + evil,
        contender="direct" + evil,
        trees="LightGBM" + evil,
        train_commands={name + evil: text + evil for name, text in RECORDS.train_commands.items()},
        runs=tuple(
            dataclasses.replace(
                run,
                method=run.method + evil,
                others={evil: 0.5},
                effects=tuple(dataclasses.replace(effect, column=effect.column + evil) for effect in run.effects),
            )
            for run in RECORDS.runs
        ),
        settings={evil: evil},
        command=evil,
        versions={"taskloss": evil, evil: evil},
    )
    page = render_page(records)
    assert (
        outline_of(page).tags
        == outline_of(
            render_page(
                dataclasses.replace(RECORDS, data=dataclasses.replace(RECORDS.data, features=(feature,)), settings={"a": "b"})
            )
        ).tags
    )
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in page


def test_page_without_curves():
    """Queries have no curves and no thresholds, but a table, splits and learning curves."""
    runs = tuple(dataclasses.replace(run, curves=None, thresholds=None) for run in RECORDS.runs)
    page = render_page(dataclasses.replace(RECORDS, runs=runs, data=dataclasses.replace(RECORDS.data, groups=40)))
    outline_of(page)
    assert "of 40 queries" in page
    assert "Learning curves" in page
    for heading in ("<h2>ROC", "<h2>Precision and recall", "<h2>Calibration", "<h2>Choose a threshold"):
        assert heading not in page


def test_json_holds_the_records_and_the_summary(tmp_path: Path):
    path = tmp_path / "results.json"
    path.write_text(as_json(RECORDS))
    record = json.loads(path.read_text())
    assert record["summary"]["verdict"] == summarize(RECORDS).verdict
    assert read_results(path) == RECORDS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda record: record.update(format=1), "holds no results that this version reads"),
        (lambda record: record.pop("metric"), "results has no metric"),
        (lambda record: record["runs"][0].update(value="high"), r"results.runs\[0\].value is str; expected float"),
        (lambda record: record["runs"].pop(), "two or more splits"),
        (lambda record: record.update(data=[]), "results.data is list; expected an object"),
        (lambda record: record.update(contender="nobody"), "nobody"),
    ],
)
def test_damaged_results_are_refused(tmp_path: Path, change, words):
    record = json.loads(as_json(RECORDS))
    change(record)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=words):
        read_results(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"[" * 100_000])
def test_other_files_are_refused(tmp_path: Path, content):
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="results.json"):
        read_results(path)


def test_report_replaces_an_older_one(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    write_report(RECORDS, folder)
    other = simulated(shift=-0.8)
    paths = write_report(other, folder)
    assert [path.name for path in paths] == ["index.html", "results.json"]
    assert sorted(folder.iterdir()) == sorted(paths), "no temporary file is left"
    assert summarize(other).verdict in paths[0].read_text()
    assert paths[1].read_text() == as_json(other)
