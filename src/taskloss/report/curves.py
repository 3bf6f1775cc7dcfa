"""Precision-recall curves of a comparison, as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from taskloss.report.records import Comparison
from taskloss.report.summary import as_percent


@dataclass(frozen=True)
class Theme:
    """Colours that suit a background; the two of the methods differ for colour-blind readers too."""

    ink: str
    grid: str
    baseline: str
    contender: str
    background: str


LIGHT = Theme(ink="#24292f", grid="#d8dee4", baseline="#c2510a", contender="#0b66b8", background="#ffffff")
DARK = Theme(ink="#d1d7de", grid="#343b44", baseline="#f0994a", contender="#5cb3ff", background="#161b22")


def draw_curves(comparison: Comparison, *, theme: Theme = LIGHT, form: str = "png") -> bytes:
    """The picture as the bytes of a file: a thin curve for each seed, a thick one for their mean.

    The curves are steps, one at each positive, so the area under the thick one is exactly the mean test AP of the legend.
    """
    figure = Figure(figsize=(5.8, 4.3), layout="constrained", facecolor=theme.background)
    axes = figure.add_subplot(facecolor=theme.background)
    _draw_method(axes, comparison, comparison.baseline, theme.baseline, linestyle="--")
    _draw_method(axes, comparison, comparison.contender, theme.contender, linestyle="-")
    chance = comparison.positives / comparison.samples
    axes.axhline(chance, color=theme.ink, linewidth=1, linestyle=":", label=f"random order, {as_percent(chance)}%")
    _style(axes, theme)
    file = BytesIO()
    figure.savefig(file, format=form, dpi=200)
    return file.getvalue()


def _draw_method(axes: Axes, comparison: Comparison, method: str, colour: str, *, linestyle: str) -> None:
    curves = np.array([run.precision for run in comparison.runs_of(method)])
    recall = np.arange(curves.shape[1] + 1) / curves.shape[1]
    for curve in curves:
        axes.plot(recall, _with_start(curve), color=colour, linewidth=0.8, alpha=0.4, drawstyle="steps-pre")
    mean = curves.mean(axis=0)
    label = f"{method}, mean AP {as_percent(float(mean.mean()))}%"
    axes.plot(recall, _with_start(mean), color=colour, linewidth=2, linestyle=linestyle, drawstyle="steps-pre", label=label)


def _with_start(curve: np.ndarray) -> np.ndarray:
    """The curve from recall zero on, where the first step begins."""
    return np.concatenate([curve[:1], curve])


def _style(axes: Axes, theme: Theme) -> None:
    axes.set(xlim=(-0.005, 1.005), ylim=(0, 1.02), xlabel="recall", ylabel="precision on the test samples")
    axes.xaxis.label.set_color(theme.ink)
    axes.yaxis.label.set_color(theme.ink)
    axes.tick_params(colors=theme.ink, length=0, pad=6)
    axes.grid(color=theme.grid, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.legend(loc="lower left", bbox_to_anchor=(0.01, 0.13), frameon=False, labelcolor=theme.ink)
