"""Reading the target of a table: two classes, or graded relevance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taskloss._positive import find_positive
from taskloss.tables.errors import TableError, shorten
from taskloss.tables.numbers import NumberStyle
from taskloss.tables.spelling import FALSE, TRUE, spell_label
from taskloss.tables.table import Categories, Table

MAX_GRADE = 31
"""Largest grade; the gain of a grade is a power of two."""
MAX_CLASSES = 100
"""Largest number of classes; a column with more labels is hardly one of classes."""
SAME = {"0": FALSE, "1": TRUE, FALSE: "0", TRUE: "1"}
"""The other way of writing a boolean label."""


@dataclass(frozen=True)
class BinaryTarget:
    """A target with two classes."""

    labels: np.ndarray
    """1 for the positive class and 0 for the others, int64, one per row that has a target."""
    rows: np.ndarray
    """Indices of the rows of the table that have a target."""
    positive: str
    """Label of the positive class, as in the file."""
    negative: tuple[str, ...]
    """The other labels."""
    notices: tuple[str, ...]


def binary_target(table: Table, name: str, positive: str | None = None) -> BinaryTarget:
    """Read a column as two classes.

    The positive class is ``positive``, against all other labels. By default it is 1 of the labels 0 and 1, -1 and 1, false and
    true; of two other labels it is the rarer one if its share is below 40%, else the last one in sorted order, and a notice says
    so. Rows without a target are left out, with a notice.

    Raises:
        TableError: if the column does not exist, has one class only, or has several and ``positive`` is not given.
    """
    classes = _labels(table, name)
    counts = classes.counts()
    known = dict(zip(classes.labels, counts.tolist(), strict=True))
    shown = ", ".join(f"{shorten(label)} ({count:,})" for label, count in sorted(known.items(), key=lambda item: -item[1])[:8])
    shown += ", ..." if len(known) > 8 else ""
    if not known:
        raise TableError(f"every cell of the target, column {name!r} of {table.source}, is empty")
    chosen, notices = _choose_positive(known, name, table.source, positive, shown)
    if len(known) < 2:
        raise TableError(
            f"the target, column {name!r} of {table.source}, has one class only: {shown}; expected two. Is it the right column?"
        )
    rows = np.flatnonzero(classes.codes >= 0)
    labels = (classes.codes[rows] == classes.labels.index(chosen)).astype(np.int64)
    others = tuple(label for label in classes.labels if label != chosen)
    return BinaryTarget(labels, rows, chosen, others, (*notices, *_note_missing(classes.codes < 0, name)))


@dataclass(frozen=True)
class ClassTarget:
    """A target with several classes."""

    index: np.ndarray
    """Index of the class, int64, one per row that has a target."""
    rows: np.ndarray
    """Indices of the rows of the table that have a target."""
    classes: tuple[str, ...]
    """Labels of the classes, as in the file, in sorted order."""
    notices: tuple[str, ...]


def class_target(table: Table, name: str) -> ClassTarget:
    """Read a column as several classes, one per label. Rows without a target are left out, with a notice.

    Raises:
        TableError: if the column does not exist, or a label occurs once only, or there are more than ``MAX_CLASSES``.
    """
    classes = _labels(table, name)
    counts = classes.counts()
    many = len(counts) > MAX_CLASSES
    if many or counts.min(initial=2) < 2:
        problem = (
            f"more than {MAX_CLASSES}" if many else f"and {shorten(classes.labels[int(np.argmin(counts))])} occurs once only"
        )
        raise TableError(
            f"the target, column {name!r} of {table.source}, has {len(counts):,} different labels, {problem}. Is it the right "
            "column? Remove rows with rare labels, or give --positive LABEL to set one label against all others"
        )
    rows = np.flatnonzero(classes.codes >= 0)
    return ClassTarget(classes.codes[rows].astype(np.int64), rows, classes.labels, _note_missing(classes.codes < 0, name))


def class_indices(table: Table, name: str, classes: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of each label among known classes, int64, and the rows that have a label; raise if one is not known."""
    found = _labels(table, name)
    if not set(found.labels) <= set(classes) and {SAME.get(label) for label in found.labels} <= set(classes):
        found = Categories(found.codes, tuple(SAME[label] for label in found.labels))
    unknown = sorted(set(found.labels) - set(classes))
    if unknown:
        known = ", ".join(map(shorten, classes[:8])) + (", ..." if len(classes) > 8 else "")
        new = ", ".join(map(shorten, unknown[:5]))
        raise TableError(f"column {name!r} of {table.source} holds labels that the model has not seen: {new}; it knows {known}")
    rows = np.flatnonzero(found.codes >= 0)
    class_of_code = np.array([*(classes.index(label) for label in found.labels), -1], dtype=np.int64)
    return class_of_code[found.codes[rows]], rows


def graded_target(table: Table, name: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Read a column as graded relevance 0, 1, 2, ...; return the grades (int64), the rows that have one, and notices."""
    values = table.numbers(name)
    rows = np.flatnonzero(~np.isnan(values))
    grades = values[rows]
    wrong = (grades != np.floor(grades)) | (grades < 0) | (grades > MAX_GRADE)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise TableError(
            f"row {rows[first] + 1}, column {name!r} of {table.source}: the relevance is {grades[first]:g}; "
            f"expected a whole number from 0 to {MAX_GRADE}"
        )
    if not len(rows):
        raise TableError(f"every cell of the target, column {name!r} of {table.source}, is empty")
    return grades.astype(np.int64), rows, _note_missing(np.isnan(values), name)


def _labels(table: Table, name: str) -> Categories:
    """Return the labels as text; numbers get one spelling, so that 1 and 1.0 are the same label."""
    classes = table.categories(name)
    style = NumberStyle()
    values = [style.parse(label) for label in classes.labels]
    if None in values:
        return classes
    spelled = [f"{value:.15g}" for value in values]
    labels = tuple(sorted(set(spelled), key=float))
    new_codes = np.array([*(labels.index(text) for text in spelled), -1], dtype=np.int32)
    return Categories(new_codes[classes.codes], labels)


def _choose_positive(
    known: dict[str, int], name: str, source: str, positive: str | None, shown: str
) -> tuple[str, tuple[str, ...]]:
    """Return the positive label, and a notice if nobody has said which one it is.

    ``known`` has the number of rows of each label, ``shown`` lists them for messages.
    """
    if positive is not None:
        number = NumberStyle().parse(positive)
        label = spell_label(positive)
        for spelling in (label, "" if number is None else f"{number:.15g}", SAME.get(label, "")):
            if spelling in known:
                return spelling, ()
        raise TableError(f"the target, column {name!r} of {source}, has no label {shorten(positive)}; its labels are {shown}")
    if len(known) > 2:
        raise TableError(
            f"the target, column {name!r} of {source}, has {len(known):,} different labels: {shown}; expected two. "
            "Give --positive LABEL to set one of them against all others"
        )
    labels = list(known)
    if len(labels) < 2:
        return labels[0], ()
    index, reason = find_positive(labels, list(known.values()))
    if not reason:
        return labels[index], ()
    return labels[index], (f"the positive class is {shorten(labels[index])}, {reason}; --positive chooses another",)


def _note_missing(missing: np.ndarray, name: str) -> tuple[str, ...]:
    """Return a notice if rows have no target."""
    if not missing.any():
        return ()
    count, first = int(missing.sum()), int(np.argmax(missing)) + 1
    rows = f"{count:,} rows are" if count > 1 else "1 row is"
    return (f"{rows} left out: no target in column {name!r} (first: row {first})",)
