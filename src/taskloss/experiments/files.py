"""The files of an experiment: its results as JSON, its page as Markdown, and the figures of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from taskloss._storage import replace_file
from taskloss.experiments.experiment import Experiment, Results
from taskloss.experiments.page import Page, render_svg


def write_results(folder: Path, experiment: Experiment, results: Results, made: dict[str, Any]) -> tuple[Page, Path]:
    """Write the results, the page and its figures; return the page and its path.

    ``made`` says how the results were made: command, versions, processor, time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # One record per line: a change of one run is a change of one line.
    lines = ",\n".join(f"{json.dumps(key)}: {_lines(value)}" for key, value in {"made": made, **results}.items())
    content = f"{{\n{lines}\n}}\n".encode()
    replace_file(folder / f"{experiment.name}.json", content)
    # From the file, so that the page is the one that the file gives: it has lists where the results have tuples.
    page = experiment.make_page(json.loads(content))
    for name, figure in page.figures.items():
        replace_file(folder / f"{name}.svg", render_svg(figure))
    path = folder / f"{experiment.name}.md"
    replace_file(path, f"{page.text}\n\n{page.verdict}\n\n{_describe(experiment, made)}".encode())
    return page, path


def _lines(value: Any) -> str:
    if isinstance(value, dict) and any(isinstance(part, list) for part in value.values()):
        return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(part)}" for key, part in value.items()) + "\n}"
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"


def _describe(experiment: Experiment, made: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    return (
        "## How it was made\n\n"
        f"`{made['command']}` on {made['processor']}; {made['runs']} runs of {made['seconds'] / 60:.0f} minutes in all, "
        f"one thread each. {versions}. All settings and figures: [{experiment.name}.json]({experiment.name}.json).\n"
    )
