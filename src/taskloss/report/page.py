"""Records to one self-contained HTML page: no scripts, nothing to load, light and dark."""

from __future__ import annotations

from base64 import b64encode

from jinja2 import Environment, PackageLoader, StrictUndefined

from taskloss.report.curves import DARK, LIGHT, Theme, draw_curves
from taskloss.report.records import Comparison
from taskloss.report.summary import as_percent, seed_rows, summarize, summary_rows


def render_page(comparison: Comparison) -> str:
    """The whole page as text."""
    loader = PackageLoader("taskloss", "report")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["percent"] = as_percent
    return environment.get_template("template.html.j2").render(
        comparison=comparison,
        summary=summarize(comparison),
        seed_rows=seed_rows(comparison),
        summary_rows=summary_rows(comparison),
        light_figure=_embedded_figure(comparison, LIGHT),
        dark_figure=_embedded_figure(comparison, DARK),
    )


def _embedded_figure(comparison: Comparison, theme: Theme) -> str:
    """The curves as a data address, so that the page needs no second file."""
    return "data:image/svg+xml;base64," + b64encode(draw_curves(comparison, theme=theme, form="svg")).decode("ascii")
