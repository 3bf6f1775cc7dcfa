"""The page of an experiment: Markdown with tables, figures, and a verdict on each claim of the paper."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taskloss.experiments.statistics import Difference


@dataclass(frozen=True)
class Page:
    """The text of a page in Markdown, and its figures by file name (without the ending)."""

    text: str
    verdict: str
    """The part of the text that the command prints."""
    figures: Mapping[str, Figure] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and what we saw of it."""

    text: str
    evidence: str
    holds: bool | None
    """None if our figures do not decide it."""

    @staticmethod
    def that_first_is_better(text: str, first: str, second: str, difference: Difference, where: str = "") -> Claim:
        """Return the claim that the first method is better than the second, decided by the interval of the difference."""
        holds = {1: True, -1: False, 0: None}[difference.sign]
        return Claim(text, f"{first} against {second}{where}: {difference}", holds)

    def __str__(self) -> str:
        verdict = {True: "holds", False: "does not hold", None: "not decided: zero is inside the interval"}[self.holds]
        return f"- **{self.text}** {self.evidence}. **{verdict[0].upper()}{verdict[1:]}.**"


def read_text(name: str) -> str:
    """Return the prose of a page, with places for its figures in braces; it lies in ``texts/``."""
    return resources.files("taskloss.experiments").joinpath("texts", f"{name}.md").read_text(encoding="utf-8").strip()


def fill_page(name: str, claims: Sequence[Claim], figures: Mapping[str, Figure], **values: Any) -> Page:
    """Return a page: the prose of that name with the values in it, and the claims at the head of its verdict."""
    text, heading, conclusion = read_text(name).partition("## Verdict")
    return Page(text.format(**values).strip(), "\n\n".join([heading, "\n".join(map(str, claims)), conclusion.strip()]), figures)


def make_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown.

    >>> print(make_table(["method", "AP"], [["a", 0.5]]))
    | method | AP |
    |---|---|
    | a | 0.5 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("|" + "|".join(str(cell) if line[0] == "---" else f" {cell} " for cell in line) + "|" for line in lines)


def make_figure(columns: int = 1, rows: int = 1) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with axes in rows and columns, row by row, in the style of all pages."""
    figure = Figure(figsize=(5.6 * columns, 3.9 * rows), layout="constrained")
    axes: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def add_legend(figure: Figure, ax: Axes) -> None:
    """Put the labels of one of the axes below all of them."""
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=9, fontsize=9)


def draw_band(ax: Axes, x: Sequence[float], curves: Sequence[Sequence[float]], label: str, colour: str, **style: Any) -> None:
    """Draw the mean of the curves, one per seed, and the range of one standard deviation around it."""
    values = np.array(curves)
    mean = values.mean(0)
    ax.plot(x, mean, label=label, color=colour, **style)
    if len(values) > 1:
        deviation = values.std(0, ddof=1)
        ax.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0)


def render_svg(figure: Figure) -> bytes:
    """Return the figure as SVG; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "taskloss", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
