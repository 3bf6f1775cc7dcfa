"""From columns to one matrix of numbers, by rules that are fitted once and kept as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import NumberStyle
from taskloss.tables.table import Table

MOST_CATEGORIES = 30
"""Categories of a column that get a feature of their own, the most frequent ones; the rest are "other"."""


def least_rows(rows: int) -> int:
    """A category in fewer rows than this is "other": too few to learn from."""
    return max(2, min(10, rows // 100))


@dataclass(frozen=True)
class NumericRule:
    """A column of numbers: the value, the median where it is missing, and an indicator of that if it happened before."""

    name: str
    median: float
    indicator: bool
    style: NumberStyle = field(default_factory=NumberStyle)

    def feature_names(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.indicator else [])]

    def refit(self, table: Table) -> NumericRule:
        values = table.numbers(self.name, self.style)
        known = values[~np.isnan(values)]
        return replace(self, median=float(np.median(known))) if len(known) else self

    def encode(self, table: Table) -> list[np.ndarray]:
        values = table.numbers(self.name, self.style)
        absent = np.isnan(values)
        return [np.where(absent, self.median, values), *([absent] if self.indicator else [])]


@dataclass(frozen=True)
class CategoricalRule:
    """A column of categories: one indicator each, one of all others if there were any, one of missing if there was one.

    A category that was not there before is among the others; without such a feature, all its indicators are 0.
    """

    name: str
    categories: tuple[str, ...]
    other: bool
    indicator: bool

    def feature_names(self) -> list[str]:
        ends = [f"= {label}" for label in self.categories] + ["other"] * self.other + ["missing"] * self.indicator
        return [f"{self.name} {end}" for end in ends]

    def refit(self, table: Table) -> CategoricalRule:
        column = table.categories(self.name)
        kept = _frequent(column.counts(), table.rows)
        return replace(self, categories=tuple(column.labels[index] for index in kept), other=len(kept) < len(column.labels))

    def encode(self, table: Table) -> list[np.ndarray]:
        column = table.categories(self.name)
        place = {label: index for index, label in enumerate(self.categories)}
        lookup = np.array([*(place.get(label, -1) for label in column.labels), -2], dtype=np.int32)
        codes = lookup[column.codes]
        features = [codes == index for index in range(len(self.categories))]
        return features + [codes == -1] * self.other + [codes == -2] * self.indicator


Rule = NumericRule | CategoricalRule


@dataclass(frozen=True)
class TableEncoder:
    """What to do with each column, fitted on one table and applied to any other with these columns.

    >>> import pyarrow as pa
    >>> table = Table("a file", {"size": pa.array(["1", "", "3"]), "colour": pa.array(["red", "red", "blue"])})
    >>> encoder = TableEncoder.fit(table)
    >>> encoder.feature_names
    ['size', 'size missing', 'colour = red', 'colour other']
    >>> encoder.encode(table).tolist()
    [[1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 1.0, 0.0], [3.0, 0.0, 0.0, 1.0]]
    >>> TableEncoder.from_dict(encoder.to_dict()) == encoder
    True
    """

    rules: tuple[Rule, ...]
    notices: tuple[str, ...] = field(default=(), compare=False)
    """What was left out, or read in a way that is not obvious. Not part of the fitted encoder."""

    @classmethod
    def fit(cls, table: Table, *, categorical: Iterable[str] = ()) -> TableEncoder:
        """Find the kind of each column and what stands for its missing values.

        Args:
            table: the features, without target and groups.
            categorical: columns that hold categories although they look like numbers.

        Raises:
            TableError: if no column is left, or one holds numbers and a few cells that are none.
        """
        categorical = set(categorical)
        for name in categorical:
            table.column(name)
        rules: list[Rule] = []
        notices: list[str] = []
        rule: Rule | None
        for name in table.columns:
            kind = None if name in categorical else table.kind(name)
            if kind is not None and kind.numeric:
                rule, note = _fit_numeric(table, name, kind.style)
                note = note or (f"column {name!r}: {kind.note}" if kind.note else "")
            else:
                rule, note = _fit_categorical(table, name)
            rules += [rule] if rule is not None else []
            notices += [note] if note else []
        if not rules:
            reason = "; ".join(notices[:5])
            raise TableError(f"{table.source} has no column to learn from{': ' + reason if reason else ' besides the target'}")
        return cls(tuple(rules), tuple(notices))

    def refit(self, table: Table) -> TableEncoder:
        """The same columns of the same kinds, with medians and categories of other rows: those of a training set."""
        return TableEncoder(tuple(rule.refit(table) for rule in self.rules))

    def parse_numbers(self, table: Table) -> Table:
        """The table with its columns of numbers read once and for all, so that encoding it again is quick."""
        parsed = {
            rule.name: pa.array(table.numbers(rule.name, rule.style)) for rule in self.rules if isinstance(rule, NumericRule)
        }
        return Table(table.source, {**table.columns, **parsed}, table.notices, table.missing)

    @property
    def feature_names(self) -> list[str]:
        """The names of the matrix's columns."""
        return [name for rule in self.rules for name in rule.feature_names()]

    def encode(self, table: Table) -> np.ndarray:
        """The features, float32 of shape ``(rows, features)``.

        Raises:
            TableError: if a column is missing, or a cell of a numeric column is no number.
        """
        missing = [rule.name for rule in self.rules if rule.name not in table.columns]
        if missing:
            table.column(missing[0])
        features = np.empty((table.rows, len(self.feature_names)), np.float32)
        place = 0
        with np.errstate(over="ignore"):
            for rule in self.rules:
                for values in rule.encode(table):
                    features[:, place] = values
                    place += 1
        limit = np.finfo(np.float32).max
        return np.clip(features, -limit, limit, out=features)

    def to_dict(self) -> dict[str, Any]:
        """The encoder as JSON has it."""
        return {
            "columns": [
                {"kind": "numeric" if isinstance(rule, NumericRule) else "categorical", **asdict(rule)} for rule in self.rules
            ]
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TableEncoder:
        """The inverse of :meth:`to_dict`."""
        try:
            return cls(tuple(_rule(column) for column in record["columns"]))
        except (KeyError, TypeError) as error:
            raise TableError(f"this is no fitted encoder: {error!r}") from error


def _rule(record: Mapping[str, Any]) -> Rule:
    fields = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] == "numeric":
        return NumericRule(**{**fields, "style": NumberStyle(**fields["style"])})
    return CategoricalRule(**{**fields, "categories": tuple(fields["categories"])})


