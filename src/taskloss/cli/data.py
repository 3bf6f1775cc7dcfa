"""From a file and the options about it to the samples of a command, and the card that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from taskloss.cli.errors import usage_error
from taskloss.report import DataCard, Feature
from taskloss.tables import BinaryTarget, Table, TableEncoder, TableError, binary_target, graded_target, read_table
from taskloss.tables.encoder import NumericRule
from taskloss.tables.read import FORMATS
from taskloss.tables.svmlight import QUERY, TARGET


@dataclass(frozen=True)
class DataOptions:
    """What the command line says about a file."""

    path: Path
    target: str | None = None
    positive: str | None = None
    group: str | None = None
    ignore: Sequence[str] = ()
    categorical: Sequence[str] = ()
    missing: Sequence[str] = ()
    form: str | None = None
    encoding: str | None = None
    name: str = ""
    """Shown in place of the file's name."""
    source: str = ""
    """Where the data come from, if it is known."""

    def read(self) -> Table:
        """The whole file."""
        if self.form is not None and self.form not in FORMATS:
            raise usage_error(f"--format {self.form!r} is not known; expected one of {', '.join(FORMATS)}")
        return read_table(self.path, form=self.form, encoding=self.encoding, missing=self.missing)

    def target_in(self, table: Table) -> str:
        """The name of the target column."""
        if self.target is not None:
            table.column(self.target)
            return self.target
        if TARGET in table.columns:
            return TARGET
        columns = ", ".join(list(table.columns)[:10])
        raise usage_error(f"--target is missing: which column of {table.source} is to be predicted? It has {columns}")

    def group_in(self, table: Table) -> str | None:
        """The name of the column of query ids, if there is one."""
        if self.group is not None:
            table.column(self.group)
            return self.group
        return QUERY if QUERY in table.columns and self.target in (None, TARGET) else None


@dataclass(frozen=True)
class Samples:
    """The samples of a command: columns, not yet numbers, and their target."""

    table: Table
    """The features; the columns of numbers are parsed."""
    encoder: TableEncoder
    """Fitted to all the rows."""
    target: np.ndarray
    """0/1, or grades where there are queries; int64."""
    groups: np.ndarray | None
    """The query of each row, as int64 numbers of no meaning."""
    card: DataCard
    target_name: str
    group_name: str | None
    labels: BinaryTarget | None
    """The two classes; None for queries."""

    def features(self, fitted_on: np.ndarray) -> np.ndarray:
        """The features of all rows, by an encoder that saw only the rows ``fitted_on``; float32."""
        return self.encoder.refit(self.table.take(fitted_on)).encode(self.table)


def load_samples(options: DataOptions, *, most_rows: int | None = None, seed: int = 0) -> Samples:
    """Read a file, take its target and its queries, and find out what its other columns are.

    Args:
        options: the file.
        most_rows: of a larger file, take a random sample of this size.
        seed: of that sample.
    """
    table = options.read()
    target_name, group_name = options.target_in(table), options.group_in(table)
    if group_name == target_name:
        raise usage_error(f"--target and --group name the same column, {target_name!r}")
    notices = list(table.notices)
    binary = None
    if group_name is None:
        binary = binary_target(table, target_name, options.positive)
        target, rows, more = binary.labels, binary.rows, binary.notices
    else:
        target, rows, more = _relevance(table, target_name, options.positive)
    notices += more
    if most_rows is not None and len(rows) > most_rows:
        chosen = np.sort(np.random.default_rng(seed).choice(len(rows), most_rows, replace=False))
        notices.append(f"a random sample of {most_rows:,} of {len(rows):,} rows is used (--max-rows)")
        target, rows = target[chosen], rows[chosen]
    groups = None if group_name is None else _groups(table, group_name, rows)
    table = table if len(rows) == table.rows else table.take(rows)
    apart = {target_name, group_name, *options.ignore} - {None}
    features = table.without([name for name in (target_name, *options.ignore, group_name) if name is not None])
    encoder = TableEncoder.fit(features, categorical=[name for name in options.categorical if name not in apart])
    table = encoder.parse_numbers(features)
    notices += encoder.notices
    card = DataCard(
        name=options.name or options.path.name,
        source=options.source or f"{options.path.name}, {table.rows:,} rows",
        samples=table.rows,
        positives=int((target > 0).sum()),
        target=target_name,
        positive=binary.positive if binary else "relevance above 0",
        features=tuple(_describe(table, encoder)),
        notices=tuple(notices),
        groups=0 if groups is None else int(groups.max()) + 1,
    )
    labels = replace(binary, labels=target, rows=rows) if binary else None
    return Samples(table, encoder, target, groups, card, target_name, group_name, labels)


def _relevance(table: Table, name: str, positive: str | None) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    if positive is None:
        return graded_target(table, name)
    binary = binary_target(table, name, positive)
    return binary.labels, binary.rows, binary.notices


def _groups(table: Table, name: str, rows: np.ndarray) -> np.ndarray:
    codes = table.categories(name).codes[rows]
    if (codes < 0).any():
        row = int(rows[int(np.argmax(codes < 0))]) + 1
        raise TableError(f"row {row}, column {name!r} of {table.source}: the query id is missing; every row needs one")
    groups: np.ndarray = np.unique(codes, return_inverse=True)[1].astype(np.int64)
    return groups


def _describe(table: Table, encoder: TableEncoder) -> list[Feature]:
    features = []
    for rule in encoder.rules:
        if isinstance(rule, NumericRule):
            values = table.numbers(rule.name)
            known = values[~np.isnan(values)]
            words = f"{known.min():.6g} to {known.max():.6g}, median {np.median(known):.6g}"
            features.append(Feature(rule.name, "number", int(np.isnan(values).sum()), words))
        else:
            column = table.categories(rule.name)
            order = np.argsort(-column.counts(), kind="stable")[:6]
            words = ", ".join(column.labels[place] for place in order)
            more = len(column.labels) - len(order)
            words += f" and {more:,} others" if more else ""
            features.append(Feature(rule.name, "category", int((column.codes < 0).sum()), words))
    return features
