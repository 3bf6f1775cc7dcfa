"""What was done with the columns of a file: one line per column, shown before the training."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from taskloss.tables.encoder import ColumnUse

MAX_LINES = 40
"""Wider tables get lines for the columns that are left out or read in a way that is not obvious, and a count of the others."""


def print_columns(uses: Sequence[ColumnUse], *, stderr: bool) -> None:
    """Print one line per column, in the order of the file."""
    shown = list(uses)
    if len(uses) > MAX_LINES:
        shown = [use for use in uses if use.remarkable or use.left_out or use.identifier][:MAX_LINES]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=30)
    table.add_column(overflow="fold")
    for use in shown:
        table.add_row(f"  {use.name}", use.line)
    console = Console(stderr=stderr, highlight=False, markup=False)
    console.print("Columns", style="bold")
    if shown:
        console.print(table)
    if others := len(uses) - len(shown):
        console.print(f"  {f'and {others:,} more columns' if shown else f'{others:,} columns'} of plain numbers and categories")
