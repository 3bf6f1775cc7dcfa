"""The results of a comparison in the terminal."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from taskloss import report
from taskloss.report import Comparison

MOST_NOTICES = 10


def print_comparison(comparison: Comparison) -> None:
    """The data in a line, what was left out, the table and the verdict."""
    card = comparison.data
    console = Console(highlight=False, markup=False)
    what = f"relevant, of {card.groups:,} queries" if card.groups else f"positive: {card.target} is {card.positive}"
    console.print(card.source, style="dim")
    console.print(f"{card.samples:,} samples, {card.positives:,} ({card.positives / card.samples:.1%}) {what}", style="dim")
    for notice in card.notices[:MOST_NOTICES]:
        console.print(f"- {notice}", style="dim")
    if len(card.notices) > MOST_NOTICES:
        console.print(f"- and {len(card.notices) - MOST_NOTICES} more, in the report", style="dim")
    table = Table(title=f"Test {comparison.metric}, %", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("method", overflow="fold", min_width=15)
    for heading in ("mean", "spread", "diff.", "95% interval", "p", "ahead"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.summary_rows(comparison):
        table.add_row(*row, style="bold" if row.method == comparison.contender else None)
    console.print(table)
    console.print(
        f"Differences are to {comparison.baseline}, in points. The splits share samples: intervals and p are those of the "
        "corrected resampled t-test (Nadeau and Bengio 2003), p after Holm's correction.\n",
        style="dim",
    )
    summary = report.summarize(comparison)
    console.print(f"{summary.verdict} {summary.remark}\n")
