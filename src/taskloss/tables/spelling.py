"""One spelling of the cells that formats write in different ways, so that a category has the same name in all of them.

A boolean is ``True`` in a CSV file of pandas, ``TRUE`` in one of R, and no text at all in Parquet; the category 1 becomes ``1.0``
as soon as one cell of its column is missing.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

FALSE, TRUE = "False", "True"
_WHOLE = re.compile(r"(-?)(0|[1-9]\d*)(\.0*)?", re.ASCII)
_EXACT = 2.0**53
"""Whole numbers up to this one are exact in float64."""


def spell_label(text: str) -> str:
    """Return the one spelling of a label: of booleans in any capitalization and of whole numbers; other text is unchanged.

    Numbers with leading zeros, such as postal codes, and fractions, such as versions, are not the same as others.

    >>> [spell_label(text) for text in ("TRUE", "false", "1.0", "-0", "007", "2.10", "yes")]
    ['True', 'False', '1', '0', '007', '2.10', 'yes']
    """
    if text.lower() in ("true", "false"):
        return text.capitalize()
    match = _WHOLE.fullmatch(text)
    if match is None:
        return text
    return "0" if match[2] == "0" else match[1] + match[2]


def spell_cells(column: pa.Array) -> pa.Array:
    """Return a column as text that has the spelling of :func:`spell_label`, with nulls where values are missing.

    >>> spell_cells(pa.array([1.0, 0.5, None])).to_pylist(), spell_cells(pa.array([True, False])).to_pylist()
    (['1', '0.5', None], ['True', 'False'])
    """
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_boolean(column.type):
        return pc.if_else(column, TRUE, FALSE)
    if pa.types.is_temporal(column.type):
        text = pc.replace_substring_regex(column.cast(pa.string()), r"\.0+$", "")
        return pc.replace_substring_regex(text, " 00:00:00$", "")
    values = column.to_numpy(zero_copy_only=False)
    return pa.array([None if np.isnan(value) else _spell_number(value) for value in values], pa.string())


def _spell_number(value: float) -> str:
    return f"{int(value)}" if value % 1 == 0 and abs(value) <= _EXACT else f"{value:.15g}"
