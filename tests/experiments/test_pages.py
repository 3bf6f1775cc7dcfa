"""The pages in the documentation are those that their results give, and every experiment has one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from taskloss.experiments.catalog import CATALOG
from taskloss.experiments.page import Claim, make_figure, make_table, render_svg
from taskloss.experiments.statistics import paired_difference

FOLDER = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.parametrize("name", CATALOG)
def test_the_page_shows_the_recorded_results(name):
    results = json.loads((FOLDER / f"{name}.json").read_bytes())
    written = (FOLDER / f"{name}.md").read_text()
    page = CATALOG[name][results["made"]["form"]].experiment.make_page(results)
    assert written.startswith(f"{page.text}\n\n{page.verdict}\n\n## How it was made")
    assert results["made"]["command"] in written
    for figure in page.figures:
        assert f"({figure}.svg)" in page.text
        assert (FOLDER / f"{figure}.svg").read_bytes().startswith(b"<?xml")
    assert "TBD" not in written


@pytest.mark.parametrize("name", CATALOG)
def test_the_index_names_every_experiment(name):
    assert f"({name}.md)" in (FOLDER / "README.md").read_text()


def test_the_files_are_small():
    for path in FOLDER.iterdir():
        assert path.stat().st_size < 600_000, path


@pytest.mark.parametrize(
    ("first", "second", "holds", "words"),
    [
        ([0.9, 0.8, 0.9], [0.5, 0.5, 0.4], True, "**Holds.**"),
        ([0.5, 0.5, 0.4], [0.9, 0.8, 0.9], False, "**Does not hold.**"),
        ([0.5, 0.6, 0.4], [0.6, 0.5, 0.4], None, "**Not decided: zero is inside the interval.**"),
        ([0.9], [0.1], None, "**Not decided: zero is inside the interval.**"),
    ],
)
def test_a_claim_is_decided_by_its_interval(first, second, holds, words):
    claim = Claim.that_first_is_better("It is.", "a", "b", paired_difference(first, second))
    assert claim.holds is holds
    assert str(claim).endswith(words)


def test_equal_methods_decide_nothing():
    assert paired_difference([0.5, 0.6], [0.5, 0.6]).sign == 0


def test_the_interval_is_that_of_student():
    from scipy.stats import ttest_1samp

    difference = paired_difference([0.9, 0.7, 0.8, 0.9], [0.5, 0.5, 0.4, 0.1])
    interval = ttest_1samp([0.4, 0.2, 0.4, 0.8], 0.0).confidence_interval(0.95)
    assert (difference.mean - difference.half_width, difference.mean + difference.half_width) == pytest.approx(
        (interval.low, interval.high)
    )


def test_figures_are_the_same_bytes_again():
    def draw() -> bytes:
        figure, (ax,) = make_figure()
        ax.plot([0, 1], [0, 1], label="a")
        ax.legend()
        return render_svg(figure)

    assert draw() == draw()


def test_a_table_has_a_line_per_row():
    assert make_table(["a", "b"], [[1, 2], [3, 4]]).splitlines() == ["| a | b |", "|---|---|", "| 1 | 2 |", "| 3 | 4 |"]
