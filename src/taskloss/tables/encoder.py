"""Encoding the columns of a table as one matrix of numbers, by rules that are fitted once and can be stored as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from taskloss._warn import warn_caller
from taskloss.tables.dates import TIME, spell_date
from taskloss.tables.errors import TableError, shorten
from taskloss.tables.identifiers import MAX_LENGTH, MIN_DISTINCT, why_identifier
from taskloss.tables.numbers import NumberStyle
from taskloss.tables.spelling import FALSE, TRUE
from taskloss.tables.table import Categories, Kind, Table

MAX_CATEGORIES = 30
"""Number of categories of a column, the most frequent ones, that get a feature of their own; the rest are "other"."""
MAX_UNSEEN, HARDLY_ANY = 0.5, 0.1
"""A larger share of categories without a feature is announced if it was below :data:`HARDLY_ANY` in the fitted rows."""


def min_category_rows(rows: int) -> int:
    """Return the number of rows below which a category counts as "other", since there is too little to learn from."""
    return max(2, min(10, rows // 100))


@dataclass(frozen=True)
class NumericRule:
    """Rule for a column of numbers.

    Its features are the value, with the median in place of a missing one, and an indicator of missing values if the fitted rows
    had any.
    """

    name: str
    median: float
    indicator: bool
    style: NumberStyle = field(default_factory=NumberStyle)

    def feature_names(self) -> list[str]:
        return [self.name, *([f"{self.name} missing"] if self.indicator else [])]

    def refit(self, table: Table) -> NumericRule:
        values = table.numbers(self.name, self.style)
        known = values[~np.isnan(values)]
        return replace(self, median=_median(known)) if len(known) else self

    def encode(self, table: Table) -> list[np.ndarray]:
        values = table.numbers(self.name, self.style)
        absent = np.isnan(values)
        return [np.where(absent, self.median, values), *([absent] if self.indicator else [])]


@dataclass(frozen=True)
class CategoricalRule:
    """Rule for a column of categories.

    Its features are one indicator per category, one of "other" and one of missing values if the fitted rows had any. A new
    category counts as "other"; without that feature, all its indicators are 0. If most cells hold such categories, and hardly any
    did in the fitted rows, encoding warns: they are probably written in another way. For a column of booleans, 0 and 1 are known.
    """

    name: str
    categories: tuple[str, ...]
    other: bool
    indicator: bool
    rare: float = 0.0
    """Share of "other" among the filled cells of the fitted rows."""

    def feature_names(self) -> list[str]:
        suffixes = [f"= {label}" for label in self.categories] + ["other"] * self.other + ["missing"] * self.indicator
        return [f"{self.name} {suffix}" for suffix in suffixes]

    def refit(self, table: Table) -> CategoricalRule:
        column = table.categories(self.name)
        counts = column.counts()
        kept = _frequent(counts, table.rows)
        categories = tuple(column.labels[index] for index in kept)
        return replace(self, categories=categories, other=len(kept) < len(counts), rare=_share_of_rest(counts, kept))

    def encode(self, table: Table) -> list[np.ndarray]:
        column = table.categories(self.name)
        index_of = {label: index for index, label in enumerate(self.categories)}
        if index_of.keys() <= {FALSE, TRUE}:
            index_of |= {number: index_of[label] for number, label in (("0", FALSE), ("1", TRUE)) if label in index_of}
        self._warn_unseen(column, [label not in index_of for label in column.labels], table.source)
        # Other labels have the code -1. A missing cell has the code -1 in the column, so it reads the last entry, -2.
        lookup = np.array([*(index_of.get(label, -1) for label in column.labels), -2], dtype=np.int32)
        codes = lookup[column.codes]
        features = [codes == index for index in range(len(self.categories))]
        return features + [codes == -1] * self.other + [codes == -2] * self.indicator

    def _warn_unseen(self, column: Categories, new: list[bool], source: str) -> None:
        counts = column.counts()
        unseen = int(counts[new].sum())
        if self.rare < HARDLY_ANY and unseen > MAX_UNSEEN * counts.sum():
            values = [label for label, is_new in zip(column.labels, new, strict=True) if is_new]
            warn_caller(
                f"column {self.name!r} of {source}: {unseen:,} of {int(counts.sum()):,} values are none of the known categories "
                f"and count as other: {_list(values)}; known are {_list(self.categories)}. If these are meant, spell them alike"
            )


Rule = NumericRule | CategoricalRule


@dataclass(frozen=True)
class ColumnUse:
    """What was done with a column, for readers."""

    name: str
    summary: str
    """``"numbers"``, ``"3 categories"``, or the reason why the column is left out."""
    left_out: bool = False
    identifier: bool = False
    """Whether the column is left out because it identifies the rows."""
    remarkable: bool = False
    """Whether the column is left out or read in a way that is not obvious."""

    @property
    def line(self) -> str:
        """The use without the name: ``"numbers"``, ``"left out: it is empty"``."""
        return f"left out: {self.summary}" if self.left_out else self.summary

    @property
    def notice(self) -> str:
        """The use as a sentence with the name."""
        return f"column {self.name!r} is {self.line}" if self.left_out else f"column {self.name!r}: {self.line}"


@dataclass(frozen=True)
class TableEncoder:
    """An encoding rule for each column, fitted on one table and applied to any other with these columns.

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
    uses: tuple[ColumnUse, ...] = field(default=(), compare=False)
    """What was done with each column of the table; not part of the fitted encoder."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices about columns that were left out or read in a way that is not obvious."""
        return tuple(use.notice for use in self.uses if use.remarkable)

    @classmethod
    def fit(cls, table: Table, *, categorical: Iterable[str] = (), keep: Iterable[str] = ()) -> TableEncoder:
        """Determine the kind of each column and the value that replaces missing ones.

        Args:
            table: the features, without target and groups.
            categorical: columns that hold categories although they look like numbers.
            keep: columns of numbers to use although they look like identifiers.

        Raises:
            TableError: if no column is left, or a column holds numbers and a few cells that are not numbers.
        """
        categorical, keep = set(categorical), set(keep)
        for name in categorical | keep:
            table.column(name)
        rules: list[Rule] = []
        uses: list[ColumnUse] = []
        rule: Rule | None
        for name in table.columns:
            kind = None if name in categorical else table.kind(name)
            if kind is not None and kind.numeric:
                rule, use = _fit_numeric(table, name, kind, keep=name in keep)
            else:
                rule, use = _fit_categorical(table, name)
            rules += [rule] if rule is not None else []
            uses.append(use)
        if not rules:
            reason = "; ".join(use.notice for use in uses[:5])
            raise TableError(f"{table.source} has no column to learn from{': ' + reason if reason else ' besides the target'}")
        return cls(tuple(rules), tuple(uses))

    def refit(self, table: Table) -> TableEncoder:
        """Return an encoder of the same columns and kinds, with medians and categories of these rows (a training set)."""
        return TableEncoder(tuple(rule.refit(table) for rule in self.rules))

    def parse_numbers(self, table: Table) -> Table:
        """Return the table with its columns of numbers already parsed, so that encoding it again is fast."""
        parsed = {
            rule.name: pa.array(table.numbers(rule.name, rule.style)) for rule in self.rules if isinstance(rule, NumericRule)
        }
        return replace(table, columns={**table.columns, **parsed})

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of the encoded matrix."""
        return [name for rule in self.rules for name in rule.feature_names()]

    def encode(self, table: Table) -> np.ndarray:
        """Return the features, float32 of shape ``(rows, features)``.

        Raises:
            TableError: if a column is missing, or a cell of a numeric column is not a number.
        """
        missing = [rule.name for rule in self.rules if rule.name not in table.columns]
        if missing:
            table.column(missing[0])
        features = np.empty((table.rows, len(self.feature_names)), np.float32)
        # Values beyond float32 become infinite, and are clipped to the largest finite number.
        with np.errstate(over="ignore"):
            for index, values in enumerate(values for rule in self.rules for values in rule.encode(table)):
                features[:, index] = values
        largest = np.finfo(np.float32).max
        return np.clip(features, -largest, largest, out=features)

    def to_dict(self) -> dict[str, Any]:
        """Return the encoder as a dictionary that JSON can hold."""
        return {
            "columns": [
                {"kind": "numeric" if isinstance(rule, NumericRule) else "categorical", **asdict(rule)} for rule in self.rules
            ]
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder that :meth:`to_dict` described; raise a TableError if the record is not a complete one."""
        try:
            return cls(tuple(_rule(column) for column in record["columns"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(f"this is not a fitted encoder: {error!r}") from error


def _rule(record: Mapping[str, Any]) -> Rule:
    fields = {name: value for name, value in record.items() if name != "kind"}
    for name, kind in (
        ("name", str),
        ("indicator", bool),
        ("median", (int, float)),
        ("other", bool),
        ("rare", (int, float)),
        ("categories", (list, tuple)),
    ):
        if name in fields and not isinstance(fields[name], kind):
            raise TypeError(f"{name} is {fields[name]!r}")
    if record["kind"] == "numeric":
        if not math.isfinite(fields["median"]):
            raise ValueError(f"median is {fields['median']!r}")
        return NumericRule(**{**fields, "style": NumberStyle.from_dict(fields["style"])})
    if record["kind"] != "categorical" or not all(isinstance(label, str) for label in fields["categories"]):
        raise ValueError(f"kind is {record['kind']!r}, or a category is no text")
    return CategoricalRule(**{**fields, "categories": tuple(fields["categories"])})


def _median(values: np.ndarray) -> float:
    """Return the median; the values are halved first, because the sum of the two middle ones may overflow."""
    return 2 * float(np.median(values / 2))


def _fit_numeric(table: Table, name: str, kind: Kind, *, keep: bool) -> tuple[NumericRule | None, ColumnUse]:
    values = table.numbers(name, kind.style)
    absent = np.isnan(values)
    present = values[~absent]
    reason, identifier = "", False
    if not len(present):
        reason = "it is empty"
    elif not absent.any() and (present == present[0]).all():
        reason = f"it is {_spell_value(present[0], kind)} everywhere"
    elif not (keep or kind.style.date or absent.any()) and (why := why_identifier(name, present)):
        reason, identifier = f"{why} (use it: --keep)", True
    if reason:
        return None, ColumnUse(name, reason, left_out=True, identifier=identifier, remarkable=True)
    summary = (kind.note if kind.style.date else f"numbers, {kind.note}") if kind.note else "numbers"
    use = ColumnUse(name, summary + _note_missing(absent), remarkable=bool(kind.note))
    return NumericRule(name, _median(present), bool(absent.any()), kind.style), use


def _spell_value(value: float, kind: Kind) -> str:
    return spell_date(value) if kind.style.date not in ("", TIME) else f"{value:g}"


def _note_missing(absent: np.ndarray) -> str:
    count = int(absent.sum())
    return f", {count:,} missing" if count else ""


def _frequent(counts: np.ndarray, rows: int) -> list[int]:
    """Return the indices of the categories that get a feature of their own."""
    frequent = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
    return sorted(int(index) for index in frequent if counts[index] >= min_category_rows(rows))


def _share_of_rest(counts: np.ndarray, kept: list[int]) -> float:
    """Return the share of the cells whose category has no feature of its own."""
    return 1 - float(counts[kept].sum()) / max(1, int(counts.sum()))


def _list(labels: Sequence[str]) -> str:
    return ", ".join(map(shorten, labels[:3])) + (", ..." if len(labels) > 3 else "")


def _fit_categorical(table: Table, name: str) -> tuple[CategoricalRule | None, ColumnUse]:
    column = table.categories(name)
    counts = column.counts()
    absent = column.codes < 0
    if len(column.labels) < 2 and not (absent.any() and len(column.labels)):
        reason = f"it is {shorten(column.labels[0])} everywhere" if len(column.labels) else "it is empty"
        return None, ColumnUse(name, reason, left_out=True, remarkable=True)
    kept = _frequent(counts, table.rows)
    if not kept:
        identifier = len(counts) >= MIN_DISTINCT * (~absent).sum() and max(map(len, column.labels)) <= MAX_LENGTH
        reason = f"{len(counts):,} different texts in {table.rows:,} rows" + (": an identifier?" if identifier else "")
        return None, ColumnUse(name, reason, left_out=True, identifier=identifier, remarkable=True)
    others = len(counts) - len(kept)
    summary = f"{len(kept):,} categories" + (f", {others:,} rare categories count as other" if others else "")
    use = ColumnUse(name, summary + _note_missing(absent), remarkable=bool(others))
    categories = tuple(column.labels[index] for index in kept)
    return CategoricalRule(name, categories, bool(others), bool(absent.any()), _share_of_rest(counts, kept)), use
