"""Data frames with columns of text, categories or dates: these columns become numbers by the encoder of :mod:`taskloss.tables`.

Columns of numbers stay as they are. Of the rest, dates and durations count days, a column of categories (pandas' ``category``)
gets one feature per frequent category, and so does text, unless all of it is numbers. Needs pyarrow.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from taskloss.tables import Table, TableEncoder

NUMBERS = "biuf"
"""Kinds of numpy's dtypes that are numbers."""
SOURCE = "X"
BOOLEANS = {"true": True, "false": False}


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of pandas, or one that can become it (polars, pyarrow)."""
    return hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "to_pandas"))


@dataclass(frozen=True)
class FrameEncoder:
    """The encoding of a data frame as a matrix: the columns of numbers, then the features of the others."""

    numbers: tuple[str, ...]
    """Columns that are numbers already."""
    encoder: TableEncoder
    """The rules of the other columns."""

    @classmethod
    def fit(cls, X: Any) -> FrameEncoder | None:
        """Find out which columns hold what; None if X is no data frame or all its columns are numbers."""
        if not is_frame(X):
            return None
        frame = _as_pandas(X)
        numbers = [name for name in frame.columns if _is_numeric(frame[name])]
        if len(numbers) == len(frame.columns):
            return None
        _check_names(frame)
        tables = _import_tables()
        others = [name for name in frame.columns if name not in numbers]
        table = _as_table(frame, others, tables)
        categories = [name for name in others if str(frame[name].dtype) == "category"]
        for name in set(others) - set(categories):
            _check_kind(table, name, tables)
        columns = {**table.columns, **{name: _float_array(frame[name]) for name in numbers}}
        durations = [name for name in others if getattr(frame[name].dtype, "kind", "O") == "m"]
        fitted = tables.TableEncoder.fit(tables.Table(SOURCE, columns), categorical=categories, keep=[*numbers, *durations])
        encoder = tables.TableEncoder(tuple(rule for rule in fitted.rules if rule.name in others), fitted.uses)
        _warn_left_out(frame, others, encoder)
        return cls(tuple(numbers), encoder)

    def encode(self, X: Any) -> np.ndarray:
        """Return the features of a data frame with the same columns, float64, NaN where numbers are missing."""
        if not is_frame(X):
            raise ValueError(
                f"the estimator was fitted to a data frame with columns of text; expected such a frame, got {type(X).__name__}"
            )
        frame = _as_pandas(X)
        table = _as_table(frame, [rule.name for rule in self.encoder.rules], _import_tables())
        features = self.encoder.encode(table) if self.encoder.rules else np.empty((len(frame), 0))
        return np.column_stack([*(_as_floats(frame[name]) for name in self.numbers), features])

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as a dictionary that JSON can hold."""
        return {"numbers": list(self.numbers), "encoder": self.encoder.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> FrameEncoder:
        """Return the encoding that :meth:`to_dict` described."""
        return cls(tuple(record["numbers"]), _import_tables().TableEncoder.from_dict(record["encoder"]))


def _import_tables() -> Any:
    try:
        from taskloss import tables
    except ImportError as error:
        raise ImportError(
            "data frames with columns of text, categories or dates need pyarrow: pip install 'taskloss[estimators]'"
        ) from error
    return tables


def _as_pandas(X: Any) -> Any:
    return X if hasattr(X, "iloc") else X.to_pandas()


def _is_numeric(column: Any) -> bool:
    """Whether a column is one of numbers, or of objects that all are."""
    if getattr(column.dtype, "kind", "O") in NUMBERS:
        return True
    if column.dtype != object:
        return False
    try:
        column.to_numpy().astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _as_floats(column: Any) -> np.ndarray:
    """Return a column of numbers, or of booleans that may be text, as float64."""
    if not _is_numeric(column):
        column = column.map(lambda cell: BOOLEANS.get(str(cell).lower(), cell))
    values: np.ndarray = column.to_numpy(dtype=np.float64, na_value=np.nan)
    return values


def _float_array(column: Any) -> Any:
    import pyarrow as pa

    return pa.array(_as_floats(column), from_pandas=True)


def _as_table(frame: Any, names: list[str], tables: Any) -> Table:
    """Return some columns as a table of text, dates, and numbers where they hold durations."""
    import pyarrow as pa

    from taskloss.tables.parquet import durations_in_days

    columns = {}
    for name in names:
        column = frame[name]
        kind = getattr(column.dtype, "kind", "O")
        if kind == "M":
            columns[name] = pa.array(column, from_pandas=True).cast(pa.timestamp("us"), safe=False)
        elif kind == "m":
            columns[name] = durations_in_days(pa.array(column, from_pandas=True))
        else:
            missing = column.isna().to_numpy(dtype=bool)
            cells = column.astype(object).to_numpy()
            columns[name] = pa.array(
                [None if gone else str(cell) for cell, gone in zip(cells, missing, strict=True)], pa.string()
            )
    return tables.Table(SOURCE, columns)


def _check_names(frame: Any) -> None:
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ValueError(
            "a data frame with columns of text needs a name of its own, a string, for each column; rename them: "
            "X.columns = [f'column {i}' for i in range(X.shape[1])]"
        )


def _check_kind(table: Table, name: str, tables: Any) -> None:
    try:
        table.kind(name)
    except tables.TableError as error:
        raise ValueError(
            f"column {name!r} of X holds numbers and other text; convert it, by pandas.to_numeric(X[{name!r}], errors='coerce') "
            f"if the text stands for missing values, or by X[{name!r}].astype('category') if the column holds categories"
        ) from error


def _warn_left_out(frame: Any, others: list[str], encoder: TableEncoder) -> None:
    """Warn of columns that hold something, but nothing to learn from; constant ones need no warning."""
    kept = {rule.name for rule in encoder.rules}
    left_out = [name for name in others if name not in kept and frame[name].nunique() > 1]
    if left_out:
        warnings.warn(
            f"columns {', '.join(map(repr, left_out))} of X are left out: nearly every row has another value (identifiers?); "
            "drop them, or make features of them",
            stacklevel=5,
        )
