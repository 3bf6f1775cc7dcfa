"""The page in a browser: no errors, the slider changes the counts, both themes, narrow screens."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from taskloss.report import summarize, write_report
from tests.report.sample import simulated, simulated_classes

RECOMMENDED = summarize(simulated()).recommended
playwright = pytest.importorskip("playwright.sync_api", reason="these tests look at the report in a browser")


@pytest.fixture(scope="module")
def browser():
    """Start Chromium: the one that the variable CHROMIUM names, or else the system's, or else that of playwright."""
    system = (
        os.environ.get("CHROMIUM")
        or shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    with playwright.sync_playwright() as api:
        try:
            chromium = api.chromium.launch(executable_path=system, args=["--no-sandbox"])
        except playwright.Error as error:
            if "CI" in os.environ:
                raise
            pytest.skip(f"no browser: {str(error).splitlines()[0]}; run playwright install chromium")
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    page, _ = write_report(simulated(), tmp_path_factory.mktemp("page"))
    return Path(page).as_uri()


@pytest.fixture(scope="module", params=[4, 20])
def class_address(request, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a page about this many classes."""
    page, _ = write_report(simulated_classes(request.param), tmp_path_factory.mktemp("classes"))
    return Path(page).as_uri()


@pytest.fixture
def visit(browser, address):
    """Open a page; afterwards check that nothing was logged and nothing but the page itself was requested."""
    pages, problems = [], []

    def visit(url: str = address, **options):
        page = browser.new_page(**options)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: None if request.url == url else problems.append(request.url))
        page.goto(url)
        pages.append(page)
        return page

    yield visit
    for page in pages:
        page.close()
    assert problems == []


def shown_values(page) -> dict[str, str]:
    return {
        name: page.inner_text(f"#{name}")
        for name in ("threshold", "flagged", "precision", "recall", "fscore", "tp", "fp", "fn", "tn")
    }


def test_slider_changes_the_counts(visit):
    page = visit()
    method = simulated().runs_of(RECOMMENDED)[0].thresholds
    seen = []
    for step in (0, len(method.values) // 2, len(method.values) - 1):
        page.evaluate(
            f"() => {{ const s = document.getElementById('slider'); s.value = {step}; s.dispatchEvent(new Event('input')); }}"
        )
        shown = shown_values(page)
        tp, fp = method.true_positives[step], method.false_positives[step]
        assert [shown[name] for name in ("tp", "fp", "fn", "tn")] == [
            str(tp),
            str(fp),
            str(method.positives - tp),
            str(method.negatives - fp),
        ]
        assert shown["precision"] == f"{100 * tp / (tp + fp):.1f}%"
        assert shown["recall"] == f"{100 * tp / method.positives:.1f}%"
        assert shown["fscore"] == f"{200 * tp / (tp + fp + method.positives):.1f}%"
        seen.append((shown["threshold"], page.get_attribute(".histogram:not([hidden]) .cut", "d")))
    assert len(set(seen)) == 3, "the line in the histogram moves too"
    page.focus("#slider")
    page.keyboard.press("ArrowLeft")
    assert shown_values(page)["threshold"] != seen[-1][0]


def test_another_method_has_other_counts(visit):
    page = visit()
    assert page.input_value("#method") == RECOMMENDED
    before = shown_values(page)
    page.select_option("#method", "cross-entropy")
    assert shown_values(page) != before
    assert page.locator(".histogram:visible").count() == 1
    assert "F-score" in page.inner_text("#origin")


def test_themes(visit):
    colours = {}
    for scheme in ("light", "dark"):
        page = visit(color_scheme=scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours["light"] != colours["dark"]
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colours["light"]
    page.reload()
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == colours["dark"]


def test_legend_hides_a_method(visit):
    page = visit()
    lines = page.locator(".charts .line.s1")
    assert lines.first.is_visible()
    page.click("[data-series=s1]")
    assert not lines.first.is_visible()
    page.click("[data-series=s1]")
    assert lines.first.is_visible()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_is_wider_than_the_screen(visit, width):
    page = visit(viewport={"width": width, "height": 800})
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [320, 390, 641, 768])
def test_main_table_is_complete_on_a_phone(visit, width):
    page = visit(viewport={"width": width, "height": 844})
    box = page.evaluate(
        "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.querySelector('#results').parentElement)"
    )
    assert box[0] <= box[1], "nothing has to be scrolled into view"
    rows = page.get_by_role("table").first.get_by_role("row")
    assert rows.count() == 6, "it is still a table for screen readers"
    for cell in page.locator("#results td").all():
        if text := cell.inner_text():
            edges = cell.bounding_box()
            assert edges["x"] >= 0, text
            assert edges["x"] + edges["width"] <= width, text
    last = page.locator("#results tr.recommended td").last
    assert last.get_attribute("data-label") == "ahead"
    label = last.evaluate("element => getComputedStyle(element, '::before').content")
    assert (label != "none") == (width <= 640), "where the heading is hidden, each figure has its label"


def test_tables_that_are_cut_off_show_it(visit):
    page = visit(viewport={"width": 390, "height": 844})
    for details in page.locator("summary").all():
        details.click()
    cut = [part for part in page.locator(".scroll").all() if part.evaluate("part => part.scrollWidth > part.clientWidth")]
    assert cut, "every split, with a column for each method, is wider than a phone"
    for part in cut:
        assert part.evaluate("part => getComputedStyle(part).backgroundImage").count("linear-gradient") == 4
        assert part.get_attribute("tabindex") == "0", "the keyboard can scroll it"
        assert part.get_attribute("aria-label")


@pytest.mark.parametrize(("width", "height"), [(390, 844), (844, 390), (1280, 800)])
def test_legend_covers_little_of_the_screen(visit, width, height):
    page = visit(viewport={"width": width, "height": height})
    page.locator(".charts figure").nth(1).scroll_into_view_if_needed()
    page.evaluate("window.scrollBy(0, 200)")
    covered = page.evaluate(
        "(({top, bottom}) => Math.max(0, bottom) - Math.max(0, top))(document.querySelector('.legend').getBoundingClientRect())"
    )
    assert covered <= 0.06 * height
    page.evaluate("[...document.querySelectorAll('pre')].pop().scrollIntoView()")
    assert page.evaluate("document.querySelector('.legend').getBoundingClientRect().bottom") <= 0, "it ends with the charts"


def test_readable_without_scripts(visit):
    page = visit(java_script_enabled=False)
    assert "How sure is that?" in page.inner_text(".verdict")
    assert page.locator("#results tbody tr").count() == 5


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_several_classes_fit_the_screen(visit, class_address, width):
    page = visit(class_address, viewport={"width": width, "height": 800})
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_classes_of_another_method(visit, class_address):
    page = visit(class_address)
    shown = page.locator(".of-method:visible")
    assert page.input_value("#classes-of") == "direct"
    assert shown.get_attribute("aria-label") == "Classes, direct"
    page.select_option("#classes-of", "hinge")
    assert (shown.count(), shown.get_attribute("aria-label")) == (1, "Classes, hinge")
