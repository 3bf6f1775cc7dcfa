"""The report: true verdicts, a page that stands alone, files that are whole."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from taskloss.metrics import average_precision_score
from taskloss.report import Comparison, Run, as_json, precision_at_positives, seed_rows, summarize, summary_rows, write_report
from taskloss.report.curves import DARK, draw_curves
from taskloss.report.files import replace_file
from taskloss.report.page import render_page

VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


def run(method: str, seed: int, value: float) -> Run:
    return Run(method, seed, value, precision=(value,) * 4, best_iteration=3, iterations=5, seconds=0.1)


def comparison(baseline: list[float], contender: list[float], **changes) -> Comparison:
    # Contender first and seeds backwards: the report must sort them out.
    runs = [run("direct AP", seed, value) for seed, value in reversed(list(enumerate(contender)))]
    runs += [run("cross-entropy", seed, value) for seed, value in enumerate(baseline)]
    fields = {
        "data": "Made-up data, no licence",
        "samples": 1000,
        "positives": 90,
        "test_fraction": 0.4,
        "baseline": "cross-entropy",
        "contender": "direct AP",
        "runs": tuple(runs),
        "settings": {"Network": "none", "Stopping": "at once"},
        "command": "taskloss compare --seeds 3",
        "versions": {"taskloss": "9.9", "Python": "3.x"},
    }
    return Comparison(**{**fields, **changes})


BETTER = comparison([0.60, 0.62, 0.61], [0.80, 0.83, 0.81])
WORSE = comparison([0.80, 0.83, 0.81], [0.60, 0.62, 0.61])
UNCLEAR = comparison([0.80, 0.70, 0.75], [0.81, 0.69, 0.78])


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        (BETTER, "Direct AP ranks better than cross-entropy: mean test AP 81.33 against 61.00, direct AP ahead on 3 of 3 seeds"),
        (WORSE, "Direct AP ranks worse than cross-entropy: mean test AP 61.00 against 81.33, direct AP ahead on 0 of 3 seeds"),
        (
            UNCLEAR,
            "No clear difference between direct AP and cross-entropy: mean test AP 76.00 against 75.00, direct AP ahead on 2",
        ),
        (
            comparison([0.5, 0.6], [0.5, 0.6]),
            "No clear difference between direct AP and cross-entropy: mean test AP 55.00 against 55.00, direct AP ahead on 0",
        ),
    ],
)
def test_verdict_tells_the_truth(records, finding):
    verdict = summarize(records).verdict
    assert verdict.startswith(finding)
    assert verdict in render_page(records)


def test_interval_is_the_corrected_one():
    summary = summarize(UNCLEAR)
    spread = np.std([0.01, -0.01, 0.03], ddof=1)
    reach = 4.302652729749464 * spread * np.sqrt(1 / 3 + 0.4 / 0.6)
    np.testing.assert_allclose(summary.interval, (0.01 - reach, 0.01 + reach))
    assert summary.spread_of_differences == pytest.approx(spread)


def test_plain_t_test_would_be_too_sure():
    """A case that the usual paired t-test calls a win, and the corrected one does not."""
    records = comparison([0.70, 0.70, 0.70, 0.70], [0.71, 0.72, 0.71, 0.73])
    summary = summarize(records)
    t = summary.mean_difference / (summary.spread_of_differences / 2)
    assert t > 3.19, "beyond the 95% point of three degrees of freedom"
    assert summary.verdict.startswith("No clear difference")


def test_rows_follow_the_seeds():
    assert [tuple(row) for row in seed_rows(UNCLEAR)] == [
        ("0", "80.00", "81.00", "+1.00"),
        ("1", "70.00", "69.00", "-1.00"),
        ("2", "75.00", "78.00", "+3.00"),
    ]
    assert [tuple(row) for row in summary_rows(UNCLEAR)] == [
        ("mean", "75.00", "76.00", "+1.00"),
        ("spread", "5.00", "6.24", "2.00"),
    ]


@pytest.mark.parametrize("records", [comparison([0.5], [0.6]), comparison([0.5, 0.6, 0.7], [0.5, 0.6])])
def test_unpaired_or_single_seeds_are_refused(records):
    with pytest.raises(ValueError, match="two or more seeds"):
        summarize(records)


def test_curve_averages_to_the_metric():
    rng = np.random.default_rng(0)
    scores, target = rng.integers(0, 30, 200).astype(np.float64), rng.integers(0, 2, 200)
    precision = precision_at_positives(scores, target)
    assert len(precision) == target.sum()
    assert precision.mean() == pytest.approx(average_precision_score(scores, target), abs=1e-12)


class Outline(HTMLParser):
    """Collects what the tests ask for, and refuses tags that do not match."""

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
    page = render_page(UNCLEAR)
    outline = outline_of(page)
    assert page.startswith("<!doctype html>")
    assert len(outline.addresses) == 2
    assert all(address.startswith("data:image/svg+xml;base64,") for address in outline.addresses)
    assert "script" not in outline.tags
    assert "link" not in outline.tags
    without_figures = re.sub(r"data:image[^\"]*", "", page)
    assert not re.search(r"https?:|//|@import|url\(", without_figures)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_page_shows_table_settings_and_command():
    page = render_page(UNCLEAR)
    heading, *rows = outline_of(page).cells
    assert heading == ["seed", "cross-entropy", "direct AP", "difference"]
    assert rows == [list(row) for row in (*seed_rows(UNCLEAR), *summary_rows(UNCLEAR))]
    for words in ("at once", "taskloss compare --seeds 3", "taskloss[cli,estimators]==9.9", "Python 3.x", "Made-up data"):
        assert words in page


def test_page_escapes_what_it_is_given():
    page = render_page(comparison([0.5, 0.6], [0.5, 0.7], data="<script>alert(1)</script> & more"))
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page


def test_figure_has_both_forms():
    assert draw_curves(UNCLEAR).startswith(b"\x89PNG")
    assert b"<svg" in draw_curves(UNCLEAR, theme=DARK, form="svg")


def test_json_holds_the_records_and_the_summary():
    record = json.loads(as_json(BETTER))
    assert len(record["runs"]) == 6
    assert record["summary"]["wins"] == 3
    assert record["summary"]["verdict"] == summarize(BETTER).verdict


def test_report_replaces_an_older_one(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    write_report(BETTER, folder)
    paths = write_report(WORSE, folder)
    assert [path.name for path in paths] == ["index.html", "pr-curves.png", "results.json"]
    assert sorted(folder.iterdir()) == sorted(paths), "no temporary file is left"
    assert "ranks worse" in paths[0].read_text()
    assert paths[2].read_text() == as_json(WORSE)


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = replace_file(tmp_path / "file", b"old")

    def full_disk(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:1])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
