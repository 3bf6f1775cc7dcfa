"""A table as it was read: columns of text or numbers, which become numbers or categories when they are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import NumberStyle, find_style

MISSING = frozenset(
    {"", "?", "#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "na", "nan", "null"}
)
"""Cells that stand for a missing value."""

MOSTLY_NUMBERS = 0.9
"""A column with this share of numbers is a column of numbers: what else it holds is an error in the file, not a category."""


@dataclass(frozen=True)
class Categories:
    """A column of categories."""

    codes: np.ndarray
    """Index of each row's label, int32, -1 where the value is missing."""
    labels: tuple[str, ...]

    def counts(self) -> np.ndarray:
        """How many rows hold each label."""
        counts: np.ndarray = np.bincount(self.codes[self.codes >= 0], minlength=len(self.labels))
        return counts


@dataclass(frozen=True)
class Kind:
    """What a column holds."""

    numeric: bool
    style: NumberStyle = field(default_factory=NumberStyle)
    note: str = ""
    """How its cells are read, where that is not obvious."""


@dataclass(frozen=True)
class Table:
    """Named columns of equal length. Text stays text until the kind of a column is known.

    >>> table = Table("a file", {"size": pa.array(["1", "2", ""]), "colour": pa.array(["red", "blue", "red"])})
    >>> table.numbers("size").tolist(), table.categories("colour").labels
    ([1.0, 2.0, nan], ('blue', 'red'))
    """

    source: str
    """The name of the file, for messages."""
    columns: Mapping[str, pa.Array]
    """Numbers (float64) or text, in the order of the file."""
    notices: tuple[str, ...] = ()
    """What the reader did that was not asked for."""
    missing: frozenset[str] = MISSING
    """Cells that stand for a missing value."""

    @property
    def rows(self) -> int:
        """How many samples there are."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def column(self, name: str) -> pa.Array:
        """A column by name, or an error that tells what there is."""
        if name not in self.columns:
            raise TableError(f"{self.source} has no column {name!r}{suggest(name, list(self.columns))}")
        return self.columns[name]

    def without(self, names: Sequence[str]) -> Table:
        """The table less some columns."""
        for name in names:
            self.column(name)
        kept = {name: column for name, column in self.columns.items() if name not in names}
        return Table(self.source, kept, self.notices, self.missing)

    def take(self, rows: np.ndarray) -> Table:
        """Some of the rows, by index."""
        index = pa.array(rows)
        return Table(self.source, {name: column.take(index) for name, column in self.columns.items()}, self.notices, self.missing)

    def filled(self, name: str) -> pa.Array:
        """A column of text with nulls where values are missing; numbers as they are."""
        column = self.column(name)
        if not pa.types.is_string(column.type):
            return column
        absent = pc.is_in(column, value_set=pa.array(sorted(self.missing), pa.string()))
        return pc.if_else(absent, pa.scalar(None, pa.string()), column)

    def kind(self, name: str) -> Kind:
        """Whether a column holds numbers or categories; an error if it holds numbers and a few cells that are none."""
        column = self.filled(name)
        if not pa.types.is_string(column.type) or column.null_count == len(column):
            return Kind(numeric=True)
        if _plain_numbers(column) is not None:
            return Kind(numeric=True)
        cells = column.drop_null().value_counts()
        labels, counts = cells.field("values").to_pylist(), cells.field("counts").to_numpy()
        style, example = find_style(labels)
        wrong = np.array([style.parse(label) is None for label in labels])
        numbers = float(counts[~wrong].sum()) / float(counts.sum())
        if numbers == 1:
            return Kind(numeric=True, style=style, note=style.describe(example))
        if numbers >= MOSTLY_NUMBERS:
            self._refuse_text(name, labels[int(np.argmax(wrong))], int(counts[wrong].sum()))
        return Kind(numeric=False)

    def numbers(self, name: str, style: NumberStyle | None = None) -> np.ndarray:
        """A column as float64, NaN where values are missing; an error that names the row of a cell that is no number."""
        column = self.filled(name)
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

    def categories(self, name: str) -> Categories:
        """A column as categories, their labels sorted."""
        column = self.filled(name)
        if not pa.types.is_string(column.type):
            numbers = column.to_numpy(zero_copy_only=False)
            column = pa.array([None if np.isnan(value) else f"{value:.15g}" for value in numbers], pa.string())
        coded = column.dictionary_encode()
        labels = np.array(coded.dictionary.to_pylist(), dtype=object)
        order = np.argsort(labels) if len(labels) else np.zeros(0, np.int64)
        place = np.empty(len(labels) + 1, np.int32)
        place[order] = np.arange(len(labels))
        place[-1] = -1
        codes = place[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]
        return Categories(codes, tuple(labels[order].tolist()))

    def _parse(self, name: str, column: pa.Array, style: NumberStyle) -> np.ndarray:
        coded = column.dictionary_encode()
        labels = coded.dictionary.to_pylist()
        parsed = [style.parse(label) for label in labels]
        if None in parsed:
            self._refuse_text(name, labels[parsed.index(None)], 1)
        lookup = np.array([*parsed, np.nan], dtype=np.float64)
        values: np.ndarray = lookup[pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)]
        return values

    def _refuse_text(self, name: str, label: str, cells: int) -> None:
        row = pc.index(self.column(name), pa.scalar(label, pa.string())).as_py() + 1
        others = f" (and {cells - 1:,} more cells)" if cells > 1 else ""
        raise TableError(
            f"row {row}, column {name!r} of {self.source}: {shorten(label)} is not a number{others}, but the column is one of "
            f"numbers. Correct the cell, or give --missing {shorten(label)} if it stands for a missing value, or "
            f"--categorical {shorten(name)} if the column holds categories"
        )


def suggest(name: str, known: Sequence[str]) -> str:
    """The end of a message about a name that is not known."""
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return f"; did you mean {' or '.join(map(repr, close))}?"
    few = ", ".join(shorten(other) for other in known[:10])
    return f"; the columns are {few}{', ...' if len(known) > 10 else ''}" if known else "; it has no columns"


def _plain_numbers(column: pa.Array) -> np.ndarray | None:
    """The column as float64 if every filled cell is a plain number."""
    try:
        cast = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    values: np.ndarray = cast.to_numpy(zero_copy_only=False)
    return values
