"""Helpers: run the command line in this process, and write small data files for it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from taskloss.cli.app import app

CODES = {0, 1, 2, 3, 130}
"""The documented exit codes."""


def invoke(*arguments: str | Path):
    return CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, [str(argument) for argument in arguments])


def write_claims(path: Path, rows: int = 240, seed: int = 0) -> Path:
    """Write a CSV file with a rare class, numbers with thousands separators, gaps, categories, an index and an identifier."""
    rng = np.random.default_rng(seed)
    size, age = rng.normal(size=(2, rows))
    branch = rng.choice(["north", "south", "west"], rows)
    fraud = 2 * size + age + (branch == "west") + rng.normal(size=rows) > 2.5
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "amount", "age", "branch", "note", "label"])
        for row in range(rows):
            gap = "" if row % 10 == 3 else f"{age[row]:.3f}"
            label = "fraud" if fraud[row] else "ok"
            writer.writerow([row, f"{1000 + 200 * size[row]:,.2f}", gap, branch[row], f"text {row}", label])
    return path


def write_queries(path: Path, queries: int = 15) -> Path:
    """Write an svmlight file of queries with graded documents."""
    rng = np.random.default_rng(0)
    lines = []
    for query in range(queries):
        for _ in range(8):
            values = rng.normal(size=3)
            entries = " ".join(f"{index}:{value:.4f}" for index, value in enumerate(values, 1))
            lines.append(f"{int(np.clip(round(values[0] + 0.5), 0, 3))} qid:{query} {entries}\n")
    path.write_text("".join(lines))
    return path
