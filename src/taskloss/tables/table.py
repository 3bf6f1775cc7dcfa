"""A table as it was read: columns of text or numbers, which are converted to numbers or categories on request."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskloss.tables.dates import DAY_FIRST, MONTH_FIRST, TIME, YEAR_FIRST, parse_date, spell_date
from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import AMBIGUOUS, NumberStyle, find_style
from taskloss.tables.spelling import spell_cells, spell_label

MISSING = frozenset(
    {"", "?", "#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "na", "nan", "null"}
)
"""Cells that stand for a missing value."""

MICROSECONDS_PER_DAY, MICROSECONDS_PER_HOUR = 86_400e6, 3_600e6
MOSTLY_NUMBERS = 0.9
"""A column with at least this share of numbers is numeric: any other text in it is an error in the file, not a category."""


@dataclass(frozen=True)
class Categories:
    """A column of categories, as codes and their labels."""

    codes: np.ndarray
    """Index of each row's label, int32, -1 where the value is missing."""
    labels: tuple[str, ...]

    def counts(self) -> np.ndarray:
        """Return the number of rows of each label."""
        counts: np.ndarray = np.bincount(self.codes[self.codes >= 0], minlength=len(self.labels))
        return counts


@dataclass(frozen=True)
class Kind:
    """The kind of a column: numbers or categories."""

    numeric: bool
    style: NumberStyle = field(default_factory=NumberStyle)
    note: str = ""
    """How the cells are read, where that is not obvious."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length. Text remains text until the kind of a column is known.

    >>> table = Table("a file", {"size": pa.array(["1", "2", ""]), "colour": pa.array(["red", "blue", "red"])})
    >>> table.numbers("size").tolist(), table.categories("colour").labels
    ([1.0, 2.0, nan], ('blue', 'red'))
    """

    source: str
    """The name of the file, for messages."""
    columns: Mapping[str, pa.Array]
    """Columns of numbers (float64), booleans, dates (timestamps in UTC), times of day or text, in the order of the file."""
    notices: tuple[str, ...] = ()
    """Notices about what the reader did on its own."""
    missing: frozenset[str] = MISSING
    """Cells that stand for a missing value."""
    dates: str | None = None
    """``"day-first"`` or ``"month-first"``, for columns of dates that do not decide it; None raises an error that asks."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str) -> pa.Array:
        """Return a column by name; the error for an unknown name lists the columns."""
        if name not in self.columns:
            raise TableError(f"{self.source} has no column {name!r}{suggest(name, list(self.columns))}")
        return self.columns[name]

    def without(self, names: Sequence[str]) -> Table:
        """Return the table without some columns."""
        for name in names:
            self.column(name)
        kept = {name: column for name, column in self.columns.items() if name not in names}
        return replace(self, columns=kept)

    def take(self, rows: np.ndarray) -> Table:
        """Return the rows of these indices."""
        index = pa.array(rows)
        return replace(self, columns={name: column.take(index) for name, column in self.columns.items()})

    def with_nulls(self, name: str) -> pa.Array:
        """Return a column of text with nulls in place of missing values; any other column is returned unchanged."""
        column = self.column(name)
        if not pa.types.is_string(column.type):
            return column
        absent = pc.is_in(column, value_set=pa.array(sorted(self.missing), pa.string()))
        return pc.if_else(absent, pa.scalar(None, pa.string()), column)

    def kind(self, name: str) -> Kind:
        """Return whether a column holds numbers or categories; raise an error if nearly all, but not all, cells are numbers."""
        column = self.with_nulls(name)
        if pa.types.is_boolean(column.type) and column.null_count < len(column):
            return Kind(numeric=False)
        if pa.types.is_time(column.type):
            return Kind(numeric=True, style=NumberStyle(date=TIME), note="times of day, in hours")
        if pa.types.is_temporal(column.type):
            return Kind(numeric=True, style=NumberStyle(date=YEAR_FIRST), note="dates")
        if not pa.types.is_string(column.type) or column.null_count == len(column):
            return Kind(numeric=True)
        if _plain_numbers(column) is not None:
            return Kind(numeric=True)
        cells = column.drop_null().value_counts()
        labels, counts = cells.field("values").to_pylist(), cells.field("counts").to_numpy()
        style, example = find_style(labels)
        ambiguous = style.date == AMBIGUOUS
        if ambiguous:
            style = NumberStyle(date=self.dates or DAY_FIRST)
        wrong = np.array([style.parse(label) is None for label in labels])
        numeric_share = float(counts[~wrong].sum()) / float(counts.sum())
        if ambiguous and self.dates is None and numeric_share >= MOSTLY_NUMBERS:
            self._ask_for_order(name, example)
        if numeric_share == 1:
            return Kind(numeric=True, style=style, note=style.describe(example))
        if numeric_share >= MOSTLY_NUMBERS:
            advice = f", or --categorical {shorten(name)} if the column holds categories"
            self._refuse_text(name, labels[int(np.argmax(wrong))], int(counts[wrong].sum()), advice)
        return Kind(numeric=False)

    def numbers(self, name: str, style: NumberStyle | None = None) -> np.ndarray:
        """Return a column as float64, NaN where values are missing; the error for a cell that is not a number names its row.

        Dates are days since 1970-01-01, times of day are hours.
        """
        column = self.with_nulls(name)
        values = _plain_numbers(column) if style is None or style.is_plain or not pa.types.is_string(column.type) else None
        if values is None:
            values = self._parse(name, column, style or NumberStyle())
        infinite = np.isinf(values)
        if infinite.any():
            raise TableError(
                f"row {int(np.argmax(infinite)) + 1}, column {name!r} of {self.source}: the value is infinite; expected a finite "
                "number. Replace it, or leave the cell empty"
            )
        return values

    def cells(self, name: str) -> list[str | int | float | None]:
        """Return the cells of a column as they stand in the file; whole numbers without a decimal point."""
        column = self.column(name)
        if not pa.types.is_floating(column.type):
            return spell_cells(column).to_pylist()
        cells = column.to_pylist()
        whole = all(cell is None or cell == cell // 1 for cell in cells)
        return [None if cell is None else int(cell) for cell in cells] if whole else cells

    def categories(self, name: str) -> Categories:
        """Return a column as categories, their labels sorted and in one spelling (:mod:`taskloss.tables.spelling`)."""
        coded = spell_cells(self.with_nulls(name)).dictionary_encode()
        spelled = [spell_label(label) for label in coded.dictionary.to_pylist()]
        labels = tuple(sorted(set(spelled)))
        rank = {label: index for index, label in enumerate(labels)}
        lookup = np.array([*(rank[label] for label in spelled), -1], np.int32)
        return Categories(lookup[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)], labels)

    def _parse(self, name: str, column: pa.Array, style: NumberStyle) -> np.ndarray:
        """Return a column of text as numbers; each distinct cell is parsed once."""
        coded = column.dictionary_encode()
        labels = coded.dictionary.to_pylist()
        parsed = [style.parse(label) for label in labels]
        if None in parsed:
            self._refuse_text(name, labels[parsed.index(None)], 1)
        lookup = np.array([*parsed, np.nan], dtype=np.float64)
        values: np.ndarray = lookup[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]
        return values

    def _ask_for_order(self, name: str, example: str) -> None:
        readings = (parse_date(example, order) for order in (DAY_FIRST, MONTH_FIRST))
        spelled = " or ".join(spell_date(days) for days in readings if days is not None)
        raise TableError(
            f"column {name!r} of {self.source} holds dates like {shorten(example)}, which is {spelled}, and no cell decides it. "
            f"Give --dates {DAY_FIRST} or --dates {MONTH_FIRST}, or leave the column out with --drop {shorten(name)}"
        )

    def _refuse_text(self, name: str, label: str, cells: int, advice: str = "") -> None:
        row = pc.index(self.column(name), pa.scalar(label, pa.string())).as_py() + 1
        more = f" (and {cells - 1:,} more cells)" if cells > 1 else ""
        raise TableError(
            f"row {row}, column {name!r} of {self.source}: {shorten(label)} is not a number{more}, but the column is one of "
            f"numbers. Correct the cell, or give --missing {shorten(label)} if it stands for a missing value{advice}"
        )


def suggest(name: str, known: Sequence[str]) -> str:
    """Return the end of a message about an unknown name: similar names, or the first few of all."""
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    few = ", ".join(shorten(other) for other in known[:10])
    return f"; the columns are {few}{', ...' if len(known) > 10 else ''}" if known else "; it has no columns"


def _plain_numbers(column: pa.Array) -> np.ndarray | None:
    """Return the column as float64 if every filled cell is a plain number, else None."""
    if pa.types.is_temporal(column.type):
        unit = MICROSECONDS_PER_HOUR if pa.types.is_time(column.type) else MICROSECONDS_PER_DAY
        column = pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), unit)
    try:
        cast = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    values: np.ndarray = cast.to_numpy(zero_copy_only=False)
    return values
