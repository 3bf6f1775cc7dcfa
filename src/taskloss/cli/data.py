"""The samples of a command: read from a file as the options say, and described for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from taskloss.cli.errors import usage_error
from taskloss.report import DataCard, Feature
from taskloss.tables import BinaryTarget, Table, TableEncoder, TableError, binary_target, class_target, graded_target, read_table
from taskloss.tables.dates import DAY_FIRST, MONTH_FIRST
from taskloss.tables.encoder import ColumnUse, NumericRule
from taskloss.tables.read import FORMATS
from taskloss.tables.svmlight import QUERY, TARGET


@dataclass(frozen=True)
class DataOptions:
    """A data file, and the options that say how to read it."""

    path: Path
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    drop: Sequence[str] = ()
    ids: Sequence[str] = ()
    """Columns that identify the rows; no features."""
    keep: Sequence[str] = ()
    """Columns of numbers that are features although they look like identifiers."""
    categorical: Sequence[str] = ()
    missing: Sequence[str] = ()
    dates: str | None = None
    form: str | None = None
    encoding: str | None = None
    name: str = ""
    """Name shown instead of the name of the file."""
    source: str = ""
    """Where the data come from; by default the name of the file."""

    def read(self) -> Table:
        """Read the whole file."""
        if self.form is not None and self.form not in FORMATS:
            raise usage_error(f"--format {self.form!r} is not known; expected one of {', '.join(FORMATS)}")
        if self.dates not in (None, DAY_FIRST, MONTH_FIRST):
            raise usage_error(f"--dates {self.dates!r} is not known; expected {DAY_FIRST} or {MONTH_FIRST}")
        return read_table(self.path, form=self.form, encoding=self.encoding, missing=self.missing, dates=self.dates)

    def target_in(self, table: Table) -> str:
        """Return the name of the target column."""
        if self.target is not None:
            table.column(self.target)
            return self.target
        if TARGET in table.columns:
            return TARGET
        columns = ", ".join(list(table.columns)[:10])
        raise usage_error(f"--target is missing: name the column of {table.source} to predict. Its columns are {columns}")

    def group_in(self, table: Table) -> str | None:
        """Return the name of the column of query ids, or None if there are no queries."""
        if self.group is not None:
            table.column(self.group)
            return self.group
        return QUERY if QUERY in table.columns and self.target in (None, TARGET) else None


@dataclass(frozen=True)
class TableSamples:
    """A table of features that are not encoded yet, and the target."""

    table: Table
    """The feature columns; numeric columns are parsed."""
    encoder: TableEncoder
    """The encoder fitted to all rows."""
    target: np.ndarray
    """0/1, the index of one of several classes, or grades where there are queries; shape ``(rows,)``, int64."""
    groups: np.ndarray | None
    """The query of each row, numbered from 0; shape ``(rows,)``, int64. None without queries."""
    card: DataCard
    target_name: str
    group_name: str | None
    labels: BinaryTarget | None
    """The labels of the two classes; None for queries and several classes."""
    classes: tuple[str, ...]
    """The labels of several classes, which ``target`` then indexes; empty for two classes and queries."""
    uses: tuple[ColumnUse, ...]
    """What was done with each column of the file."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Columns that identify the rows: those that were named, and those that were recognized."""
        return tuple(use.name for use in self.uses if use.identifier)

    def features(self, fitted_on: np.ndarray) -> np.ndarray:
        """Return the encoded features of all rows, float32; the encoder is fitted to the rows ``fitted_on`` only."""
        return self.encoder.refit(self.table.take(fitted_on)).encode(self.table)


