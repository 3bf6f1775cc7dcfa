"""The pages: links that lead somewhere, and tables that leave no task and no folder out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import taskloss as tl

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / (link.split("#")[0] or page.name)).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_scripts_that_are_named_exist(page):
    scripts = re.findall(r"\b(?:benchmarks|examples|docs|src|tests)/[\w/]+\.py\b", page.read_text())
    assert [script for script in scripts if not (ROOT / script).exists()] == []


def test_every_task_is_in_the_table_of_tasks():
    public = {name: getattr(tl, name) for name in dir(tl)}
    classes = {name: value for name, value in public.items() if isinstance(value, type) and issubclass(value, tl.Task)}
    tasks = classes.keys() - {"Task"}
    page = (ROOT / "docs/tasks.md").read_text()
    assert len(tasks) > 20
    assert {name for name in tasks if f"`tl.{name}(" not in page} == set()


def test_every_folder_is_described():
    page = (ROOT / "docs/architecture.md").read_text()
    folders = [path.parent.name for path in (ROOT / "src/taskloss").glob("*/__init__.py")]
    assert [folder for folder in folders if f"**`{folder}/`.**" not in page] == []


def test_the_readme_fits_the_first_minute():
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", (ROOT / "README.md").read_text(), re.MULTILINE))
    rows = {title: sum(line.startswith("|") for line in text.splitlines()) - 2 for title, text in sections.items()}
    assert rows["For whom it pays"] <= 4
    assert rows["What is there"] <= 15
    assert rows["Speed"] <= 6
