"""The error of this package, and how it shows cells."""

from __future__ import annotations


class TableError(ValueError):
    """A file that cannot be used as it is. The message names the row and the column, and says what to do.

    Rows are counted from 1, the header not included.
    """


def shorten(value: object, length: int = 40) -> str:
    """Return a cell for a message: in quotes, on one line, at most about ``length`` characters.

    >>> shorten("a" * 99, length=8)
    "'aaaaaaa...'"
    """
    text = repr(str(value))
    return text if len(text) <= length + 2 else f"{text[:length]}...'"
