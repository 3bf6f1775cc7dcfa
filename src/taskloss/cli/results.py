"""The results of a comparison as a table in the terminal."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from taskloss import report
from taskloss.report import Comparison, DataCard

MAX_NOTICES = 10


def print_comparison(comparison: Comparison, *, shown: Collection[str] = ()) -> None:
    """Print the data, the notices about it except those that were ``shown`` before, the table and the verdict."""
    card = comparison.data
    console = Console(highlight=False, markup=False)
    console.print(card.source, style="dim")
    console.print(f"{card.samples:,} samples, {_target(card)}", style="dim")
    notices = [notice for notice in card.notices if notice not in shown]
    for notice in notices[:MAX_NOTICES]:
        console.print(f"- {notice}", style="dim")
    if len(notices) > MAX_NOTICES:
        console.print(f"- and {len(notices) - MAX_NOTICES} more, in the report", style="dim")
    summary = report.summarize(comparison)
    table = Table(title=f"Test {comparison.metric}, %", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("method", overflow="fold", min_width=15)
    for heading in ("mean", "std", "diff.", "95% interval", "p", "ahead"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in report.summary_rows(comparison):
        table.add_row(*row, style="bold" if row.method == summary.recommended else None)
    console.print(table)
    console.print(
        f"Differences are to {comparison.baseline}, in percentage points. The splits share samples, so intervals and p-values "
        "come from the corrected resampled t-test (Nadeau and Bengio 2003); p is Holm-corrected.\n",
        style="dim",
    )
    console.print(summary.verdict + "\n")
    console.print(f"Gain in points, with its {report.CONFIDENCE:.0%} interval:")
    for gain in summary.gains:
        console.print(Padding(gain.sentence, (0, 0, 0, 2)))
    console.print(f"\n{summary.remark}" if summary.remark else "")
    if summary.train_command:
        # Printed as it is: a command that rich has wrapped cannot be copied.
        console.print("To train it on all the data:")
        console.file.write(f"  {summary.train_command}\n")
    console.print()


def _target(card: DataCard) -> str:
    """Return the classes or the share of positives, in words."""
    if card.classes:
        return f"{card.target} is {card.list_classes()}"
    meaning = f"relevant, of {card.groups:,} queries" if card.groups else f"positive: {card.target} is {card.positive}"
    return f"{card.positives:,} ({card.positives / card.samples:.1%}) {meaning}"