def load_samples(options: DataOptions, *, max_rows: int | None = None, seed: int = 0) -> TableSamples:
    """Read a file, separate target and queries from the features, and find out which features are numbers or categories.

    A target with more than two labels is one of several classes, unless ``options.positive`` sets one against all others.

    Args:
        options: the file and how to read it.
        max_rows: size of a random sample to take from a larger file; None takes all rows.
        seed: seed of that sample.
    """
    table = options.read()
    target_name, group_name = options.target_in(table), options.group_in(table)
    if group_name == target_name:
        raise usage_error(f"--target and --group name the same column, {target_name!r}")
    binary: BinaryTarget | None = None
    classes: tuple[str, ...] = ()
    if group_name is None and options.positive is None and len(table.categories(target_name).labels) > 2:
        found = class_target(table, target_name)
        target, rows, target_notices, classes = found.index, found.rows, found.notices, found.classes
    elif group_name is None:
        binary = binary_target(table, target_name, options.positive)
        target, rows, target_notices = binary.labels, binary.rows, binary.notices
    else:
        target, rows, target_notices = _relevance(table, target_name, options.positive)
    notices = [*table.notices, *target_notices]
    if max_rows is not None and len(rows) > max_rows:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), max_rows, replace=False))
        notices.append(f"a random sample of {max_rows:,} of {len(rows):,} rows is used (--max-rows)")
        target, rows = target[chosen], rows[chosen]
    groups = None if group_name is None else _groups(table, group_name, rows)
    table = table if len(rows) == table.rows else table.take(rows)
    set_aside = _set_aside(options, target_name, group_name)
    features = table.without(list(set_aside))
    encoder = TableEncoder.fit(
        features,
        categorical=[name for name in options.categorical if name not in set_aside],
        keep=[name for name in options.keep if name not in set_aside],
    )
    used = set_aside | {use.name: use for use in encoder.uses}
    uses = tuple(used[name] for name in table.columns)
    table = encoder.parse_numbers(features)
    notices += encoder.notices
    card = DataCard(
        name=options.name or options.path.name,
        source=options.source or f"{options.path.name}, {table.rows:,} rows",
        samples=table.rows,
        positives=0 if classes else int((target > 0).sum()),
        target=target_name,
        positive=binary.positive if binary else "" if classes else "relevance above 0",
        features=tuple(_describe(table, encoder)),
        notices=tuple(notices),
        groups=0 if groups is None else int(groups.max()) + 1,
        classes=dict(zip(classes, np.bincount(target, minlength=len(classes)).tolist(), strict=True)) if classes else {},
    )
    labels = replace(binary, labels=target, rows=rows) if binary else None
    return TableSamples(table, encoder, target, groups, card, target_name, group_name, labels, classes, uses)


def _set_aside(options: DataOptions, target: str, group: str | None) -> dict[str, ColumnUse]:
    """Return the columns that the options say are no features."""
    uses = {name: ColumnUse(name, "as --drop says", left_out=True) for name in options.drop}
    uses |= {name: ColumnUse(name, "identifies the rows (--id)", identifier=True) for name in options.ids}
    uses |= {group: ColumnUse(group, "query of the row")} if group is not None else {}
    return uses | {target: ColumnUse(target, "target")}


def _relevance(table: Table, name: str, positive: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return relevance, indices of the rows that have one, and notices: grades, or 0/1 if ``positive`` names a label."""
    if positive is None:
        return graded_target(table, name)
    binary = binary_target(table, name, positive)
    return binary.labels, binary.rows, binary.notices


def _groups(table: Table, name: str, rows: np.ndarray) -> np.ndarray:
    """Return the queries of the rows, numbered from 0; raise if a row has none."""
    codes = table.categories(name).codes[rows]
    if (codes < 0).any():
        row = int(rows[int(np.argmax(codes < 0))]) + 1
        raise TableError(f"row {row}, column {name!r} of {table.source}: the query id is missing; every row needs one")
    groups: np.ndarray = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return groups


def _describe(table: Table, encoder: TableEncoder) -> list[Feature]:
    """Return a description of each feature: range and median of numbers, the most frequent categories."""
    features = []
    for rule in encoder.rules:
        if isinstance(rule, NumericRule):
            values = table.numbers(rule.name)
            known = values[~np.isnan(values)]
            summary = f"{known.min():.6g} to {known.max():.6g}, median {np.median(known):.6g}"
            features.append(Feature(rule.name, "number", int(np.isnan(values).sum()), summary))
        else:
            column = table.categories(rule.name)
            most_frequent = np.argsort(-column.counts(), kind="stable")[:6]
            others = len(column.labels) - len(most_frequent)
            summary = ", ".join(column.labels[code] for code in most_frequent) + (f" and {others:,} others" if others else "")
            features.append(Feature(rule.name, "category", int((column.codes < 0).sum()), summary))
    return features