def _fit_numeric(table: Table, name: str, style: NumberStyle) -> tuple[NumericRule | None, str]:
    values = table.numbers(name, style)
    absent = np.isnan(values)
    present = values[~absent]
    if not len(present):
        return None, f"column {name!r} is left out: it is empty"
    if not absent.any():
        if (present == present[0]).all():
            return None, f"column {name!r} is left out: it is {present[0]:g} everywhere"
        if len(values) >= 10 and np.array_equal(values, values[0] + np.arange(len(values))):
            return None, f"column {name!r} is left out: it counts the rows"
    return NumericRule(name, float(np.median(present)), bool(absent.any()), style), ""


def _frequent(counts: np.ndarray, rows: int) -> list[int]:
    """The categories that get a feature of their own."""
    frequent = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
    return sorted(int(index) for index in frequent if counts[index] >= least_rows(rows))


def _fit_categorical(table: Table, name: str) -> tuple[CategoricalRule | None, str]:
    column = table.categories(name)
    counts = column.counts()
    absent = bool((column.codes < 0).any())
    if len(column.labels) < 2 and not (absent and len(column.labels)):
        what = f"it is {shorten(column.labels[0])} everywhere" if len(column.labels) else "it is empty"
        return None, f"column {name!r} is left out: {what}"
    kept = _frequent(counts, table.rows)
    if not kept:
        return None, (
            f"column {name!r} is left out: {len(counts):,} different values in {table.rows:,} rows, none of them in "
            f"{least_rows(table.rows)} rows or more (an identifier?)"
        )
    others = len(counts) - len(kept)
    note = f"column {name!r}: {others:,} rare categories count as other" if others else ""
    return CategoricalRule(name, tuple(column.labels[index] for index in kept), bool(others), absent), note
